"""The example recipe, reading weights in number formats: what a recipe adds to serve them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from flare.contract import DType
from flare.prepare import (
    Checkpoint,
    NumberFormat,
    SafetensorsCheckpoint,
    TensorMap,
    WeightFormat,
    WeightFormats,
    linear_rules,
    read_weight_formats,
)
from flare.recipes import BuiltModel, Recipe
from flare_components.modules import keep_formats
from flare_components.quant import fp8_block, mxfp8, nvfp4
from flare_components.testing import write_plain_checkpoint
from flare_components.testing.stored_modules import INPUT_RANGE
from flare_recipe_smollm.loader import LlamaLoader
from flare_recipe_smollm.model import LlamaReplacements
from flare_recipe_smollm.oracle import LlamaOracle
from flare_recipe_smollm.recipe import RECIPE

STACKS = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj": ("self_attn.o_proj",),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": ("mlp.down_proj",),
}


def stacks(config: Any) -> Iterator[tuple[str, list[str]]]:
    """Every linear layer of the served model, and the modules it is stacked of."""
    for index in range(config.num_hidden_layers):
        layer = f"model.layers.{index}"
        for target, parts in STACKS.items():
            yield f"{layer}.{target}", [f"{layer}.{part}" for part in parts]


class PackedLoader(LlamaLoader):
    """Adds the formats to the configuration, and their operands to the map."""

    def config(self, checkpoint: Checkpoint) -> Any:
        config = super().config(checkpoint)
        config.weight_formats = read_weight_formats(checkpoint)
        return config

    def tensor_map(self, config: Any) -> TensorMap:
        mapping = super().tensor_map(config)
        rules = dict(mapping.rules)
        for target, modules in stacks(config):
            del rules[f"{target}.weight"]
            rules |= linear_rules(config.weight_formats, target, modules)
        return TensorMap(rules, mapping.ignored)


class PackedReplacements(LlamaReplacements):
    """Puts the layer for its format in every linear layer's place."""

    def build(self, config: Any, dtype: DType) -> BuiltModel:
        built = super().build(config, dtype)
        keep_formats(built.module, config.weight_formats, dict(stacks(config)))
        return built


class PackedOracle(LlamaOracle):
    """Transformers' model with what the codes stand for, its inputs rounded where the checkpoint says so."""

    def __init__(self, plain: Path, stored: Callable[[str], str] = str) -> None:
        self.plain = plain
        self.stored = stored  # the checkpoint's name of a module of Transformers

    def reference(self, checkpoint: Checkpoint, dtype: DType) -> nn.Module:
        model = super().reference(SafetensorsCheckpoint(self.plain), dtype)
        formats: WeightFormats = read_weight_formats(checkpoint)
        for name, module in model.named_modules():
            if (
                isinstance(module, nn.Linear)
                and (found := formats.of(self.stored(name)))
                and found.quantized_input
            ):
                module.register_forward_pre_hook(lambda _, args, found=found: (rounded(args[0], found),))
        return model


def rounded(x: Tensor, found: WeightFormat) -> Tensor:
    """Inputs [..., C] as the format represents them."""
    if found.number is NumberFormat.NVFP4:
        return nvfp4.decode(nvfp4.encode(x, torch.tensor(INPUT_RANGE / (6 * 448)))).to(x.dtype)
    if found.number is NumberFormat.MXFP8:
        return mxfp8.decode(mxfp8.encode(x)).to(x.dtype)
    return fp8_block.decode(fp8_block.encode(x, (1, found.block[1]))).to(x.dtype)


def packed_recipe(stored: Path) -> Recipe:
    """The recipe for the checkpoint `stored`; its decoded twin is written beside it."""
    plain = write_plain_checkpoint(stored, stored.with_name(f"{stored.name}-plain"))
    return replace(
        RECIPE, loader=PackedLoader(), replacements=PackedReplacements(), oracle=PackedOracle(plain)
    )
