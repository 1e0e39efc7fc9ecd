"""Routed experts in every number format, from checkpoint bytes to served tokens.

A feed-forward layer is the sum of its slices: rows of gate and up, columns of down. The tiny model's are
stored as experts that every row is routed to with weight one; Transformers' dense model stays the reference.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_recipe import PackedOracle
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flare.contract import DType, Region
from flare.corefile import CoreReader, read_contract
from flare.prepare import Checkpoint, TensorMap, expert_rules, read_weight_formats, serving_dtype
from flare.recipes import BuiltModel, Recipe
from flare.testing import check_chunks, round_trip
from flare_components.modules import experts_for
from flare_components.testing import FORMATS, write_plain_checkpoint, write_quantized_checkpoint
from flare_recipe_smollm.loader import LlamaLoader
from flare_recipe_smollm.model import LlamaReplacements
from flare_recipe_smollm.recipe import RECIPE

NUMBER = 3
MLP = "model.layers.{}.mlp"


class AllExperts(nn.Module):
    """Every row to every expert, with weight one; padding lanes as well."""

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.zeros_like(x[:, :NUMBER], dtype=torch.int32)
        chosen = rows + torch.arange(NUMBER, dtype=torch.int32, device=x.device)
        return self.experts(x, torch.ones_like(x[:, :NUMBER], dtype=torch.float32), chosen)


class ExpertLoader(LlamaLoader):
    def config(self, checkpoint: Checkpoint) -> Any:
        config = super().config(checkpoint)
        config.weight_formats = read_weight_formats(checkpoint)
        return config

    def tensor_map(self, config: Any) -> TensorMap:
        rules = {name: rule for name, rule in super().tensor_map(config).rules.items() if ".mlp." not in name}
        for index in range(config.num_hidden_layers):
            experts = f"{MLP.format(index)}.experts"
            rules |= expert_rules(config.weight_formats, experts, experts, NUMBER)
        return TensorMap(rules, super().tensor_map(config).ignored)


class ExpertReplacements(LlamaReplacements):
    def build(self, config: Any, dtype: DType) -> BuiltModel:
        built = super().build(config, dtype)
        for index, layer in enumerate(built.module.model.layers):
            inner = config.intermediate_size // NUMBER
            name = f"{MLP.format(index)}.experts"
            dtype_of_x = serving_dtype(dtype)
            experts = experts_for(config.weight_formats, name, NUMBER, config.hidden_size, inner, dtype_of_x)
            layer.mlp = AllExperts(experts)
        return built


def sliced(source: Path, target: Path) -> Path:
    """The tiny checkpoint with its feed-forward layers as experts, stored together."""
    tensors = load_file(source / "model.safetensors")
    for index in range(2):
        name = MLP.format(index)
        gate, up, down = (tensors.pop(f"{name}.{part}_proj.weight") for part in ("gate", "up", "down"))
        pairs = zip(gate.chunk(NUMBER), up.chunk(NUMBER), strict=True)
        tensors[f"{name}.experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in pairs])
        tensors[f"{name}.experts.down_proj"] = torch.stack(down.chunk(NUMBER, 1))
    target.mkdir()
    for file in source.glob("*.json"):
        (target / file.name).write_bytes(file.read_bytes())
    save_file(tensors, target / "model.safetensors")
    return target


def joined(plain: Path) -> Path:
    """A decoded checkpoint with its experts as feed-forward layers again."""
    tensors = load_file(plain / "model.safetensors")
    for index in range(2):
        name = MLP.format(index)
        for part, dim in (("gate", 0), ("up", 0), ("down", 1)):
            slices = [tensors.pop(f"{name}.experts.{expert}.{part}_proj.weight") for expert in range(NUMBER)]
            tensors[f"{name}.{part}_proj.weight"] = torch.cat(slices, dim)
    save_file(tensors, plain / "model.safetensors")
    return plain


def served(tiny_checkpoint: Path, folder: Path, name: str) -> tuple[Recipe, Path]:
    """The recipe for the tiny checkpoint with experts in format `name`, and that checkpoint."""
    together = sliced(tiny_checkpoint, folder / "sliced")
    stored = write_quantized_checkpoint(together, folder / "stored", {"*.experts.*": name})
    return recipe_for(stored), stored


def recipe_for(stored: Path) -> Recipe:
    """The recipe for `stored`; its decoded twin is written beside it."""
    plain = joined(write_plain_checkpoint(stored, stored.with_name("plain")))
    oracle = PackedOracle(plain, lambda name: name.replace(".mlp.", ".mlp.experts.0."))
    return replace(RECIPE, loader=ExpertLoader(), replacements=ExpertReplacements(), oracle=oracle)


@pytest.mark.parametrize("name", FORMATS)
def test_a_model_is_served_with_experts_in_a_number_format(
    tiny_checkpoint: Path, tmp_path: Path, name: str
) -> None:
    recipe, stored = served(tiny_checkpoint, tmp_path, name)
    core = round_trip(recipe, stored, tmp_path / "core.safetensors")
    with CoreReader(core) as reader:
        weights = [b for b in read_contract(reader).buffers if b.region is Region.WEIGHTS]
    types = {b.name.rpartition("experts.")[2]: b.dtype for b in weights if "experts" in b.name}
    assert types["gate_up_codes"] == (DType.U8 if "NVFP4" in name else DType.F8_E4M3)
    assert ("down_exceptions" in types) == (name == "NVFP4-CSF")
    if name == "NVFP4-CSF":
        assert (types["down_exceptions"], types["down_starts"]) == (DType.U32, DType.I32)
    if name == "W4A16_NVFP4":  # inputs are plain: every sum differs from Transformers' by rounding alone
        assert 0 < check_chunks(core, recipe, stored) < 1e-4


def test_without_exceptions_a_stream_is_empty(tiny_checkpoint: Path, tmp_path: Path) -> None:
    together = sliced(tiny_checkpoint, tmp_path / "even")
    tensors = load_file(together / "model.safetensors")
    for name, tensor in tensors.items():
        if "experts" in name:
            # Magnitudes between one and two: all block scales of a matrix are within sixteen codes.
            tensors[name] = tensor.sign() * (1 + tensor.abs() % 1) * 0.1
    save_file(tensors, together / "model.safetensors")
    stored = write_quantized_checkpoint(together, tmp_path / "stored", {"*.experts.*": "NVFP4-CSF"})
    core = round_trip(recipe_for(stored), stored, tmp_path / "core.safetensors")
    with CoreReader(core) as reader:
        buffers = {b.name: b.shape for b in read_contract(reader).buffers}
    assert buffers["weights/model.layers.0.mlp.experts.gate_up_exceptions"] == (0,)
