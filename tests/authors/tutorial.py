"""The commands and the code that docs/recipe-tutorial.md shows."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "recipe-tutorial.md"
NAME = "my-model"

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """Language, title and text of every block."""
    return _BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def commands() -> list[str]:
    """Every command, in order."""
    return [line for language, _, text in blocks() if language == "sh" for line in text.splitlines()]
