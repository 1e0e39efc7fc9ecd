"""Shared code knows no model."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLARE = ROOT / "flare-core/src"
COMPONENTS = ROOT / "flare-components/src"
MODEL_NAMES = re.compile(
    r"llama|smollm|qwen|glm|deepseek|mistral|mixtral|gemma|phi[-_]?[0-9]|gpt[-_]?oss|kimi|minimax|falcon|olmo",
    re.IGNORECASE,
)
FLAGS = re.compile(r"\b(supports|can)_[a-z_]+")
RECIPE = ROOT / "examples/flare-recipe-smollm/src/flare_recipe_smollm/model.py"
FILES = sorted(file for tree in (FLARE, COMPONENTS) for file in tree.rglob("*.py"))


def code(file: Path) -> str:
    """The file without comments (documentation may say where an algorithm was published)."""
    kept = []
    for token in tokenize.generate_tokens(io.StringIO(file.read_text()).readline):
        if token.type != tokenize.COMMENT:
            kept.append(token.string)
    return "\n".join(kept)


@pytest.mark.parametrize("pattern", [MODEL_NAMES, FLAGS], ids=["model names", "flags"])
def test_shared_code_has_none(pattern: re.Pattern[str]) -> None:
    assert len(FILES) > 100
    found = {
        str(file.relative_to(ROOT)): sorted({match.group(0) for match in pattern.finditer(code(file))})
        for file in FILES
    }
    assert {name: words for name, words in found.items() if words} == {}


def test_the_search_finds_names_where_they_belong() -> None:
    assert MODEL_NAMES.search(code(RECIPE))
    assert FLAGS.search("if self.supports_windows:")
    assert FLAGS.search("can_speculate = True")
