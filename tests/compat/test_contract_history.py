"""The contract only grows: what a released version wrote is still read, and means what it meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from make_golden import contract_shape, subclasses

from flare.contract import ContractModel

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
HISTORY = sorted(GOLDEN.glob("*-contract.json"))
MODELS = {model.__name__: model for model in subclasses(ContractModel)}


def problems(
    recorded: dict[str, Any], current: dict[str, Any], reserved: dict[str, frozenset[str]]
) -> list[str]:
    """Everything by which `current` could refuse or misread what `recorded` wrote."""
    found: list[str] = []
    for name, fields in recorded["models"].items():
        now = current["models"].get(name)
        if now is None:
            found.append(f"{name} is gone")
            continue
        for field in fields.keys() - now.keys() - reserved.get(name, frozenset()):
            found.append(f"{name}.{field} was removed and is not reserved")
        for field, required in now.items():
            if required and not fields.get(field, False):
                found.append(f"{name}.{field} is required, cores of then may lack it")
    for name, values in recorded["enums"].items():
        missing = [value for value in values if value not in current["enums"].get(name, [])]
        found += [f"{name} lost {value!r}" for value in missing]
    return found


@pytest.mark.parametrize("file", HISTORY, ids=lambda file: file.stem)
def test_what_a_release_wrote_is_still_read(file: Path) -> None:
    reserved = {name: model.RESERVED for name, model in MODELS.items()}
    assert problems(json.loads(file.read_text()), contract_shape(), reserved) == []


def test_there_is_a_history() -> None:
    assert any(file.stem == "0.1.0-contract" for file in HISTORY)


def test_every_way_of_breaking_it_is_seen() -> None:
    then = {"models": {"A": {"x": True, "y": False}, "B": {}}, "enums": {"E": ["a", "b"]}}
    now = {"models": {"A": {"y": True, "z": True, "w": False}}, "enums": {"E": ["a", "c"]}}
    assert problems(then, now, {}) == [
        "A.x was removed and is not reserved",
        "A.y is required, cores of then may lack it",
        "A.z is required, cores of then may lack it",
        "B is gone",
        "E lost 'b'",
    ]
    later = {"models": {"A": {"y": False, "w": False}, "B": {}}, "enums": {"E": ["a", "b", "c"]}}
    assert problems(then, later, {"A": frozenset({"x"})}) == []


def test_a_reserved_name_never_comes_back() -> None:
    class Old(ContractModel):
        RESERVED = frozenset({"speed"})

    assert Old.model_validate({"speed": 3}) == Old()  # old cores may carry it
    with pytest.raises(TypeError, match="'speed'"):

        class Again(Old):
            speed: int = 0
