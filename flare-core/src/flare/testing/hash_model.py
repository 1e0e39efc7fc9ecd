"""The hash model: a core for the sim device whose next token is a hash of all of its state.

Its state is of all eight kinds (`flare.device.sim_sequence`), each holds hashes of the history, and the
request a count of it. A wrong page, row or slot, a dropped open group, a stale window, an early reuse or an
off-by-one therefore changes the output, and `flare.testing.hash_oracle` knows the right one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flare.contract import (
    BufferSpec,
    CacheScheme,
    Capacities,
    ConvHistoryScheme,
    CounterScheme,
    DefaultSampling,
    DType,
    Frontend,
    GroupedScheme,
    Identity,
    Initial,
    PagedScheme,
    Payload,
    PendingTokens,
    PreparedContract,
    Program,
    ProgramKind,
    Provenance,
    RecurrentScheme,
    Region,
    SavedHiddenScheme,
    SpeculativeShape,
    TableResource,
    TableUse,
    TemplateKind,
    TokenHistoryScheme,
    WindowScheme,
    page_geometry,
    row_geometry,
)
from flare.device.sim_ops import mix_array
from flare.testing import hash_programs as programs
from flare.testing.assembly import COMPLETION, UPLOAD, Assembly, place
from flare.testing.hash_oracle import GRAM_MULTIPLIERS, GRAM_SEPARATOR, HashShape, gram_moduli
from flare.testing.hash_programs import HashState
from flare.testing.image import CoreImage


@dataclass(frozen=True, slots=True)
class HashModel:
    """Sizes of a hash model core. `pages` counts the null page; None gives every slot a whole context.
    With rows of a table in `shape`, the host delivers them: it must feed tokens and proposals then; or
    programs read the table, which is `resident`.
    Vision programs of `image_patches` make `image_features` features; tokens have positions then.
    With a `tokenizer` (text of a `tokenizer.json`, whose token 0 ends an output) draws take grammar masks.
    `host_fed` makes decode take its pending token from the host. `speculative` lists (requests, depth, width,
    rows) of speculative programs; proposals are uploaded with `host_proposals`, else drafted on the device,
    right in `agreement` of 256 cases."""

    concurrency: int = 4
    context: int = 64
    page_tokens: int = 4
    pages: int | None = None
    snapshot_rows: int = 2
    prefill_tokens: tuple[int, ...] = (4, 8, 16)
    decode_lanes: tuple[int, ...] = (1, 2, 4)
    vocab_size: int = 97
    stop_token_ids: int = 4
    host_fed: bool = False
    speculative: tuple[tuple[int, int, int, int], ...] = ()
    host_proposals: bool = False
    agreement: int = 192
    image_patches: tuple[int, ...] = ()
    image_features: int = 0
    resident: bool = False
    shape: HashShape = field(default_factory=HashShape)
    tokenizer: str = ""

    @property
    def schemes(self) -> tuple[CacheScheme, ...]:
        """One cache scheme of each kind."""
        shape, u64 = self.shape, DType.U64
        return (
            PagedScheme(name="entries", dtype=u64, shape=()),
            GroupedScheme(
                name="groups",
                dtype=u64,
                shape=(),
                group=shape.group,
                overlap=shape.overlap,
                open_shape=(),
                open_dtype=u64,
            ),
            WindowScheme(name="window", dtype=u64, shape=(), window=shape.window),
            RecurrentScheme(name="recurrent", dtype=u64, shape=()),
            ConvHistoryScheme(name="conv", dtype=u64, channels=2, taps=shape.taps),
            TokenHistoryScheme(name="history", length=shape.history),
            CounterScheme(name="counter", count=2),
            SavedHiddenScheme(name="hidden", dtype=u64, shape=()),
        )

    def build(self) -> CoreImage:
        """The core. Raises ValueError (pydantic) for impossible sizes."""
        schemes = self.schemes
        page, row = page_geometry(schemes, self.page_tokens), row_geometry(schemes)
        per_request = -(-self.context // self.page_tokens)
        speculative = tuple(
            SpeculativeShape(requests=requests, depth=depth, width=width, rows=rows)
            for requests, depth, width, rows in self.speculative
        )
        width = max((shape.width for shape in speculative), default=1)
        capacities = Capacities(
            concurrency=self.concurrency,
            context=self.context,
            pages=self.pages if self.pages is not None else 1 + self.concurrency * per_request,
            snapshot_rows=self.snapshot_rows,
            decode_lanes=self.decode_lanes,
            prefill_tokens=self.prefill_tokens,
            completion_tokens=width,
            verification_width=width,
            speculative=speculative,
            stop_token_ids=self.stop_token_ids,
            logit_bias=0,
            logprobs=0,
            image_patches=self.image_patches,
            image_features=self.image_features,
        )
        slots = place(Region.REQUEST_STATE, self._slot_state(per_request))
        tables = self._tables()
        state = HashState(
            capacities=capacities,
            page=page,
            row=row,
            slots={buffer.name: buffer for buffer in slots},
            pages_per_request=per_request,
            vocab_size=self.vocab_size,
            table=tables[0] if tables else None,
            resident=self.resident,
            images=self.image_features > 0,
            masked=bool(self.tokenizer),
        )
        buffers = [*slots]
        for name, region, blocks, nbytes in (
            ("pages", Region.PAGES, capacities.pages, page.nbytes),
            ("rows", Region.ROWS, capacities.rows, row.nbytes),
        ):
            shape = (blocks, nbytes)
            buffers.append(
                BufferSpec(
                    name=name, region=region, dtype=DType.U8, shape=shape, offset=0, initial=Initial.UNDEFINED
                )
            )
        if self.image_features:
            features = (programs.FEATURES, DType.U64, (self.image_features,))
            buffers += place(Region.IMAGE_FEATURES, [features])
        if self.resident:
            buffers += [_table_buffer(table) for table in tables]
        made, tensors = self._programs(state, tuple(buffer.name for buffer in buffers))
        buffers += place(
            Region.UPLOAD, [(UPLOAD, DType.U8, (max(program.upload_bytes for program in made),))]
        )
        buffers += place(
            Region.COMPLETION, [(COMPLETION, DType.U8, (max(program.completion_bytes for program in made),))]
        )
        contract = PreparedContract(
            identity=Identity(format_version=1, fingerprint="hash-model-000000", device="sim"),
            provenance=Provenance(
                model="hash model", recipe="none", recipe_version="0", checkpoint="none", created="never"
            ),
            capacities=capacities,
            schemes=schemes,
            page=page,
            row=row,
            buffers=tuple(buffers),
            programs=made,
            tables=tables,
            frontend=self._frontend(),
        )
        tokenizer = self.tokenizer.encode() or _tokenizer(self.vocab_size)
        if self.shape.table:
            tensors["tables.grams"] = mix_array(np.arange(self.shape.table, dtype=np.uint64)).tobytes()
        return CoreImage(contract, tensors | {"frontend.tokenizer": tokenizer})

    def _tables(self) -> tuple[TableResource, ...]:
        rows = self.shape.table
        if not rows:
            return ()
        moduli, offsets = gram_moduli(rows)
        longest, functions = len(GRAM_MULTIPLIERS), 2
        return (
            TableResource(
                name=programs.TABLE,
                tensor="tables.grams",
                rows=rows,
                row_bytes=programs.TABLE_ROW_BYTES,
                lookup="ngram",
                parameters=(longest, functions, GRAM_SEPARATOR, *GRAM_MULTIPLIERS, *moduli, *offsets),
            ),
        )

    def _slot_state(self, pages_per_request: int) -> list[tuple[str, DType, tuple[int, ...]]]:
        count, i32 = self.concurrency, DType.I32
        counts = ("pending", "consumed", "columns", "generated", "min_tokens", "max_tokens")
        return [
            *((name, i32, (count,)) for name in (*counts, "finished", "epochs")),
            *((name, DType.I64, (count,)) for name in ("seeds", "prompt_hashes")),
            ("stops", i32, (count, self.stop_token_ids)),
            ("tables", i32, (count, pages_per_request)),
        ]

    def _programs(
        self, state: HashState, buffers: tuple[str, ...]
    ) -> tuple[tuple[Program, ...], dict[str, bytes]]:
        made: list[Program] = []
        delivery = "resident" if self.resident else "host_rows"
        use = TableUse(table=programs.TABLE, delivery=delivery)
        consuming = (ProgramKind.PREFILL, ProgramKind.DECODE, ProgramKind.SPECULATIVE)
        tensors: dict[str, bytes] = {}

        def add(name: str, kind: ProgramKind, code: Assembly, cost_us: float = 50.0, **sizes: Any) -> None:
            tensors[f"programs.{name}"] = code.listing().model_dump_json().encode()
            program = Program(
                name=name,
                kind=kind,
                bindings=tuple(code.bindings),
                completion=tuple(code.completion),
                reads=buffers,
                writes=buffers,
                tables=(use,) if state.table and kind in consuming else (),
                payloads=(Payload(rank=0, format="oplist", tensor=f"programs.{name}"),),
                cost_us=cost_us,
                **{"lanes": 1, "tokens": 0, "rows_per_lane": 1, **sizes},
            )
            made.append(program)

        add("start", ProgramKind.START, programs.start(state))
        add("resume", ProgramKind.RESUME, programs.resume(state))
        add("snapshot", ProgramKind.SNAPSHOT, programs.snapshot(state))
        add("restore", ProgramKind.RESTORE, programs.restore(state))
        for tokens in self.prefill_tokens:
            code = programs.prefill(state, tokens)
            add(f"prefill_{tokens}", ProgramKind.PREFILL, code, 50.0 + 10.0 * tokens, tokens=tokens)
        for patches in self.image_patches:
            add(f"vision_{patches}", ProgramKind.VISION, programs.vision(state, patches), tokens=patches)
        generating: dict[str, Any] = {
            "pending": PendingTokens.HOST if self.host_fed else PendingTokens.DEVICE,
            "rows_per_lane": state.capacities.verification_width,
        }
        for lanes in self.decode_lanes:
            sizes = {"lanes": lanes, "tokens": lanes, **generating}
            code = programs.decode(state, lanes, self.host_fed)
            add(f"decode_{lanes}", ProgramKind.DECODE, code, 80.0 + 30.0 * lanes, **sizes)
        drafts = programs.Drafts(self.host_proposals, self.agreement, self.host_fed)
        for shape in state.capacities.speculative:
            sizes = {"lanes": shape.requests, "tokens": shape.rows, "speculation": shape, **generating}
            name = f"speculative_{shape.requests}_{shape.depth}_{shape.width}_{shape.rows}"
            code = programs.speculative(state, shape, drafts)
            cost_us = 80.0 + 30.0 * shape.requests + 10.0 * shape.rows
            add(name, ProgramKind.SPECULATIVE, code, cost_us, **sizes)
        return tuple(made), tensors

    def _frontend(self) -> Frontend:
        return Frontend(
            vocab_size=self.vocab_size,
            tokenizer_asset="frontend.tokenizer",
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
                source="none: tokens are hashes",
                date="1970-01-01",
            ),
        )


def _table_buffer(table: TableResource) -> BufferSpec:
    return BufferSpec(
        name=table.name,
        region=Region.TABLE_ROWS,
        dtype=DType.U8,
        shape=(table.rows, table.row_bytes),
        offset=0,
        initial=Initial.BYTES,
        tensor=table.tensor,
    )


def _tokenizer(vocab_size: int) -> bytes:
    """A `tokenizer.json` of words `t0`, `t1`, ..."""
    model = {"type": "WordLevel", "vocab": {f"t{i}": i for i in range(vocab_size)}, "unk_token": "t0"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    content: dict[str, object] = {
        "version": "1.0",
        **empty,
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": model,
    }
    return json.dumps(content).encode()
