"""What the GLM loader reads and what it refuses: fields, names, tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from changed_checkpoints import changed_config, changed_tensors
from safetensors.torch import load_file

from flare.contract import DType
from flare.prepare import CheckpointError
from flare.prepare.published import read_published
from flare.prepare.weights import check_targets
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_glm.config import LINEAR, REQUIRED, ModelConfig, read_config
from flare_recipe_glm.descriptor import DESCRIPTOR
from flare_recipe_glm.oracle import converted
from flare_recipe_glm.recipe import RECIPE

LANGUAGE = "model.language_model"


@pytest.fixture
def tiny(flare_tiny_checkpoint: TinyCheckpoints) -> Path:
    return flare_tiny_checkpoint(RECIPE)


def read(path: Path) -> ModelConfig:
    return RECIPE.loader.config(RECIPE.loader.open(path))


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_an_error_that_names_it(tiny: Path, tmp_path: Path, name: str) -> None:
    changed = changed_config(tiny, tmp_path / "c", lambda config: config["text_config"].pop(name))
    with pytest.raises(CheckpointError, match=f"config.json lacks {name}") as caught:
        read(changed)
    assert caught.value.field == name


def test_pools_are_those_of_the_checkpoint_and_never_those_of_transformers(tiny: Path) -> None:
    """Its own default is another model's."""
    from transformers import Glm5NextTextConfig

    assert read(tiny).text.index_kpool == 4 != Glm5NextTextConfig().index_kpool


@pytest.mark.parametrize("name", LINEAR)
def test_linear_attention_is_read_from_either_place(tiny: Path, tmp_path: Path, name: str) -> None:
    def move(config: dict[str, Any]) -> None:
        fields = config["text_config"]
        fields[name] = fields["linear_attn_config"].pop(LINEAR[name])

    def lose(config: dict[str, Any]) -> None:
        move(config)
        del config["text_config"][name]

    def contradict(config: dict[str, Any]) -> None:
        fields = config["text_config"]
        fields[name] = fields["linear_attn_config"][LINEAR[name]] + 1

    moved = read(changed_config(tiny, tmp_path / "moved", move))
    assert getattr(moved.text, name) == getattr(read(tiny).text, name)
    with pytest.raises(CheckpointError, match=f"lacks {name}, and {LINEAR[name]} of linear_attn_config"):
        read(changed_config(tiny, tmp_path / "lost", lose))
    with pytest.raises(CheckpointError, match=f"{name} .* contradicts {LINEAR[name]}"):
        read(changed_config(tiny, tmp_path / "contradicting", contradict))


def test_kinds_of_layers_follow_from_other_lists(tiny: Path, tmp_path: Path) -> None:
    def follow(config: dict[str, Any]) -> None:
        fields = config["text_config"]
        del fields["layer_types"], fields["mlp_layer_types"], fields["indexer_types"]
        fields["first_k_dense_replace"] = 1

    text, want = read(changed_config(tiny, tmp_path / "c", follow)).text, read(tiny).text
    assert text.layer_types == want.layer_types
    assert text.mlp_layer_types == want.mlp_layer_types
    assert text.indexer_types == want.indexer_types


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        (("layer_types", "linear_attn_config.kda_layers"), "lacks layer_types, and kda_layers"),
        (("mlp_layer_types",), "lacks mlp_layer_types, and first_k_dense_replace"),
    ],
)
def test_kinds_of_layers_are_never_guessed(
    tiny: Path, tmp_path: Path, lost: tuple[str, ...], message: str
) -> None:
    def lose(config: dict[str, Any]) -> None:
        for name in lost:
            owner, _, field = name.rpartition(".")
            fields = config["text_config"]
            del (fields[owner] if owner else fields)[field]

    with pytest.raises(CheckpointError, match=message):
        read(changed_config(tiny, tmp_path / "c", lose))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not served"),
        ({"attention_bias": True}, "attention_bias True is not served"),
        ({"qk_rope_head_dim": 8}, "qk_rope_head_dim 8 is not served"),
        ({"mla_use_nope": False}, "mla_use_nope False is not served"),
        ({"mhc": False}, "mhc False is not served"),
        ({"index_kpool_compress": False}, "index_kpool_compress False is not served"),
        ({"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail False is not served"),
        ({"scoring_func": "softmax"}, "scoring_func 'softmax' is not served"),
        ({"topk_method": "greedy"}, "topk_method 'greedy' is not served"),
        ({"moe_router_dtype": "bfloat16"}, "moe_router_dtype 'bfloat16' is not served"),
        ({"norm_topk_prob": False}, "norm_topk_prob False is not served"),
        ({"n_group": 2}, "n_group 2 is not served"),
        ({"indexer_types": ["full", "full", "full", "full", "shared"]}, "'shared' in indexer_types"),
        ({"indexer_types": None, "index_topk_freq": 2}, "index_topk_freq 2 is not served"),
        ({"layer_types": ["linear_attention"] * 5}, "layer_types contradict kda_layers"),
        ({"mlp_layer_types": ["dense"] * 4 + ["other"]}, "'other' in mlp_layer_types is not served"),
        ({"index_topk": 18}, "divisible by index_kpool"),
        ({"num_key_value_heads": 2}, "must be the same as"),
        ({"model_type": "glm_moe_dsa"}, "text model 'glm_moe_dsa' is not read"),
    ],
)
def test_what_is_not_served_is_refused(
    tiny: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    changed = changed_config(tiny, tmp_path / "c", lambda config: config["text_config"].update(change))
    with pytest.raises(CheckpointError, match=message):
        read(changed)


def test_another_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    changed = changed_config(tiny, tmp_path / "c", lambda config: config.update(model_type="llama"))
    with pytest.raises(CheckpointError, match="model_type 'llama' is none of glm5_next, glm5_next_text"):
        read(changed)


@pytest.mark.parametrize("kind", ["glm5_next", "glm5_next_text"])
@pytest.mark.parametrize("prefix", ["model", LANGUAGE])
def test_a_text_model_alone_is_read(tiny: Path, tmp_path: Path, kind: str, prefix: str) -> None:
    def alone(config: dict[str, Any]) -> None:
        fields = config.pop("text_config")
        config.clear()
        config |= {**fields, "model_type": kind}

    def names(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensor = tensors.pop(name)
            if not name.startswith("model.visual."):
                tensors[name.replace(LANGUAGE, prefix)] = tensor

    path = changed_config(changed_tensors(tiny, tmp_path / "t", names), tmp_path / "c", alone)
    checkpoint, config = RECIPE.loader.open(path), read(path)
    assert config.images is None
    mapping = RECIPE.loader.tensor_map(config)
    mapping.check(checkpoint)
    check_targets(RECIPE.replacements.build(config, DType.F32), mapping)
    ids = torch.tensor([[30, 40, 50]])
    alone_logits = RECIPE.oracle.reference(checkpoint, DType.F32)(ids).logits
    whole = RECIPE.oracle.reference(RECIPE.loader.open(tiny), DType.F32)(ids).logits
    assert torch.equal(alone_logits, whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({f"{LANGUAGE}.hc_head": torch.zeros(64)}), f"not mapped: {LANGUAGE}.hc_head"),
        (lambda t: t.pop(f"{LANGUAGE}.layers.3.hc_ffn_base"), "missing: .*layers.3.hc_ffn_base"),
        (lambda t: t.pop(f"{LANGUAGE}.layers.0.self_attn.k_conv1d.weight"), "missing: .*k_conv1d.weight"),
        (lambda t: t.pop(f"{LANGUAGE}.layers.2.self_attn.indexer.index_kpool_compress_ape"), "compress_ape"),
        (lambda t: t.pop("lm_head.weight"), "missing: lm_head.weight"),
        (lambda t: t.pop("model.visual.downsample.weight"), "missing: model.visual.downsample.weight"),
    ],
)
def test_every_tensor_is_mapped_or_named(tiny: Path, tmp_path: Path, change: Any, message: str) -> None:
    path = changed_tensors(tiny, tmp_path / "c", change)
    with pytest.raises(CheckpointError, match=message):
        RECIPE.loader.tensor_map(read(path)).check(RECIPE.loader.open(path))


