"""docs/symptoms.md: every symptom is held by a test, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "symptoms.md"
HEADS = {"symptom", "---"}


def rows(page: str) -> list[list[str]]:
    """Cells of the tables, without their heads."""
    lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    return [cells for cells in lines if cells[0] not in HEADS]


@cache
def functions(path: Path) -> frozenset[str]:
    """Tests of a module."""
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def problems(page: str) -> list[str]:
    """Symptoms that no test holds, and tests that do not exist."""
    found = []
    for symptom, *_, held in rows(page):
        named = re.findall(r"`([^`]+)`", held)
        if not named:
            found.append(f"nothing holds: {symptom}")
        for test in named:
            path, _, name = test.partition("::")
            if not (TESTS / path).is_file() or name not in functions(TESTS / path):
                found.append(f"does not exist: {test}")
    return found


def test_every_symptom_is_held_by_a_test_that_exists() -> None:
    assert problems(PAGE.read_text()) == []


def test_a_test_that_is_gone_is_found() -> None:
    """And a symptom without one, and a module."""
    page = PAGE.read_text()
    assert problems(page.replace("::test_recorded_turns", "::test_gone"))
    assert problems(page.replace("server/test_reasoning.py", "server/test_gone.py"))
    assert problems(re.sub(r"`frontend/test_output_cuts[^`]+`", "", page)) == [
        "nothing holds: A call that is cut in two at the wrong place loses its arguments"
    ]


def test_symptoms_are_told_once() -> None:
    symptoms = [cells[0] for cells in rows(PAGE.read_text())]
    assert len(symptoms) == len(set(symptoms)) > 30


def test_the_variable_of_a_client_is_named() -> None:
    """Where clients are set up: what leaves out a part of the prompt that changes with every request."""
    setup = (PAGE.parent / "agents.md").read_text()
    assert "`CLAUDE_CODE_ATTRIBUTION_HEADER=0`" in setup
