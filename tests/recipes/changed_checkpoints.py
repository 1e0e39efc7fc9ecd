"""Changed copies of a tiny checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

Change = Callable[[dict[str, Any]], None]


def changed_config(source: Path, target: Path, change: Change) -> Path:
    """A copy of checkpoint `source` with another config.json."""
    shutil.copytree(source, target)
    file = target / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))
    return target


def changed_tensors(source: Path, target: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    """A copy of checkpoint `source` with other tensors."""
    shutil.copytree(source, target)
    tensors = load_file(source / "model.safetensors")
    change(tensors)
    file = target / "model.safetensors"
    file.unlink()
    save_file({name: t.contiguous() for name, t in tensors.items()}, file, metadata={"format": "pt"})
    return target
