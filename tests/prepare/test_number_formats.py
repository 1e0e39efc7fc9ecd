"""Quantization configurations of every producer, compared with headers; what is not served is named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from flare.errors import CheckpointError
from flare.prepare import Assets, Checkpoint, NumberFormat, TensorInfo, WeightFormats, read_weight_formats

PREFIX = "model.layers.0"


class Headers(Checkpoint):
    """A checkpoint of which only configuration and headers are looked at."""

    def __init__(self, config: Mapping[str, Any] | None, tensors: Mapping[str, str]) -> None:
        self.config = {} if config is None else {"quantization_config": config}
        self.tensors = {name: TensorInfo(name, (4, 4), dtype) for name, dtype in tensors.items()}
        self.assets, self.revision = Assets(), "r"

    def load(self, name: str) -> torch.Tensor:
        raise AssertionError("only headers are read")


def nvfp4(module: str, inputs: bool = True) -> dict[str, str]:
    tensors = {"weight": "U8", "weight_scale": "F8_E4M3", "weight_scale_2": "F32"}
    tensors |= {"input_scale": "F32"} if inputs else {}
    return {f"{module}.{name}": dtype for name, dtype in tensors.items()}


def compressed(module: str) -> dict[str, str]:
    tensors = nvfp4(module)
    del tensors[f"{module}.weight_scale"]
    return tensors | {
        f"{module}.weight_scale.nvfp4_csf_fixed": "U8",
        f"{module}.weight_scale.nvfp4_csf_exceptions": "U32",
    }


def mxfp8(module: str, scale: str = "U8") -> dict[str, str]:
    return {f"{module}.weight": "F8_E4M3", f"{module}.weight_scale": scale}


def block(module: str, name: str = "weight_scale_inv", scale: str = "F32") -> dict[str, str]:
    return {f"{module}.weight": "F8_E4M3", f"{module}.{name}": scale}


def plain(module: str) -> dict[str, str]:
    return {f"{module}.weight": "BF16"}


def mixed(**layers: dict[str, Any]) -> dict[str, Any]:
    named = {f"{PREFIX}.{name.replace('__', '.')}": layer for name, layer in layers.items()}
    return {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": named,
        "ignore": [],
    }


def formats(config: Mapping[str, Any] | None, tensors: Mapping[str, str]) -> WeightFormats:
    return read_weight_formats(Headers(config, tensors))


def test_layers_of_mixed_precision() -> None:
    expert, attention, gate = f"{PREFIX}.mlp.experts.3.up_proj", f"{PREFIX}.attn.q_proj", f"{PREFIX}.mlp.gate"
    shared = f"{PREFIX}.mlp.shared_expert.up_proj"
    config = mixed(
        mlp__experts={"quant_algo": "NVFP4", "group_size": 16},
        mlp__shared_expert__up_proj={"quant_algo": "W4A16_NVFP4", "group_size": 16},
        attn__q_proj={"quant_algo": "MXFP8", "group_size": 32},
    )
    found = formats(config, nvfp4(expert) | nvfp4(shared, False) | mxfp8(attention) | plain(gate))
    first, second, third = found.of(expert), found.of(attention), found.of(shared)
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.number, first.block, first.quantized_input) == (NumberFormat.NVFP4, (1, 16), True)
    assert (second.number, second.block, second.quantized_input) == (NumberFormat.MXFP8, (1, 32), True)
    assert (third.number, third.quantized_input, third.compressed) == (NumberFormat.NVFP4, False, False)
    assert (first.names.global_scale, first.names.reciprocal) == ("weight_scale_2", False)
    assert found.of(gate) is None
    assert found.of(f"{PREFIX}.mlp.experts_of_another_kind") is None


def test_compressed_scales() -> None:
    experts = [f"{PREFIX}.mlp.experts.{index}.up_proj" for index in range(3)]
    layer = {"quant_algo": "NVFP4", "group_size": 16, "weight_scale_encoding": "csf"}
    config = mixed(mlp__experts=layer)
    found = formats(config, {name: dtype for module in experts for name, dtype in compressed(module).items()})
    shared = found.shared(experts)
    assert shared is not None
    assert shared.compressed
    assert found.exceptions(experts) == 12
    for tensors, other in (
        (nvfp4(experts[0]), config),
        (compressed(experts[0]), mixed(mlp__experts={**layer, "weight_scale_encoding": None})),
    ):
        with pytest.raises(CheckpointError, match="compressed scales, but others are stored"):
            formats(other, tensors).of(experts[0])


@pytest.mark.parametrize("scale", ["F32", "BF16", "F8_E8M0"])
@pytest.mark.parametrize("name", ["weight_scale_inv", "weight_scale", "scale"])
def test_blocks_for_every_linear_layer_but_some(scale: str, name: str) -> None:
    up, head, router, odd = (
        f"{PREFIX}.mlp.up_proj",
        "lm_head",
        f"{PREFIX}.mlp.gate",
        f"{PREFIX}.mlp.gate_proj",
    )
    config = {
        "quant_method": "fp8",
        "weight_block_size": [128, 64],
        "activation_scheme": "dynamic",
        "modules_to_not_convert": ["lm_head", "mlp.gate"],
    }
    tensors = block(up, name, scale) | block(odd, name, scale) | plain(head) | plain(router)
    found = formats(config, tensors | plain("model.norm"))
    for module in (up, odd):
        given = found.of(module)
        assert given is not None
        assert (given.number, given.block, given.quantized_input) == (NumberFormat.FP8_BLOCK, (128, 64), True)
        assert given.names.scales == name
    assert [found.of(module) for module in (head, router, "model.norm")] == [None] * 3
    with pytest.raises(CheckpointError, match="names no number format for it, but weight has scales"):
        formats(config, block(router)).of(router)


def test_one_algorithm_for_all_and_patterns_that_are_excepted() -> None:
    up, router, query = f"{PREFIX}.mlp.up_proj", f"{PREFIX}.mlp.gate", f"{PREFIX}.self_attn.q_proj"
    config = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["*.mlp.gate", "*.self_attn*", "lm_head"],
    }
    found = formats(config, nvfp4(up) | plain(router) | plain(query) | plain("lm_head") | plain("model.norm"))
    assert found.of(up) is not None
    assert [found.of(module) for module in (router, query, "lm_head", "model.norm")] == [None] * 4


GROUPS = {
    "quant_method": "compressed-tensors",
    "format": "mixed-precision",
    "ignore": ["lm_head", "re:.*mlp.gate$"],
    "config_groups": {
        "group_0": {
            "targets": ["re:.*mlp\\.experts\\..*"],
            "weights": {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16},
            "input_activations": {"type": "float", "num_bits": 4, "dynamic": "local"},
        },
        "group_1": {
            "targets": [f"{PREFIX}.self_attn.q_proj"],
            "weights": {"type": "float", "num_bits": 8, "strategy": "group", "group_size": 32},
            "input_activations": None,
        },
        "group_plain": {"targets": [f"{PREFIX}.router"], "weights": None, "input_activations": None},
        "group_2": {
            "targets": ["Linear"],
            "weights": {"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [64, 128]},
            "input_activations": {"type": "float", "num_bits": 8, "dynamic": True},
        },
    },
}


def packed(module: str) -> dict[str, str]:
    names = {
        "weight_packed": "U8",
        "weight_scale": "F8_E4M3",
        "weight_global_scale": "F32",
        "input_global_scale": "F32",
    }
    return {f"{module}.{name}": dtype for name, dtype in names.items()}


def test_groups_by_pattern_name_and_class() -> None:
    expert, query, down = (
        f"{PREFIX}.mlp.experts.1.up_proj",
        f"{PREFIX}.self_attn.q_proj",
        f"{PREFIX}.mlp.down_proj",
    )
    tensors = packed(expert) | mxfp8(query, "F8_E8M0") | block(down, "weight_scale") | plain("lm_head")
    found = formats(GROUPS, tensors | plain(f"{PREFIX}.mlp.gate"))
    first, second, third = found.of(expert), found.of(query), found.of(down)
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.number, first.quantized_input, first.names.reciprocal) == (NumberFormat.NVFP4, True, True)
    assert (first.names.codes, first.names.global_scale) == ("weight_packed", "weight_global_scale")
    assert (second.number, second.quantized_input) == (NumberFormat.MXFP8, False)
    assert (third.number, third.block, third.quantized_input) == (NumberFormat.FP8_BLOCK, (64, 128), True)
    assert [found.of(module) for module in ("lm_head", f"{PREFIX}.mlp.gate", f"{PREFIX}.router")] == [
        None
    ] * 3


def test_a_checkpoint_without_a_configuration_is_plain() -> None:
    assert formats(None, plain("a")).of("a") is None
    with pytest.raises(CheckpointError, match="names no number format"):
        formats(None, block("a")).of("a")


def test_a_plain_weight_may_stand_beside_a_scale() -> None:
    assert formats(FP8, plain("a") | {"a.scale": "F32"}).of("a") is None


def test_the_configuration_of_the_text_model_counts() -> None:
    checkpoint = Headers(None, mxfp8("a"))
    layers = {"a": {"quant_algo": "MXFP8"}}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    checkpoint.config = {"text_config": {"quantization_config": config}}
    assert read_weight_formats(checkpoint).of("a") is not None


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"quant_method": "gptq"}, "method 'gptq' is not read"),
        ({}, "method None is not read"),
        ({"quant_method": "fp8"}, "one scale per tensor"),
        (FP8 | {"activation_scheme": "static"}, "activation scheme 'static'"),
        (FP8 | {"fmt": "e5m2"}, "FP8 of e5m2"),
        (FP8 | {"kv_cache_scheme": {"num_bits": 8}}, "quantized key-value cache"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "needs quantized_layers"),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
            "key-value cache",
        ),
        ({"quant_method": "compressed-tensors"}, "needs config_groups"),
    ],
)
def test_configurations_that_are_not_read(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CheckpointError, match=complaint):
        formats(config or {"other": 1}, {})


def group(**weights: Any) -> dict[str, Any]:
    inputs = weights.pop("inputs", None)
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"g": {"targets": ["a"], "weights": weights, "input_activations": inputs}},
    }


def layer(algorithm: str, **more: Any) -> dict[str, Any]:
    layers = {"a": {"quant_algo": algorithm, **more}}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}


@pytest.mark.parametrize(
    ("config", "tensors", "complaint"),
    [
        (layer("FP8"), block("a"), "a: algorithm FP8 is not served"),
        (layer("NVFP4", group_size=32), nvfp4("a"), "groups of 32"),
        (layer("MXFP8", weight_scale_encoding="csf"), mxfp8("a"), "encoded as csf"),
        (layer("NVFP4", weight_scale_encoding="zip"), nvfp4("a"), "encoded as zip"),
        (layer("NVFP4"), plain("a"), "says NVFP4, but no scales are stored"),
        (layer("NVFP4"), {}, "no scales are stored"),
        (layer("NVFP4"), nvfp4("a", inputs=False), r"a\.input_scale is missing"),
        (layer("NVFP4"), mxfp8("a"), "weight is stored as F8_E4M3"),
        (layer("MXFP8"), nvfp4("a"), "weight is stored as U8"),
        (layer("MXFP8"), mxfp8("a", "F32"), "weight_scale is stored as F32"),
        (layer("FP8_PB_WO"), block("a", scale="U8"), "weight_scale_inv is stored as U8"),
        (
            group(type="int", num_bits=4, strategy="group", group_size=128),
            packed("a"),
            "type int, num_bits 4",
        ),
        (
            group(type="float", num_bits=4, strategy="tensor_group", group_size=16, inputs={"num_bits": 8}),
            packed("a"),
            "8-bit inputs of NVFP4",
        ),
    ],
)
def test_modules_that_are_not_served_or_stored_otherwise(
    config: dict[str, Any], tensors: dict[str, str], complaint: str
) -> None:
    found = formats(config, tensors | plain("b"))
    assert found.of("b") is None  # another module may still be read
    with pytest.raises(CheckpointError, match=complaint):
        found.of("a")


def test_only_weights_of_one_format_are_stacked() -> None:
    config = mixed(q={"quant_algo": "MXFP8"}, k={"quant_algo": "MXFP8"})
    modules = [f"{PREFIX}.{name}" for name in "qkv"]
    found = formats(config, mxfp8(modules[0]) | mxfp8(modules[1]) | plain(modules[2]))
    assert found.shared(modules[:2]) == found.of(modules[0])
    with pytest.raises(
        CheckpointError, match=r"layers\.0\.q and model\.layers\.0\.v are stored in different"
    ):
        found.shared(modules)
