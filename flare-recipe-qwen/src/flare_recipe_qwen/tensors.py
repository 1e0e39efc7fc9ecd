"""Where every tensor of the served model comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flare.prepare import FlattenRows, TensorMap, TensorRule, expert_rules, linear_rules
from flare_recipe_qwen.config import ModelConfig
from flare_recipe_qwen.image_config import ImageConfig
from flare_recipe_qwen.tables import NgramTable, ngram_tables

if TYPE_CHECKING:
    import torch

VISUAL = "model.visual"
"""What the checkpoint calls the image encoder."""

LEFT_OUT = {
    "mtp.": "multi-token prediction is not prepared",
}
"""Beginnings of the names of tensors that are left out, and why."""

_MIXER = {
    "linear_attention": {
        "linear_attn.in_proj_qkvz": ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z"),
        "linear_attn.in_proj_ba": ("linear_attn.in_proj_b", "linear_attn.in_proj_a"),
        "linear_attn.out_proj": ("linear_attn.out_proj",),
    },
    "indexed_attention": {
        "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.o_proj": ("self_attn.o_proj",),
        "self_attn.index_proj": ("self_attn.indexer.index_qk_proj",),
    },
}
_FEED_FORWARD = {
    "mlp.router.proj": ("mlp.gate", "mlp.shared_expert_gate"),
    "mlp.shared.gate_up_proj": ("mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"),
    "mlp.shared.down_proj": ("mlp.shared_expert.down_proj",),
}
_NGRAMS = {"ple.injection.kv_proj": ("ple.key_proj", "ple.value_proj")}
_HYPER = {
    "down_proj": ("input_mix_weight_down", "block_inject_weight"),
    "up_proj": ("input_mix_weight_up",),
}
_BIASED = ("self_attn.qkv_proj", "self_attn.o_proj")

_PLAIN = {
    "linear_attention": {
        "linear_attn.conv_weight": "linear_attn.conv1d.weight",
        "linear_attn.a_log": "linear_attn.A_log",
        "linear_attn.dt_bias": "linear_attn.dt_bias",
        "linear_attn.norm_weight": "linear_attn.norm.weight",
    },
    "indexed_attention": {
        "self_attn.q_norm_weight": "self_attn.q_norm.weight",
        "self_attn.k_norm_weight": "self_attn.k_norm.weight",
        "self_attn.index_q_norm_weight": "self_attn.indexer.q_layernorm.weight",
        "self_attn.index_k_norm_weight": "self_attn.indexer.k_layernorm.weight",
    },
}
_PLAIN_NGRAMS = {
    "ple.injection.key_norm_weight": "ple.norm_key.weight",
    "ple.injection.query_norm_weight": "ple.norm_query.weight",
    "ple.injection.conv_norm_weight": "ple.norm_conv.weight",
    "ple.injection.conv_weight": "ple.conv1d.weight",
}


def linear_sources(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """For every linear layer of the served model, the modules of the checkpoint whose rows are stacked."""
    sources: dict[str, tuple[str, ...]] = {"lm_head": ("lm_head",)}
    for layer, kind in enumerate(config.text.layer_types):
        stacks = {**_MIXER[kind], **_FEED_FORWARD, **(_NGRAMS if _has_ngrams(config, layer) else {})}
        for connection in ("attn_hyper_connection", "mlp_hyper_connection"):
            stacks |= {
                f"{connection}.{target}": tuple(f"{connection}.{part}" for part in parts)
                for target, parts in _HYPER.items()
            }
        for target, parts in stacks.items():
            stored = tuple(f"{config.prefix}.layers.{layer}.{part}" for part in parts)
            sources[f"model.layers.{layer}.{target}"] = stored
    if config.images is not None:
        for target in _encoder_layers(config.images):
            sources[f"image_encoder.{target}"] = (f"{VISUAL}.{target}",)
    for target, parts in _HYPER.items():
        # Nothing is injected behind the last layer.
        stored = (f"{config.prefix}.hyper_connection_mixer.{parts[0]}",)
        sources[f"model.hyper_connection_mixer.{target}"] = stored
    return sources


def experts_name(config: ModelConfig, layer: int) -> str:
    """What the checkpoint calls the routed experts of a layer."""
    return f"{config.prefix}.layers.{layer}.mlp.experts"


def tensor_map(config: ModelConfig) -> TensorMap:
    """The complete map. Raises CheckpointError for formats that are not served."""
    rules: dict[str, TensorRule] = {}
    for target, modules in linear_sources(config).items():
        bias = target.startswith("image_encoder.") or (
            config.text.attention_bias and target.endswith(_BIASED)
        )
        rules |= linear_rules(config.formats, target, modules, bias=bias)
    for layer in range(config.text.num_hidden_layers):
        experts = experts_name(config, layer)
        target = f"model.layers.{layer}.mlp.experts"
        rules |= expert_rules(config.formats, target, experts, config.text.num_experts)
    rules |= {target: TensorRule((source,)) for target, source in _plain(config)}
    if config.images is not None:
        rules |= _encoder_rules(config.images)
    tables = ngram_tables(config)
    for table in tables:
        if table.packed:
            target = f"model.layers.{table.layer}.ple.embedding.global_scale"
            rules[target] = TensorRule(table.global_scales, SharedNumber())
    return TensorMap(rules, _ignored(config, tables), {t.resource.tensor: t.rule for t in tables})


def _plain(config: ModelConfig) -> Iterator[tuple[str, str]]:
    yield "model.embed_tokens.weight", f"{config.prefix}.embed_tokens.weight"
    mixer = "hyper_connection_mixer"
    yield f"model.{mixer}.norm_weight", f"{config.prefix}.{mixer}.hc_norm.weight"
    for layer, kind in enumerate(config.text.layer_types):
        names = {**_PLAIN[kind], **(_PLAIN_NGRAMS if _has_ngrams(config, layer) else {})}
        for connection in ("attn_hyper_connection", "mlp_hyper_connection"):
            names[f"{connection}.norm_weight"] = f"{connection}.hc_norm.weight"
        for target, source in names.items():
            yield f"model.layers.{layer}.{target}", f"{config.prefix}.layers.{layer}.{source}"


def _encoder_layers(images: ImageConfig) -> Iterator[str]:
    """Linear layers of the encoder, by the names that they keep."""
    for block in range(images.encoder.depth):
        for layer in ("attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2"):
            yield f"blocks.{block}.{layer}"
    yield from ("merger.linear_fc1", "merger.linear_fc2")


def _encoder_rules(images: ImageConfig) -> dict[str, TensorRule]:
    """Of what else the encoder has."""
    norms = [f"blocks.{block}.{norm}" for block in range(images.encoder.depth) for norm in ("norm1", "norm2")]
    rules = {
        f"image_encoder.{norm}.{part}": TensorRule((f"{VISUAL}.{norm}.{part}",))
        for norm in (*norms, "merger.norm")
        for part in ("weight", "bias")
    }
    stored = f"{VISUAL}.patch_embed.proj"
    rules["image_encoder.patch_proj.weight"] = TensorRule((f"{stored}.weight",), FlattenRows())
    rules["image_encoder.patch_proj.bias"] = TensorRule((f"{stored}.bias",))
    rules["image_encoder.position_table"] = TensorRule((f"{VISUAL}.pos_embed.weight",))
    return rules


def _has_ngrams(config: ModelConfig, layer: int) -> bool:
    return layer + 1 in config.text.ple_layer_ids


def _ignored(config: ModelConfig, tables: Sequence[NgramTable]) -> dict[str, str]:
    ignored = {
        name: reason
        for beginning, reason in LEFT_OUT.items()
        for name in config.tensors
        if name.startswith(beginning)
    }
    for table in tables:
        ignored |= dict.fromkeys(table.stored_constants, "constants of the hash are computed")
    return ignored


@dataclass(frozen=True)
class SharedNumber:
    """The one number that all sources are, as the loader has checked: [1]."""

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """[1]. Raises ValueError unless every source is one number."""
        if not shapes or any(shape not in ((), (1,)) for shape in shapes):
            raise ValueError(f"{list(shapes)} are not numbers")
        return (1,)

    def apply(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A view of the first."""
        return tensors[0].reshape(1)
