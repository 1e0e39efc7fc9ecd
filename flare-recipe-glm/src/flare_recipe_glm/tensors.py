"""Where every tensor of the served model comes from."""

from __future__ import annotations

from collections.abc import Iterator

from flare.prepare import ConcatRows, HeadRows, TensorMap, TensorRule, expert_rules, linear_rules
from flare_recipe_glm.config import ModelConfig
from flare_recipe_glm.image_tensors import encoder_rules, encoder_sources
from flare_recipe_glm.names import LayerNames

DRAFTING = "multi-token prediction is not prepared"
"""Why the layers behind the model's own are left out."""

_MIXER = {
    "linear_attention": {
        "self_attn.in_proj_qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.in_proj_low": ("self_attn.f_a_proj", "self_attn.g_a_proj", "self_attn.b_proj"),
        "self_attn.decay_proj": ("self_attn.f_b_proj",),
        "self_attn.gate_proj": ("self_attn.g_b_proj",),
        "self_attn.out_proj": ("self_attn.o_proj",),
    },
    "indexed_attention": {
        "self_attn.qkv_a_proj": ("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"),
        "self_attn.q_b_proj": ("self_attn.q_b_proj",),
        "self_attn.o_proj": ("self_attn.o_proj",),
        "self_attn.indexer.q_proj": ("self_attn.indexer.wq_b",),
        "self_attn.indexer.k_proj": ("self_attn.indexer.wk",),
    },
}
_FEED_FORWARD = {
    "dense": {
        "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj": ("mlp.down_proj",),
    },
    "sparse": {
        "mlp.router.proj": ("mlp.gate",),
        "mlp.shared.gate_up_proj": ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"),
        "mlp.shared.down_proj": ("mlp.shared_experts.down_proj",),
    },
}
_PLAIN = {
    "linear_attention": {
        "self_attn.a_log": "self_attn.A_log",
        "self_attn.dt_bias": "self_attn.dt_bias",
        "self_attn.norm_weight": "self_attn.o_norm.weight",
    },
    "indexed_attention": {
        "self_attn.q_a_norm_weight": "self_attn.q_a_layernorm.weight",
        "self_attn.kv_a_norm_weight": "self_attn.kv_a_layernorm.weight",
        "self_attn.indexer.k_norm_weight": "self_attn.indexer.k_norm.weight",
        "self_attn.indexer.k_norm_bias": "self_attn.indexer.k_norm.bias",
        "self_attn.indexer.gate_bias": "self_attn.indexer.index_kpool_compress_ape",
    },
    "dense": {},
    "sparse": {"mlp.router.bias": "mlp.gate.e_score_correction_bias"},
}
_EVERY_LAYER = {
    "input_layernorm.weight": "input_layernorm.weight",
    "post_attention_layernorm.weight": "post_attention_layernorm.weight",
    **{
        f"{site}_hc.{target}": f"hc_{site}_{source}"
        for site in ("attn", "ffn")
        for target, source in (("weight", "fn"), ("base", "base"), ("scale", "scale"))
    },
}
_INDEX_GATE = ("self_attn.indexer.index_kpool_compress_gate", "self_attn.indexer.weights_proj.weight")


def linear_sources(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """For every linear layer of the served model, the modules of the checkpoint whose rows are stacked."""
    encoder = {} if config.images is None else encoder_sources(config.images)
    return {**_text_sources(config), **encoder}


def _text_sources(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    sources: dict[str, tuple[str, ...]] = {"lm_head": ("lm_head",)}
    for target, names, kinds in _layers(config):
        for kind in kinds:
            for module, parts in {**_MIXER, **_FEED_FORWARD}[kind].items():
                sources[f"{target}.{module}"] = tuple(names.module(part) for part in parts)
    return sources


def experts_name(config: ModelConfig, layer: int) -> str:
    """What the checkpoint calls the routed experts of a layer."""
    return f"{config.prefix}.layers.{layer}.mlp.experts"


def tensor_map(config: ModelConfig) -> TensorMap:
    """The complete map. Raises CheckpointError for formats that are not served."""
    rules: dict[str, TensorRule] = {}
    for target, modules in _text_sources(config).items():
        rules |= linear_rules(config.formats, target, modules)
    if config.images is not None:
        rules |= encoder_rules(config.formats, config.images)
    for layer, kind in enumerate(config.text.mlp_layer_types):
        if kind == "sparse":
            target, experts = f"model.layers.{layer}.mlp.experts", experts_name(config, layer)
            rules |= expert_rules(config.formats, target, experts, config.text.n_routed_experts)
    rules |= {target: TensorRule((source,)) for target, source in _plain(config)}
    for target, names, (mixer, _) in _layers(config):
        if mixer == "linear_attention":
            rules[f"{target}.self_attn.conv_weight"] = TensorRule(names.convolutions(), ConcatRows())
        else:
            gates = tuple(names.tensor(name) for name in _INDEX_GATE)
            rules[f"{target}.self_attn.indexer.gate_proj.weight"] = TensorRule(gates, ConcatRows())
            rules |= _ups(config, f"{target}.self_attn", names.tensor("self_attn.kv_b_proj.weight"))
    return TensorMap(rules, dict.fromkeys(drafting_tensors(config), DRAFTING))


def _ups(config: ModelConfig, target: str, source: str) -> dict[str, TensorRule]:
    """What makes keys and values of latents: stored together, head by head."""
    heads, key = config.text.num_attention_heads, config.text.qk_nope_head_dim
    rows = key + config.text.v_head_dim
    return {
        f"{target}.key_up": TensorRule((source,), HeadRows(heads, rows, 0, key)),
        f"{target}.value_up": TensorRule((source,), HeadRows(heads, rows, key, rows)),
    }


def drafting_tensors(config: ModelConfig) -> list[str]:
    """Tensors of the layers behind the model's own, which draft tokens."""
    beginning = f"{config.prefix}.layers."
    return [
        name
        for name in config.tensors
        if name.startswith(beginning)
        and int(name.removeprefix(beginning).partition(".")[0]) >= config.text.num_hidden_layers
    ]


def _layers(config: ModelConfig) -> Iterator[tuple[str, LayerNames, tuple[str, str]]]:
    """Of every layer: its name in the served model, those in the checkpoint, the kinds of its two parts."""
    kinds = zip(config.text.layer_types, config.text.mlp_layer_types, strict=True)
    for layer, pair in enumerate(kinds):
        names = LayerNames(f"{config.prefix}.layers.{layer}", config.tensors)
        yield f"model.layers.{layer}", names, pair


def _plain(config: ModelConfig) -> Iterator[tuple[str, str]]:
    yield "model.embed_tokens.weight", f"{config.prefix}.embed_tokens.weight"
    yield "model.norm.weight", f"{config.prefix}.norm.weight"
    for target, names, kinds in _layers(config):
        for module, source in {**_EVERY_LAYER, **_PLAIN[kinds[0]], **_PLAIN[kinds[1]]}.items():
            yield f"{target}.{module}", names.tensor(source)