def test_what_drafts_is_left_out_with_its_reason(tiny: Path) -> None:
    ignored = RECIPE.loader.tensor_map(read(tiny)).ignored
    assert set(ignored.values()) == {"multi-token prediction is not prepared"}
    assert {name.removeprefix(f"{LANGUAGE}.layers.") for name in ignored} == {
        "5.eh_proj.weight",
        "5.shared_head.norm.weight",
        "5.mlp.experts.0.down_proj.weight",
    }


def test_names_of_transformers_give_the_same_weights(tiny: Path, tmp_path: Path) -> None:
    """A checkpoint that Transformers wrote: other names, convolutions and experts in one piece."""

    def theirs(tensors: dict[str, torch.Tensor]) -> None:
        found = converted({name: tensor for name, tensor in tensors.items() if ".layers.5." not in name})
        tensors.clear()
        tensors |= found

    path = changed_tensors(tiny, tmp_path / "c", theirs)
    names = set(load_file(path / "model.safetensors"))
    assert f"{LANGUAGE}.layers.1.mlp.experts.gate_up_proj" in names
    assert f"{LANGUAGE}.layers.1.self_attn.forget_gate.A_log" in names
    stored, published = (RECIPE.loader.open(one) for one in (path, tiny))
    mapping, want = (RECIPE.loader.tensor_map(read(one)) for one in (path, tiny))
    mapping.check(stored)
    assert set(mapping.rules) == set(want.rules)
    for target in want.rules:
        assert torch.equal(mapping.assemble(target, stored), want.assemble(target, published)), target


def test_what_must_be_exact_stays_in_fp32(tiny: Path, tmp_path: Path) -> None:
    exact = {
        name.rpartition(".")[2] if "router" not in name else name.partition("mlp.")[2]
        for name, tensor in RECIPE.replacements.build(read(tiny), DType.BF16).module.named_parameters()
        if tensor.dtype == torch.float32
    }
    assert exact == {
        *("router.proj.weight", "router.bias"),
        *("conv_weight", "a_log", "dt_bias", "norm_weight"),
        *("weight", "base", "scale"),  # of connections, which the checkpoint stores in FP32
    }

    def rounded(tensors: dict[str, torch.Tensor]) -> None:
        tensors |= {name: tensor.bfloat16() for name, tensor in tensors.items()}

    path = changed_tensors(tiny, tmp_path / "c", rounded)
    module = RECIPE.replacements.build(read(path), DType.BF16).module
    assert module.get_parameter("model.layers.0.attn_hc.weight").dtype == torch.bfloat16
    assert module.get_parameter("model.layers.1.mlp.router.proj.weight").dtype == torch.float32


def test_the_published_configuration_is_read() -> None:
    config = read_config(read_published(DESCRIPTOR.models[0]))
    assert (config.count("linear_attention"), config.count("indexed_attention")) == (34, 11)
    assert (config.text.index_kpool, config.text.linear_lower_bound) == (4, -5.0)
    assert config.text.mlp_layer_types == ["dense"] * 3 + ["sparse"] * 42
    assert config.images is not None
    assert config.prefix == LANGUAGE
