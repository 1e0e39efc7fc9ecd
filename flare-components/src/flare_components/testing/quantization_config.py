"""The `quantization_config` that belongs to modules written in number formats, as each producer writes it.

Every function takes what was chosen for each module, the modules that stay plain, and the block of FP8.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

from flare_components.testing.stored_modules import Choice

_GROUPS = {"NVFP4": 16, "W4A16_NVFP4": 16, "MXFP8": 32}


Modules = Mapping[str, Choice]


def modelopt(modules: Modules, plain: Set[str], block: tuple[int, int]) -> dict[str, Any]:
    """Every module's algorithm, experts as one entry. Raises ValueError for a block that is not square."""
    layers: dict[str, dict[str, Any]] = {}
    for module, choice in modules.items():
        size = _GROUPS.get(choice.algorithm, block[0])
        layer: dict[str, Any] = {"quant_algo": choice.algorithm, "group_size": size}
        if choice.compressed:
            layer["weight_scale_encoding"] = "csf"
        layers[collected(module)] = layer
    if block[0] != block[1] and any(choice.algorithm == "FP8_BLOCK_SCALES" for choice in modules.values()):
        raise ValueError("modelopt declares square blocks only")
    return {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
        "ignore": [],
        "producer": {"name": "modelopt", "version": "0.39.0"},
    }


def compressed_tensors(modules: Modules, plain: Set[str], block: tuple[int, int]) -> dict[str, Any]:
    """A group of modules for every algorithm."""
    groups = {}
    for index, algorithm in enumerate(sorted({choice.algorithm for choice in modules.values()})):
        four = algorithm.endswith("NVFP4")
        weights: dict[str, Any] = {"type": "float", "num_bits": 4 if four else 8, "symmetric": True}
        if algorithm == "FP8_BLOCK_SCALES":
            weights |= {"strategy": "block", "block_structure": list(block)}
        else:
            weights |= {"strategy": "tensor_group" if four else "group", "group_size": _GROUPS[algorithm]}
        inputs = None if algorithm == "W4A16_NVFP4" else {"type": "float", "num_bits": weights["num_bits"]}
        targets = {collected(module) for module, choice in modules.items() if choice.algorithm == algorithm}
        groups[f"group_{index}"] = {
            "targets": sorted(targets),
            "weights": weights,
            "input_activations": inputs,
        }
    return {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": groups,
        "ignore": [],
    }


def fp8(modules: Modules, plain: Set[str], block: tuple[int, int]) -> dict[str, Any]:
    """All linear layers but the plain ones."""
    return {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": list(block),
        "modules_to_not_convert": sorted(plain),
    }


def collected(module: str) -> str:
    """ "...experts" for every module of an expert, another module itself."""
    return re.sub(r"(\bexperts)\.\d+\..*", r"\1", module)
