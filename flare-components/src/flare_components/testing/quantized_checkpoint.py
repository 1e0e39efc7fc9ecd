"""A tiny checkpoint turned into one whose weights are stored in number formats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from flare_components.quant import nvfp4
from flare_components.testing import quantization_config, stored_modules
from flare_components.testing.experts import split_experts
from flare_components.testing.stored_modules import Choice

FORMATS = ("NVFP4", "W4A16_NVFP4", "NVFP4-CSF", "MXFP8", "FP8_BLOCK_SCALES")
"""What a weight can be written as: ModelOpt's names, and NVFP4 with compressed scales. "W4A16" keeps inputs
plain, the others are run with inputs in the same format."""

WEIGHTS = "model.safetensors"


def write_quantized_checkpoint(
    source: Path,
    target: Path,
    formats: Mapping[str, str],
    *,
    producer: str = "modelopt",
    block: tuple[int, int] = (16, 16),
    shared: Sequence[str] = (),
) -> Path:
    """Write the checkpoint `source`, one file in the hub's layout, to `target` with weights in `formats`.

    formats: for a pattern of module names ("*.mlp.experts.*", `*` stands for anything) one of FORMATS; the
    first that matches holds, a module without one stays as it is. Weights have two dimensions; experts that
    are stored together (`experts.gate_up_proj` [E, 2 F, H], `experts.down_proj`) are written one by one as
    `gate_proj`, `up_proj` and `down_proj`. producer: whose names and configuration: "modelopt",
    "compressed-tensors" or "fp8" (which has FP8_BLOCK_SCALES only). block: of FP8_BLOCK_SCALES. shared:
    patterns of modules that have one global scale together, such as the shards of a table.

    Raises ValueError for a pattern that matches no module, or a format that the producer does not have.
    """
    tensors = split_experts(load_file(source / WEIGHTS))
    weights = {
        name.removesuffix(".weight"): tensor
        for name, tensor in tensors.items()
        if name.endswith(".weight") and tensor.ndim == 2
    }
    for pattern in (*formats, *shared):
        if not any(fnmatchcase(module, pattern) for module in weights):
            raise ValueError(f"no weight is matched by {pattern!r}")
    chosen = {module: choice for module in weights if (choice := _chosen(module, formats, block)) is not None}
    for pattern in shared:
        together = [module for module in chosen if fnmatchcase(module, pattern)]
        scale = nvfp4.global_scale(torch.cat([weights[module].flatten() for module in together]))
        chosen |= {module: replace(chosen[module], global_scale=scale) for module in together}
    for module, choice in chosen.items():
        stored = _STORED[producer](tensors.pop(f"{module}.weight"), choice)
        tensors |= {f"{module}.{name}": tensor for name, tensor in stored.items()}
    described = _DESCRIBED[producer](chosen, set(weights) - set(chosen), block)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, target / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = described
    (target / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return target


_STORED = {
    "modelopt": stored_modules.modelopt,
    "compressed-tensors": stored_modules.compressed_tensors,
    "fp8": stored_modules.fp8,
}
_DESCRIBED = {
    "modelopt": quantization_config.modelopt,
    "compressed-tensors": quantization_config.compressed_tensors,
    "fp8": quantization_config.fp8,
}


def _chosen(module: str, formats: Mapping[str, str], block: tuple[int, int]) -> Choice | None:
    for pattern, name in formats.items():
        if fnmatchcase(module, pattern):
            if name not in FORMATS:
                raise ValueError(f"number format {name!r} is none of {', '.join(FORMATS)}")
            return Choice(name.removesuffix("-CSF"), name.endswith("-CSF"), block)
    return None
