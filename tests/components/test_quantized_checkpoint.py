"""Checkpoints in every format: written, read by rules into modules, and equal to what their codes stand
for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from flare.errors import CheckpointError
from flare.prepare import (
    NumberFormat,
    SafetensorsCheckpoint,
    TensorMap,
    TensorRule,
    expert_rules,
    linear_rules,
    read_weight_formats,
    shard_rules,
)
from flare_components.modules import experts_for, linear_for
from flare_components.testing import (
    FORMATS,
    split_experts,
    write_plain_checkpoint,
    write_quantized_checkpoint,
)
from flare_components.testing.stored_modules import INPUT_RANGE

LAYER = "model.layers.0"
EXPERTS, HIDDEN, INNER = 4, 64, 32
PRODUCERS = [
    *(("modelopt", name) for name in FORMATS),
    *(("compressed-tensors", name) for name in FORMATS if name != "NVFP4-CSF"),
    ("fp8", "FP8_BLOCK_SCALES"),
]
NUMBERS = {"MXFP8": NumberFormat.MXFP8, "FP8_BLOCK_SCALES": NumberFormat.FP8_BLOCK}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    directory = tmp_path / "source"
    directory.mkdir()
    tensors = {
        f"{LAYER}.self_attn.q_proj.weight": torch.randn(64, HIDDEN),
        f"{LAYER}.self_attn.k_proj.weight": torch.randn(32, HIDDEN) * 3,
        f"{LAYER}.self_attn.q_proj.bias": torch.randn(64),
        f"{LAYER}.self_attn.k_proj.bias": torch.randn(32),
        f"{LAYER}.mlp.gate.weight": torch.randn(EXPERTS, HIDDEN),
        f"{LAYER}.mlp.experts.gate_up_proj": torch.randn(EXPERTS, 2 * INNER, HIDDEN) * 0.1,
        f"{LAYER}.mlp.experts.down_proj": torch.randn(EXPERTS, HIDDEN, INNER) * 0.1,
        f"{LAYER}.norm.weight": torch.randn(HIDDEN),
    }
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps({"hidden_size": HIDDEN}))
    (directory / "tokenizer.json").write_text("{}")
    return directory


def written(source: Path, producer: str, name: str) -> SafetensorsCheckpoint:
    # Only experts have compressed scales.
    formats = {"*.mlp.experts.*": name, "*_proj": "NVFP4" if name == "NVFP4-CSF" else name}
    target = source.parent / "stored"
    write_quantized_checkpoint(source, target, formats, producer=producer)
    assert (target / "tokenizer.json").exists()
    return SafetensorsCheckpoint(target)


def rules(checkpoint: SafetensorsCheckpoint) -> dict[str, TensorRule]:
    formats = read_weight_formats(checkpoint)
    modules = [f"{LAYER}.self_attn.{part}_proj" for part in "qk"]
    return {
        **linear_rules(formats, "qk", modules, bias=True),
        **linear_rules(formats, "gate", [f"{LAYER}.mlp.gate"]),
        **expert_rules(formats, "experts", f"{LAYER}.mlp.experts", EXPERTS),
        "norm": TensorRule((f"{LAYER}.norm.weight",)),
    }


def filled(module: nn.Module, name: str, mapping: TensorMap, checkpoint: SafetensorsCheckpoint) -> nn.Module:
    """`module` with the tensors of `mapping` under `name`: every one of its own, of its type and shape."""
    own = dict(module.named_parameters())
    assert {f"{name}.{key}" for key in own} == {key for key in mapping.rules if key.startswith(f"{name}.")}
    for key, parameter in own.items():
        tensor = mapping.assemble(f"{name}.{key}", checkpoint)
        assert tensor.shape == parameter.shape, key
        if tensor.dtype != parameter.dtype:
            assert (tensor.is_floating_point(), parameter.dtype) == (True, torch.float32), key
        owner, _, last = key.rpartition(".")
        holder = module.get_submodule(owner)
        setattr(holder, last, nn.Parameter(tensor.to(parameter.dtype), requires_grad=False))
    return module


def stored_plainly(checkpoint: SafetensorsCheckpoint, source: Path) -> Mapping[str, Tensor]:
    write_plain_checkpoint(source.parent / "stored", source.parent / "plain")
    config = json.loads((source.parent / "plain" / "config.json").read_text())
    assert config == {"hidden_size": HIDDEN}
    return load_file(source.parent / "plain" / "model.safetensors")


@pytest.mark.parametrize(("producer", "name"), PRODUCERS)
def test_every_format_is_read_as_it_was_written(source: Path, producer: str, name: str) -> None:
    checkpoint = written(source, producer, name)
    mapping = TensorMap(rules(checkpoint))
    mapping.check(checkpoint)  # nothing is left over
    formats = read_weight_formats(checkpoint)
    for module in (f"{LAYER}.self_attn.q_proj", f"{LAYER}.mlp.experts.2.down_proj"):
        found = formats.of(module)
        assert found is not None
        assert found.number == NUMBERS.get(name, NumberFormat.NVFP4)
        assert found.quantized_input == (name != "W4A16_NVFP4")
        assert found.compressed == (name == "NVFP4-CSF" and "experts" in module)


@pytest.mark.parametrize(("producer", "name"), [p for p in PRODUCERS if p[1] != "NVFP4-CSF"])
def test_linear_layers_multiply_by_what_is_stored(source: Path, producer: str, name: str) -> None:
    checkpoint = written(source, producer, name)
    formats = read_weight_formats(checkpoint)
    found = formats.shared([f"{LAYER}.self_attn.{part}_proj" for part in "qk"])
    layer = filled(
        linear_for(found, HIDDEN, 96, torch.float32, bias=True),
        "qk",
        TensorMap(rules(checkpoint)),
        checkpoint,
    )
    plain = stored_plainly(checkpoint, source)
    weight = torch.cat([plain[f"{LAYER}.self_attn.{part}_proj.weight"] for part in "qk"]).double()
    bias = torch.cat([plain[f"{LAYER}.self_attn.{part}_proj.bias"] for part in "qk"]).double()
    original = load_file(source / "model.safetensors")[f"{LAYER}.self_attn.q_proj.weight"]
    assert 0 < float((weight[:64] - original).abs().max()) < 0.5 * float(original.abs().max())
    # Inputs that are exact in every format, so that rounding them changes nothing.
    x = torch.randint(-1, 2, (5, HIDDEN)) * (
        256 / 448 * torch.tensor(INPUT_RANGE) if "NVFP4" in name else 1.0
    )
    expected = (x.double() @ weight.T + bias).float()
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("producer", "name"), PRODUCERS)
def test_experts_multiply_by_what_is_stored(source: Path, producer: str, name: str) -> None:
    checkpoint = written(source, producer, name)
    formats = read_weight_formats(checkpoint)
    module = experts_for(formats, f"{LAYER}.mlp.experts", EXPERTS, HIDDEN, INNER, torch.float32)
    filled(module, "experts", TensorMap(rules(checkpoint)), checkpoint)
    plain = stored_plainly(checkpoint, source)
    x, weights = torch.randn(6, HIDDEN), torch.rand(6, 2)
    chosen = torch.stack([torch.randperm(EXPERTS)[:2] for _ in range(6)]).int()
    expected = torch.zeros(6, HIDDEN)
    for row, lane in enumerate(chosen.tolist()):
        for place, expert in enumerate(lane):
            gate, up, down = (
                plain[f"{LAYER}.mlp.experts.{expert}.{p}_proj.weight"] for p in ("gate", "up", "down")
            )
            inner = torch.nn.functional.silu(gate @ x[row]) * (up @ x[row])
            expected[row] += weights[row, place] * (down @ inner)
    error = float((module(x, weights, chosen) - expected).norm() / expected.norm())
    if name == "W4A16_NVFP4":
        assert error < 1e-5
    else:  # inputs are rounded as well: by up to 1/16 of themselves in eight bits, 1/4 in four
        assert 1e-4 < error < (0.3 if name.startswith("NVFP4") else 0.08)


def test_plain_experts_are_read_together_or_one_by_one(source: Path) -> None:
    checkpoint = SafetensorsCheckpoint(source)
    mapping = TensorMap(rules(checkpoint))
    mapping.check(checkpoint)
    whole = mapping.assemble("experts.gate_up", checkpoint)
    tensors = load_file(source / "model.safetensors")
    (source.parent / "split").mkdir()
    save_file(
        {n: t.contiguous() for n, t in split_experts(tensors).items()},
        source.parent / "split/model.safetensors",
    )
    (source.parent / "split/config.json").write_text("{}")
    split = SafetensorsCheckpoint(source.parent / "split")
    mapping = TensorMap(rules(split))
    mapping.check(split)
    assert torch.equal(mapping.assemble("experts.gate_up", split), whole)
    for found in (checkpoint, split):
        formats = read_weight_formats(found)
        module = experts_for(formats, f"{LAYER}.mlp.experts", EXPERTS, HIDDEN, INNER, torch.float32)
        filled(module, "experts", mapping if found is split else TensorMap(rules(checkpoint)), found)
        assert torch.equal(module.gate_up, whole)
        assert module(torch.randn(2, HIDDEN), torch.ones(2, 1), torch.zeros(2, 1).int()).shape == (2, HIDDEN)


def test_the_writer_refuses_what_it_cannot_write(source: Path, tmp_path: Path) -> None:
    for formats, producer, complaint in (
        ({"*.nothing": "MXFP8"}, "modelopt", "no weight is matched by"),
        ({"*": "INT4"}, "modelopt", "'INT4' is none of"),
        ({"*_proj": "MXFP8"}, "fp8", "producer fp8 has no MXFP8"),
        ({"*_proj": "NVFP4-CSF"}, "compressed-tensors", "no compressed scales"),
    ):
        with pytest.raises(ValueError, match=complaint):
            write_quantized_checkpoint(source, tmp_path / "out", formats, producer=producer)
        assert not (tmp_path / "out").exists()


def test_experts_of_different_formats_are_refused(source: Path) -> None:
    formats = {"*.down_proj": "MXFP8", "*.mlp.experts.*": "W4A16_NVFP4"}
    write_quantized_checkpoint(source, source.parent / "stored", formats, producer="compressed-tensors")
    checkpoint = SafetensorsCheckpoint(source.parent / "stored")
    with pytest.raises(CheckpointError, match="experts"):
        experts_for(
            read_weight_formats(checkpoint), f"{LAYER}.mlp.experts", EXPERTS, HIDDEN, INNER, torch.float32
        )


def test_linear_layers_with_compressed_scales_are_refused(source: Path) -> None:
    write_quantized_checkpoint(source, source.parent / "stored", {"*_proj": "NVFP4-CSF"})
    with pytest.raises(CheckpointError, match="served for routed experts only"):
        rules(SafetensorsCheckpoint(source.parent / "stored"))


@pytest.mark.parametrize("name", ["W4A16_NVFP4", None])
def test_rows_of_a_sharded_table(tmp_path: Path, name: str | None) -> None:
    torch.manual_seed(0)
    source, shards = tmp_path / "source", [f"grams.shard_{index}" for index in range(3)]
    source.mkdir()
    table = torch.randn(24, 32) * torch.logspace(-1, 1, 24).unsqueeze(1)
    parts = {f"{shard}.weight": part.clone() for shard, part in zip(shards, table.split(8), strict=True)}
    save_file(parts, source / "model.safetensors")
    (source / "config.json").write_text("{}")
    if name is not None:
        source = write_quantized_checkpoint(
            source, tmp_path / "stored", {"grams.*": name}, shared=["grams.shard_*"]
        )
    checkpoint = SafetensorsCheckpoint(source)
    rule, rules = shard_rules(read_weight_formats(checkpoint), "grams", shards)
    mapping = TensorMap(rules, tables={"tables/grams": rule})
    mapping.check(checkpoint)
    rows, row_bytes = rule.shape(checkpoint)
    stored = torch.frombuffer(bytearray(b"".join(rule.pieces(checkpoint))), dtype=torch.uint8)
    delivered = stored.view(rows, row_bytes)
    if name is None:
        assert torch.equal(delivered.view(torch.float32), table)
        return
    assert (rows, row_bytes) == (24, 18)
    scale = mapping.assemble("grams.global_scale", checkpoint)
    values = torch.ops.flare.nvfp4_rows(delivered, scale, torch.float32)
    write_plain_checkpoint(source, tmp_path / "plain")
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    assert torch.equal(values, torch.cat([plain[f"{shard}.weight"] for shard in shards]))
    assert float((values - table).norm() / table.norm()) < 0.15


def test_shards_with_scales_of_their_own_and_other_formats_are_refused(tmp_path: Path) -> None:
    source, shards = tmp_path / "source", ["grams.shard_0", "grams.shard_1"]
    source.mkdir()
    parts = {f"{shard}.weight": torch.randn(8, 32) * (index + 1) for index, shard in enumerate(shards)}
    save_file(parts, source / "model.safetensors")
    (source / "config.json").write_text("{}")
    for name, complaint in (("W4A16_NVFP4", "scales differ"), ("MXFP8", "tables of MXFP8 are not served")):
        checkpoint = SafetensorsCheckpoint(
            write_quantized_checkpoint(source, tmp_path / name, {"grams.*": name})
        )
        formats = read_weight_formats(checkpoint)
        with pytest.raises(CheckpointError, match=complaint):
            TensorMap(shard_rules(formats, "g", shards)[1]).assemble("g.global_scale", checkpoint)
