"""The tables of what two recipes share say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
import recipe_tables


def test_the_page_is_what_the_recipes_import() -> None:
    page = recipe_tables.PAGE.read_text()
    assert recipe_tables.current(page) == page, "scripts/docs writes them"
    assert {part for part in recipe_tables.TABLES if f"<!-- recipes: {part} -->" in page} == {"shared", "own"}


def test_a_name_stands_where_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "first_sample": "from flare_components.modules import RMSNorm, Gelu\nimport flare.prepare\n",
        "second_sample": "def f():\n    from flare_components.modules.norm import RMSNorm\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "model.py").write_text(f'"""Of\n{name}, a | b.\n\nMore."""\n{text}')
    (tmp_path / "first_sample" / "tables.py").write_text('"""Tables."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(recipe_tables, "RECIPES", {"One": "first_sample", "Two": "second_sample"})
    assert "| `flare_components.modules` | `RMSNorm` | `Gelu` |  |" in recipe_tables.shared().splitlines()
    assert recipe_tables.own().splitlines()[2:] == [
        "| `model` | Of first_sample, a \\| b. | Of second_sample, a \\| b. |",
        "| `tables` | Tables. |  |",
    ]
    with pytest.raises(KeyError):
        recipe_tables.current("<!-- recipes: planted -->\n<!-- end -->")
