"""The contract inside a core is checked against the tensors beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_samples import write_core

from flare.contract import CounterScheme, DType, PagedScheme, page_geometry, row_geometry
from flare.corefile import CoreReader, Role, TensorSpec, read_contract
from flare.errors import CoreError

SPECS = (
    TensorSpec("w", DType.F32, (4,), Role.WEIGHT),
    TensorSpec("table/t", DType.U8, (6, 10), Role.TABLE),
    TensorSpec.document("program/p", 10, Role.PROGRAM),
    TensorSpec.document("asset/tokenizer.json", 10),
    TensorSpec.document("asset/template", 10),
)


def document() -> dict[str, Any]:
    schemes = (
        PagedScheme(name="k", dtype=DType.U8, shape=(64,)),
        CounterScheme(name="n", dtype=DType.I32, count=1),
    )
    page, row = page_geometry(schemes, 4), row_geometry(schemes)
    program = {"payloads": [{"rank": 0, "format": "oplist", "tensor": "program/p"}]}
    return {
        "identity": {"format_version": 1, "fingerprint": "0" * 16, "device": "cpu"},
        "provenance": {
            "model": "m",
            "recipe": "r",
            "recipe_version": "1",
            "checkpoint": "c",
            "created": "now",
        },
        "capacities": {
            "concurrency": 1,
            "context": 8,
            "pages": 3,
            "snapshot_rows": 0,
            "decode_lanes": [1],
            "prefill_tokens": [4],
            "stop_token_ids": 1,
            "logit_bias": 0,
            "logprobs": 0,
        },
        "schemes": [scheme.model_dump(mode="json") for scheme in schemes],
        "page": page.model_dump(mode="json"),
        "row": row.model_dump(mode="json"),
        "buffers": [
            {"name": "pages", "region": "pages", "dtype": "U8", "shape": [page.nbytes * 3], "offset": 0},
            {"name": "rows", "region": "rows", "dtype": "U8", "shape": [row.nbytes * 2], "offset": 0},
            {
                "name": "w",
                "region": "weights",
                "dtype": "F32",
                "shape": [4],
                "offset": 0,
                "initial": "bytes",
                "tensor": "w",
            },
        ],
        "programs": [
            program | {"name": "start", "kind": "start", "lanes": 1, "tokens": 1},
            program | {"name": "prefill", "kind": "prefill", "lanes": 1, "tokens": 4},
            program | {"name": "decode", "kind": "decode", "lanes": 1, "tokens": 1},
        ],
        "tables": [{"name": "t", "tensor": "table/t", "rows": 6, "row_bytes": 10, "lookup": "direct"}],
        "frontend": {
            "vocab_size": 10,
            "tokenizer_asset": "asset/tokenizer.json",
            "template_kind": "jinja",
            "template_asset": "asset/template",
            "eos_token_ids": [0],
            "default_sampling": {
                "temperature": 1,
                "top_k": 0,
                "top_p": 1,
                "min_p": 0,
                "repetition_penalty": 1,
                "presence_penalty": 0,
                "frequency_penalty": 0,
                "source": "s",
                "date": "d",
            },
        },
    }


def read(path: Path, text: str) -> Any:
    with CoreReader(write_core(path, text, SPECS)) as reader:
        return read_contract(reader)


def test_a_sound_contract_is_read(tmp_path: Path) -> None:
    contract = read(tmp_path / "c", json.dumps(document()))
    assert contract.capacities.context == 8
    assert contract.tables[0].tensor == "table/t"


CASES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing field": (lambda d: d["capacities"].pop("context"), "capacities.context"),
    "negative capacity": (lambda d: d["capacities"].update(pages=-1), "capacities.pages"),
    "newer contract": (lambda d: d["identity"].update(format_version=99), "identity"),
    "unknown region": (lambda d: d["buffers"][2].update(region="moon"), "buffers.2.region"),
    "weight missing": (lambda d: d["buffers"][2].update(tensor="v"), "buffers.w.tensor"),
    "weight size": (lambda d: d["buffers"][2].update(shape=[5]), "buffers.w.tensor"),
    "program missing": (
        lambda d: d["programs"][1].update(payloads=[{"rank": 0, "format": "oplist", "tensor": "q"}]),
        "programs.prefill.payloads.0.tensor",
    ),
    "table size": (lambda d: d["tables"][0].update(rows=7), "tables.t.tensor"),
    "tokenizer missing": (lambda d: d["frontend"].update(tokenizer_asset="x"), "frontend.tokenizer_asset"),
    "template missing": (lambda d: d["frontend"].update(template_asset="x"), "frontend.template_asset"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_impossible_contract_is_refused_by_field(tmp_path: Path, case: str) -> None:
    change, field = CASES[case]
    value = document()
    change(value)
    with pytest.raises(CoreError) as caught:
        read(tmp_path / "c", json.dumps(value))
    assert caught.value.field == field
    assert field in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 3000])
def test_a_contract_that_is_not_a_document_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CoreError, match="contract"):
        read(tmp_path / "c", text)
