"""The configuration of a checkpoint, with nothing structural defaulted.

Transformers takes another pool size of the indexer where the field is missing (16 for 4), and other layers
where only the lists of linear attention's own configuration name them: the fields are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import Glm5NextTextConfig

from flare.prepare import (
    Checkpoint,
    CheckpointError,
    TensorInfo,
    WeightFormats,
    check_present,
    check_served,
    read_weight_formats,
)
from flare_recipe_glm.image_config import ImageConfig, read_image_config

WHOLE_TYPES = ("glm5_next",)
TEXT_TYPES = ("glm5_next_text",)

REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "n_shared_experts",
    "n_routed_experts",
    "num_experts_per_tok",
    "routed_scaling_factor",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "index_topk",
    "index_head_dim",
    "index_n_heads",
    "index_kpool",
    "swiglu_limit",
    "hc_mult",
    "hc_sinkhorn_iters",
    "hc_eps",
    "max_position_embeddings",
    "rms_norm_eps",
)
# Linear attention has its fields twice: as the text model's own, and under other names in
# `linear_attn_config`, which Transformers prefers.
LINEAR = {
    "linear_head_dim": "head_dim",
    "linear_num_heads": "num_heads",
    "linear_conv_kernel_dim": "short_conv_kernel_size",
    "linear_lower_bound": "gate_lower_bound",
}
# Where this recipe computes one thing, another is refused.
_SERVED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "qk_rope_head_dim": (0,),
    "mla_use_nope": (True,),
    "mhc": (True,),
    "index_kpool_compress": (True,),
    "index_kpool_always_select_tail": (True,),
    "scoring_func": ("sigmoid",),
    "topk_method": ("noaux_tc",),
    "moe_router_dtype": ("float32", "fp32"),
    "norm_topk_prob": (True,),
    "n_group": (1,),
    "topk_group": (1,),
    "tie_word_embeddings": (False,),
}
_KINDS: Mapping[str, tuple[str, ...]] = {
    "layer_types": ("linear_attention", "deepseek_sparse_attention", "indexed_attention", "full_attention"),
    "mlp_layer_types": ("dense", "sparse"),
    # A layer that takes the selection of one before it would have no indexer of its own.
    "indexer_types": ("full",),
}
_NOT_OURS = (
    "architectures",
    "model_type",
    "quantization_config",
    "torch_dtype",
    "dtype",
    "linear_attn_config",
)


@dataclass(frozen=True)
class ModelConfig:
    """The text model's configuration and how the checkpoint stores it: `prefix` begins the names of its
    tensors, `images` is there where the model takes images."""

    text: Glm5NextTextConfig
    prefix: str
    formats: WeightFormats
    tensors: Mapping[str, TensorInfo]
    images: ImageConfig | None = None

    @property
    def drafting(self) -> int:
        """The first layer behind those of the model: multi-token prediction."""
        number: int = self.text.num_hidden_layers
        return number

    def count(self, kind: str) -> int:
        """How many layers are of `kind`, "linear_attention" or "indexed_attention"."""
        return sum(found == kind for found in self.text.layer_types)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of `checkpoint`, of the whole model or of its text model.

    Raises: CheckpointError naming the field that is missing, or has a value that is not served.
    """
    stored = checkpoint.config
    kind = stored.get("model_type")
    if kind not in (*WHOLE_TYPES, *TEXT_TYPES):
        known = ", ".join((*WHOLE_TYPES, *TEXT_TYPES))
        raise CheckpointError(f"model_type {kind!r} is none of {known}", field="model_type")
    # A text model alone has its fields at the top.
    fields = stored.get("text_config") or stored
    if fields is not stored and fields.get("model_type", TEXT_TYPES[0]) not in TEXT_TYPES:
        raise CheckpointError(f"text model {fields['model_type']!r} is not read", field="model_type")
    fields = {"tie_word_embeddings": stored.get("tie_word_embeddings", False), **fields}
    check_present(fields, REQUIRED)
    fields |= {**_linear(fields), **_layers(fields)}
    check_served(fields, _SERVED)
    _check_kinds(fields)
    known_fields = {name: value for name, value in fields.items() if name not in _NOT_OURS}
    try:
        text = Glm5NextTextConfig(**known_fields)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise CheckpointError(f"config.json: {error}", field="text_config") from error
    whole = "vision_config" in stored
    return ModelConfig(
        text=text,
        prefix="model.language_model" if "text_config" in stored else _prefix(checkpoint),
        formats=read_weight_formats(checkpoint),
        tensors=checkpoint.tensors,
        images=read_image_config(stored) if whole else None,
    )


def _prefix(checkpoint: Checkpoint) -> str:
    """Of a text model alone, which may have kept the names of the whole."""
    kept = "model.language_model"
    return kept if f"{kept}.embed_tokens.weight" in checkpoint.tensors else "model"


def _linear(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of linear attention, from either place."""
    nested = fields.get("linear_attn_config") or {}
    found = {}
    for name, other in LINEAR.items():
        values = [
            place[key] for place, key in ((nested, other), (fields, name)) if place.get(key) is not None
        ]
        if not values:
            raise CheckpointError(f"config.json lacks {name}, and {other} of linear_attn_config", field=name)
        if values[0] != values[-1]:
            raise CheckpointError(
                f"{name} {values[-1]!r} contradicts {other} {values[0]!r} of linear_attn_config", field=name
            )
        found[name] = values[0]
    return found


def _layers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The kinds of layers, from their lists or from what says as much."""
    number = fields["num_hidden_layers"]
    mixers, feeds = fields.get("layer_types"), fields.get("mlp_layer_types")
    linear = (fields.get("linear_attn_config") or {}).get("kda_layers")
    if mixers is None:
        if linear is None:
            raise CheckpointError(
                "config.json lacks layer_types, and kda_layers of linear_attn_config", field="layer_types"
            )
        mixers = [
            "linear_attention" if layer in linear else "deepseek_sparse_attention" for layer in range(number)
        ]
    elif linear is not None and set(linear) != {
        layer for layer, kind in enumerate(mixers) if kind == "linear_attention"
    }:
        raise CheckpointError("layer_types contradict kda_layers of linear_attn_config", field="layer_types")
    if feeds is None:
        dense = fields.get("first_k_dense_replace")
        if dense is None:
            raise CheckpointError(
                "config.json lacks mlp_layer_types, and first_k_dense_replace", field="mlp_layer_types"
            )
        feeds = ["dense" if layer < dense else "sparse" for layer in range(number)]
    return {"layer_types": list(mixers), "mlp_layer_types": list(feeds)}


def _check_kinds(fields: Mapping[str, Any]) -> None:
    for name, served in _KINDS.items():
        for value in fields.get(name) or ():
            if value not in served:
                raise CheckpointError(f"{value!r} in {name} is not served", field=name)
    if fields.get("indexer_types") is None:
        check_served(fields, {"index_topk_freq": (1, None), "index_topk_pattern": (None,)})
