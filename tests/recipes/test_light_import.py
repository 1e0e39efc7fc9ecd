"""Listing recipes must stay cheap: nothing heavy is imported, whatever is installed."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "transformers", "tokenizers", "huggingface_hub", "gguf", "flare_components"}


def modules_after(code: str) -> set[str]:
    report = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


def test_importing_the_room() -> None:
    loaded = modules_after("import flare.recipes")
    assert "pluggy" in loaded
    assert not loaded & HEAVY


def test_listing_the_installed_recipes() -> None:
    loaded = modules_after("from flare.recipes import discover\nassert discover().find_model('smollm2-135m')")
    assert "flare_recipe_smollm" in loaded
    assert not loaded & HEAVY


def test_choosing_a_checkpoint_source() -> None:
    loaded = modules_after("from flare.prepare.sources import resolve_checkpoint")
    assert "rich" not in loaded  # nothing is shown before there is something to show
    assert not loaded & HEAVY
