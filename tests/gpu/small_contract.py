"""The contract of a small GPU core around given buffers and graph payloads."""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract import (
    BufferSpec,
    BufferView,
    Capacities,
    CompletionBinding,
    CompletionField,
    DefaultSampling,
    DType,
    Frontend,
    Identity,
    PagedScheme,
    Payload,
    PreparedContract,
    Program,
    ProgramKind,
    Provenance,
    TemplateKind,
    ValueBinding,
    ValueSource,
    page_geometry,
    row_geometry,
)

LANES, CHUNK, WIDTH = 1, 16, 256
SCHEMES = (PagedScheme(name="entries", dtype=DType.BF16, shape=(WIDTH,)),)
PAGE = page_geometry(SCHEMES, CHUNK)
PAGES = 5
TOKENS = {"start": 0, "prefill": CHUNK, "decode": LANES}
"""Programs and their token rows."""


def small_contract(buffers: Sequence[BufferSpec], architecture: str) -> PreparedContract:
    """Programs of `TOKENS` read token ids from `upload` and report f32[tokens, WIDTH] in `completion`."""
    return PreparedContract(
        identity=Identity(format_version=1, fingerprint="small-gpu-core-00", device=architecture),
        provenance=Provenance(
            model="none", recipe="none", recipe_version="0", checkpoint="none", created="never"
        ),
        capacities=Capacities(
            concurrency=1,
            context=PAGES * CHUNK - CHUNK,
            pages=PAGES,
            snapshot_rows=0,
            decode_lanes=(LANES,),
            prefill_tokens=(CHUNK,),
            stop_token_ids=1,
            logit_bias=0,
            logprobs=0,
        ),
        schemes=SCHEMES,
        page=PAGE,
        row=row_geometry(SCHEMES),
        buffers=tuple(buffers),
        programs=tuple(_program(name, tokens) for name, tokens in TOKENS.items()),
        frontend=Frontend(
            vocab_size=512,
            tokenizer_asset="tokenizer",
            template_kind=TemplateKind.NONE,
            eos_token_ids=(0,),
            default_sampling=DefaultSampling(
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                min_p=0.0,
                repetition_penalty=1.0,
                presence_penalty=0.0,
                frequency_penalty=0.0,
                source="none",
                date="1970-01-01",
            ),
        ),
    )


def _program(name: str, tokens: int) -> Program:
    kind = ProgramKind(name)
    bindings: tuple[ValueBinding, ...] = ()
    completion: tuple[CompletionBinding, ...] = ()
    if tokens:
        ids = BufferView(buffer="upload", dtype=DType.I32, shape=(tokens,))
        out = BufferView(buffer="completion", dtype=DType.F32, shape=(tokens, WIDTH))
        bindings = (ValueBinding(source=ValueSource.TOKEN_IDS, view=ids),)
        completion = (CompletionBinding(field=CompletionField.RECORDS, view=out),)
    return Program(
        name=name,
        kind=kind,
        lanes=LANES,
        tokens=tokens,
        bindings=bindings,
        completion=completion,
        payloads=(Payload(rank=0, format="cuda_graph", tensor=f"program/{name}"),),
    )
