"""The Qwen recipe as a package: complete, its prompts those of Transformers, its parts listed."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import flare_recipe_qwen
from flare.corefile import CoreReader, read_contract
from flare.testing import check_prompts, check_recipe
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE


def test_the_package_is_complete() -> None:
    check_recipe(flare_recipe_qwen)


def test_prompts_are_those_of_transformers(flare_tiny_checkpoint: TinyCheckpoints) -> None:
    check_prompts(RECIPE, flare_tiny_checkpoint(RECIPE))


def test_inspect_lists_what_is_retained_and_replaced(qwen_core: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "flare", "inspect", str(qwen_core)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    ).stdout
    with CoreReader(qwen_core) as reader:
        provenance = read_contract(reader).provenance
    assert "torch.nn.modules.sparse.Embedding" in provenance.retained_modules
    assert any(name.endswith("Qwen4ExpVisionBlock") for name in provenance.retained_modules)
    assert len(provenance.replaced_modules) == 11
    assert "256 patches each, 256 tokens per request" in said
    for name in (*provenance.retained_modules, *provenance.replaced_modules):
        assert name in said


def test_a_tiny_checkpoint_is_written_by_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: another one would import Transformers for seconds."""
    monkeypatch.setattr(sys, "argv", ["tiny", str(tmp_path / "made")])
    runpy.run_module("flare_recipe_qwen.tiny", run_name="__main__")
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert config["model_type"] == "qwen4_exp"
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("flare_recipe_qwen.tiny", run_name="__main__")
    assert "exists" in capsys.readouterr().err
