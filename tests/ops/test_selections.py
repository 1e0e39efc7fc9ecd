"""What is known about candidates is used again only where it still holds."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from flare_components.ops.cuda import timing, tuning
from flare_components.ops.cuda.selections import Selections, definition
from flare_components.ops.cuda.tuning import Candidate, choose

MACHINE = {"gpu": "G", "processors": 7, "torch": "1"}


@dataclass(frozen=True)
class Held:
    width: int
    pages: torch.Tensor


def double(scale: int, x: torch.Tensor) -> torch.Tensor:
    return x * scale


def candidates() -> Sequence[Candidate]:
    return [Candidate(str(scale), partial(double, scale)) for scale in (1, 2, 3)]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Scales that were timed; the third candidate is the fastest, by less than 3% than the second."""
    timed: list[int] = []

    def measure(call: partial[torch.Tensor], sets: object) -> float:
        timed.append(call.args[0])
        return {1: 10.0, 2: 5.0, 3: 4.9}[call.args[0]]

    monkeypatch.setattr(timing, "measure", measure)
    monkeypatch.setattr(timing, "rotation", lambda operands: [operands])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(tuning, "Selections", partial(Selections, machine=MACHINE))
    tuning.forget()
    yield timed
    tuning.forget()


def pick(cache: Path | None, shape: object = (1, 2)) -> tuple[str, int]:
    """The chosen candidate in a new process, and how many choices were timed."""
    tuning.forget()
    with tuning.tuning(cache) as report:
        name = choose("double", shape, candidates, (torch.zeros(1),)).name
        assert choose("double", shape, candidates, (torch.zeros(1),)).name == name
    assert [c.name for c in report.choices] == [name]
    assert report.choices[0].microseconds == {"1": 10.0, "2": 5.0, "3": 4.9}
    return name, report.measured


def test_a_choice_is_timed_once_for_all_preparations(measured: list[int], tmp_path: Path) -> None:
    assert pick(tmp_path) == ("3", 1)
    assert measured == [1, 2, 3]
    assert pick(tmp_path) == ("3", 0)
    assert pick(tmp_path, (1, 3)) == ("3", 1)
    assert pick(tmp_path, (1, 2)) == ("3", 0)  # the file keeps both
    assert pick(None) == ("3", 1)
    assert len(measured) == 9


def test_a_first_candidate_that_is_as_good_stays(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "measure", lambda call, sets: 9.8 if call.args[0] == 3 else 10.0)
    with tuning.tuning():
        assert choose("double", (), candidates, (torch.zeros(1),)).name == "1"


def test_another_machine_or_version_does_not_match(measured: list[int], tmp_path: Path) -> None:
    first = Selections(tmp_path, MACHINE)
    first.add("double (1, 2)", "state", {"1": 1.0})
    first.write()
    assert Selections(tmp_path, MACHINE).find("double (1, 2)", "state") == {"1": 1.0}
    assert Selections(tmp_path, MACHINE).find("double (1, 3)", "state") is None
    assert Selections(tmp_path, MACHINE).find("double (1, 2)", "other") is None
    for key in MACHINE:
        other = Selections(tmp_path, {**MACHINE, key: "another"})
        assert other.find("double (1, 2)", "state") is None
        assert other.path != first.path


@pytest.mark.parametrize(
    "contents",
    [
        "{",
        "[]",
        json.dumps({"machine": {"gpu": "H"}, "times": {}}),
        json.dumps({"machine": MACHINE, "times": {"double": ["fast"]}}),
        json.dumps({"machine": MACHINE, "times": {"double": {"1": "fast"}}}),
        json.dumps({"machine": MACHINE}),
    ],
)
def test_a_damaged_file_is_ignored_and_replaced(
    measured: list[int], tmp_path: Path, contents: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = Selections(tmp_path, MACHINE).path
    path.write_text(contents)
    with caplog.at_level(logging.WARNING):
        assert pick(tmp_path) == ("3", 1)
    assert f"{path} is ignored, kernels are timed again" in caplog.text
    assert pick(tmp_path) == ("3", 0)


def test_a_directory_that_cannot_be_written_costs_time_only(
    measured: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert pick(tmp_path / "file" / "tuning") == ("3", 1)
    assert "choices of kernels are not kept" in caplog.text


def test_two_preparations_at_a_time_keep_both_choices(tmp_path: Path) -> None:
    one, two = Selections(tmp_path, MACHINE), Selections(tmp_path, MACHINE)
    one.add("a", "s", {"1": 1.0})
    two.add("b", "s", {"1": 2.0})
    one.write()
    two.write()
    assert Selections(tmp_path, MACHINE).find("a", "s") == {"1": 1.0}
    assert Selections(tmp_path, MACHINE).find("b", "s") == {"1": 2.0}


def test_a_definition_is_names_arguments_and_sources() -> None:
    usual = definition([("1", partial(double, 1))])
    assert usual == definition([("1", partial(double, 1))])
    different = {
        definition([("one", partial(double, 1))]),
        definition([("1", partial(double, 2))]),
        definition([("1", double)]),
        definition([("1", partial(double, 1)), ("2", partial(double, 2))]),
        definition([("1", torch.nn.functional.linear)]),
    }
    assert len(different | {usual}) == 6


def test_operands_that_a_candidate_holds_are_no_part_of_its_definition() -> None:
    def held(pages: torch.Tensor, width: int) -> str:
        return definition([("1", partial(double, Held(width, pages), [pages, width]))])

    assert held(torch.zeros(2), 3) == held(torch.ones(2), 3)
    assert held(torch.zeros(2), 3) != held(torch.zeros(2), 4)


def test_an_operator_without_a_candidate_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"double has no candidate for \(1, 2\)"):
        choose("double", (1, 2), list, (torch.zeros(1),))


def test_outside_of_tuning_and_in_a_capture_the_first_candidate_runs(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with tuning.tuning():
        assert choose("double", (1, 2), candidates, (torch.zeros(1),)).name == "1"
    assert choose("double", (1, 2), candidates, (torch.zeros(1),)).name == "1"
    assert measured == []
