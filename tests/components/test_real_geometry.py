"""One layer of a published 512-expert model by its headers: modules and rules agree in every format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from flare.prepare import (
    Assets,
    Checkpoint,
    TensorInfo,
    TensorMap,
    expert_rules,
    linear_rules,
    read_weight_formats,
)
from flare_components.modules import experts_for, keep_formats

Headers = dict[str, tuple[str, tuple[int, ...]]]

HIDDEN, NUMBER, INNER = 2560, 512, 640
LAYER = "model.layers.0"
# Rows and columns of the projections that are in eight bits in every variant.
PROJECTIONS = {
    "linear_attn.in_proj_qkv": (10240, HIDDEN),
    "linear_attn.in_proj_z": (6144, HIDDEN),
    "linear_attn.out_proj": (HIDDEN, 6144),
    "self_attn.q_proj": (12288, HIDDEN),
    "self_attn.k_proj": (512, HIDDEN),
    "self_attn.v_proj": (512, HIDDEN),
    "self_attn.o_proj": (HIDDEN, 6144),
    "self_attn.indexer.index_qk_proj": (640, HIDDEN),
}
STACKS = {
    "qkvz": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z"),
    "out": ("linear_attn.out_proj",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "index": ("self_attn.indexer.index_qk_proj",),
}


class HeadersOnly(Checkpoint):
    def __init__(self, config: Mapping[str, Any], headers: Headers) -> None:
        self.config = {"quantization_config": config}
        self.tensors = {name: TensorInfo(name, shape, dtype) for name, (dtype, shape) in headers.items()}
        self.assets, self.revision = Assets(), "r"

    def load(self, name: str) -> torch.Tensor:
        raise AssertionError("only headers are read")


def weight(module: str, kind: str, rows: int, columns: int) -> Headers:
    if kind == "fp8":
        grid = math.ceil(rows / 128), math.ceil(columns / 128)
        parts: Headers = {"weight": ("F8_E4M3", (rows, columns)), "weight_scale_inv": ("BF16", grid)}
    elif kind == "mxfp8":
        parts = {"weight": ("F8_E4M3", (rows, columns)), "weight_scale": ("U8", (rows, columns // 32))}
    else:
        parts = {
            "weight": ("U8", (rows, columns // 2)),
            "weight_scale_2": ("F32", ()),
            "input_scale": ("F32", ()),
        }
        if kind == "csf":
            parts["weight_scale.nvfp4_csf_fixed"] = ("U8", (rows // 16, 16 + columns // 2))
            parts["weight_scale.nvfp4_csf_exceptions"] = ("U32", (2,))
        else:
            parts["weight_scale"] = ("F8_E4M3", (rows, columns // 16))
    return {f"{module}.{name}": header for name, header in parts.items()}


def checkpoint(attention: str, experts: str) -> HeadersOnly:
    headers: Headers = {}
    for name, (rows, columns) in PROJECTIONS.items():
        headers |= weight(f"{LAYER}.{name}", attention, rows, columns)
    for expert in range(NUMBER):
        name = f"{LAYER}.mlp.experts.{expert}"
        for part in ("gate_proj", "up_proj"):
            headers |= weight(f"{name}.{part}", experts, INNER, HIDDEN)
        headers |= weight(f"{name}.down_proj", experts, HIDDEN, INNER)
    if attention == "fp8":
        return HeadersOnly({"quant_method": "fp8", "weight_block_size": [128, 128]}, headers)
    layers: dict[str, Any] = {
        f"{LAYER}.{name}": {"quant_algo": "MXFP8", "group_size": 32} for name in PROJECTIONS
    }
    routed = {"quant_algo": "NVFP4", "group_size": 16}
    layers[f"{LAYER}.mlp.experts"] = routed | ({"weight_scale_encoding": "csf"} if experts == "csf" else {})
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    return HeadersOnly(config, headers)


@pytest.mark.parametrize(
    ("attention", "experts", "attention_bits", "expert_bits"),
    [
        ("fp8", "fp8", 8 + 32 / 128**2, 8 + 32 / 128**2),
        ("mxfp8", "nvfp4", 8.25, 4.5),
        ("mxfp8", "csf", 8.25, 4.26),
    ],
)
def test_a_layer_fits_its_modules(
    attention: str, experts: str, attention_bits: float, expert_bits: float
) -> None:
    stored = checkpoint(attention, experts)
    formats = read_weight_formats(stored)
    sources = {target: [f"{LAYER}.{name}" for name in names] for target, names in STACKS.items()}
    with torch.device("meta"):
        layers = {
            target: nn.Linear(
                PROJECTIONS[names[0]][1], sum(PROJECTIONS[name][0] for name in names), bias=False
            )
            for target, names in STACKS.items()
        }
    module = nn.ModuleDict(layers)
    keep_formats(module, formats, sources)
    module["experts"] = experts_for(formats, f"{LAYER}.mlp.experts", NUMBER, HIDDEN, INNER, torch.bfloat16)
    rules = {}
    for target, modules in sources.items():
        rules |= linear_rules(formats, target, modules)
    mapping = TensorMap(rules | expert_rules(formats, "experts", f"{LAYER}.mlp.experts", NUMBER))
    mapping.check(stored)
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    assert shapes == {target: mapping.info(target, stored).shape for target in mapping.rules}

    def bits(names: list[str], elements: int) -> float:
        return (
            8
            * sum(p.nbytes for name, p in module.named_parameters() if name.split(".")[0] in names)
            / elements
        )

    elements = sum(rows * columns for rows, columns in PROJECTIONS.values())
    assert bits(list(STACKS), elements) == pytest.approx(attention_bits, rel=0.01)
    assert bits(["experts"], NUMBER * 3 * INNER * HIDDEN) == pytest.approx(expert_bits, rel=0.01)
