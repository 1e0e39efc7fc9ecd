"""Operator lists are closed: admitted names, existing views, temporaries that were produced, once."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from flare.contract import BufferView, DType, Operator, OperatorList

VIEW = BufferView(buffer="b", dtype=DType.F32, shape=(2,))


def listing(*steps: dict[str, Any], probes: dict[str, int] | None = None) -> OperatorList:
    return OperatorList.model_validate(
        {
            "views": [VIEW.model_dump()],
            "operators": [{"name": "aten::relu", "schema_text": "s"}],
            "steps": steps,
            "probes": probes or {},
        }
    )


@pytest.mark.parametrize("name", ["aten::add.Tensor", "flare::rms_norm", "sim::hash", "aten::_to_copy"])
def test_admitted_names(name: str) -> None:
    assert Operator(name=name, schema_text="").name == name


@pytest.mark.parametrize(
    "name",
    [
        "prim::load",
        "os::system",
        "aten::",
        "add",
        "aten::a b",
        "aten::a.b.c",
        "aten::relu\n",
        " aten::relu",
        "aten::../x",
        "torch.ops.aten.relu",
        "",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="not in an admitted namespace"):
        Operator(name=name, schema_text="")


def test_a_chain_of_temporaries() -> None:
    made = listing(
        {"op": 0, "args": [{"v": 0}], "out": [0]},
        {"op": 0, "args": [[{"t": 0}, {"v": 0}]], "out": [1, -1, -1]},
        {"op": 0, "keywords": {"x": {"t": 1}}, "out": [2]},
        probes={"end": 2},
    )
    assert OperatorList.model_validate_json(made.model_dump_json(exclude_defaults=True)) == made


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"op": 1}], "step 0: operator 1 of 1"),
        ([{"op": 0, "args": [{"t": 0}]}], "step 0: temporary 0 is read before it is produced"),
        ([{"op": 0, "args": [{"t": 0}], "out": [0]}], "temporary 0 is read before"),
        ([{"op": 0, "args": [[[{"t": 3}]]], "out": [0]}], "temporary 3 is read before"),
        ([{"op": 0, "out": [0]}, {"op": 0, "keywords": {"a": [{"t": 1}]}}], "temporary 1 is read before"),
        ([{"op": 0, "out": [-1]}, {"op": 0, "args": [{"t": -1}]}], "temporary -1 is read before"),
        ([{"op": 0, "out": [0]}, {"op": 0, "args": [{"t": False}]}], "temporary False is read before"),
        ([{"op": 0, "out": [0]}, {"op": 0, "args": [{"t": [0]}]}], "is read before"),
        ([{"op": 0, "args": [{"v": 1}]}], "step 0: view 1 of 1"),
        ([{"op": 0, "args": [{"v": -1}]}], "step 0: view -1 of 1"),
        ([{"op": 0, "args": [{"v": True}]}], "step 0: view True of 1"),
        ([{"op": 0, "args": [{"v": "0"}]}], "step 0: view 0 of 1"),
        ([{"op": 0, "out": [0]}, {"op": 0, "out": [0]}], "step 1: temporary 0 is produced twice"),
        ([{"op": 0, "out": [0, 0]}], "temporary 0 is produced twice"),
        ([{"op": 0, "out": [10**12]}], "out of range"),
        ([{"op": 0, "out": [-2]}], "out of range"),
    ],
)
def test_open_lists_are_refused(steps: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        listing(*steps)


def test_a_probe_names_a_temporary() -> None:
    with pytest.raises(ValidationError, match="probe 'end': temporary 1 is never produced"):
        listing({"op": 0, "out": [0]}, probes={"end": 1})
    with pytest.raises(ValidationError, match="never produced"):
        listing({"op": 0, "out": [-1]}, probes={"end": -1})
