"""Speculative programs are of the shapes that capacities declare, and fit rows and completion records."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from flare.contract import PreparedContract, ProgramKind
from flare.testing.hash_model import HashModel

MODEL = HashModel(speculative=((1, 3, 4, 4), (4, 3, 4, 10)))
CONTRACT = MODEL.build().contract


def test_rectangular_and_ragged_shapes_are_kept() -> None:
    assert PreparedContract.model_validate_json(CONTRACT.model_dump_json()) == CONTRACT
    programs = CONTRACT.of_kind(ProgramKind.SPECULATIVE)
    assert [(program.lanes, program.tokens) for program in programs] == [(1, 4), (4, 10)]
    assert CONTRACT.capacities.live_row(1) == 1 + 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, p: c.update(completion_tokens=3), "width 4 exceeds completion_tokens 3"),
        (lambda c, p: c["speculative"].pop(), "not of the shapes that capacities declare"),
        (lambda c, p: c["speculative"][0].update(depth=5), "not of the shapes"),
        (lambda c, p: p.update(lanes=3), "3 lanes and 10 tokens disagree"),
        (lambda c, p: p.update(tokens=16), "4 lanes and 16 tokens disagree"),
        (lambda c, p: p.update(speculation=None), "kind and speculative shape disagree"),
    ],
)
def test_impossible_shapes_are_refused(change: Any, message: str) -> None:
    document = CONTRACT.model_dump(mode="json")
    ragged = next(p for p in document["programs"] if p["kind"] == "speculative" and p["lanes"] == 4)
    change(document["capacities"], ragged)
    with pytest.raises(ValidationError, match=message):
        PreparedContract.model_validate(document)


def test_each_slot_has_a_row_per_verified_input() -> None:
    document = CONTRACT.model_dump(mode="json")
    capacities = document["capacities"]
    capacities["verification_width"] = 3
    capacities["snapshot_rows"] += 4  # the same number of rows
    with pytest.raises(ValidationError, match="width 4 exceeds verification_width 3"):
        PreparedContract.model_validate(document)
