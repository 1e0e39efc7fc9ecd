"""The GLM recipe as a package: complete, its parts listed, its tiny checkpoint written by a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import flare_recipe_glm
from flare.prepare import SafetensorsCheckpoint
from flare.testing import check_recipe
from flare_recipe_glm.tiny import FORMATS


def test_the_package_is_complete() -> None:
    check_recipe(flare_recipe_glm)


@pytest.mark.parametrize("name", ["bf16", *FORMATS])
def test_a_tiny_checkpoint_is_written_by_a_command(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-m", "flare_recipe_glm.tiny", str(tmp_path / "made"), "--format", name]
    subprocess.run(command, check=True, capture_output=True)
    config = json.loads((tmp_path / "made" / "config.json").read_text())
    assert config["model_type"] == "glm5_next"
    assert ("quantization_config" in config) == (name in FORMATS)
    stored = SafetensorsCheckpoint(tmp_path / "made").tensors
    assert stored["model.language_model.layers.0.self_attn.A_log"].dtype == "F32"
    assert (stored["lm_head.weight"].dtype == "BF16") == (name == "bf16")
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists" in again.stderr
