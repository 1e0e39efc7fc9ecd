"""The configuration of a checkpoint, with nothing structural defaulted.

Re-exports name the same model otherwise (`qwen3_8_flash_next`), which `AutoConfig` does not know: the fields
are read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import Qwen4ExpTextConfig

from flare.prepare import Checkpoint, CheckpointError, TensorInfo, WeightFormats, read_weight_formats
from flare_recipe_qwen.image_config import ImageConfig, read_image_config

WHOLE_TYPES = ("qwen4_exp", "qwen3_8_flash_next")
TEXT_TYPES = ("qwen4_exp_text", "qwen3_8_flash_next_text")

# Without one of these Transformers takes a value that is another model's, or none: a dense attention without
# its indexer, no n-gram layers, a SiLU gate.
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_parameters",
    "eos_token_id",
    "layer_types",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "output_gate_type",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "hc_count",
    "hc_lowrank",
    "ple_layer_ids",
    "ple_embed_dim",
    "ple_conv_kernel_size",
    "ngram_size",
    "heads_per_ngram",
    "ngram_vocab_size_base",
    "make_ngram_vocab_size_divisible_by",
    "split_ngram_parts",
    "indexer_n_heads",
    "indexer_kv_heads",
    "indexer_head_dim",
    "indexer_budget",
    "indexer_compress_ratio",
)
REQUIRED_ROPE = ("rope_type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
# Where this recipe computes one thing, another is refused.
_SERVED: Mapping[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "norm_topk_prob": (True,),
    "tie_word_embeddings": (False,),
    "mamba_ssm_dtype": ("float32",),
}
_SERVED_ROPE: Mapping[str, tuple[Any, ...]] = {
    "rope_type": ("default", "yarn"),
    "mrope_interleaved": (True,),
}


@dataclass(frozen=True)
class ModelConfig:
    """The text model's configuration and how the checkpoint stores it: `prefix` begins the names of its
    tensors, `table_dtype` names the number format of n-gram tables where the configuration has one, `images`
    is there where the model takes images."""

    text: Qwen4ExpTextConfig
    prefix: str
    formats: WeightFormats
    tensors: Mapping[str, TensorInfo]
    table_dtype: str | None = None
    images: ImageConfig | None = None

    @property
    def boundary(self) -> int:
        """The token that ends n-grams: the text configuration's (first) end of text, whatever ends
        generation."""
        end = self.text.eos_token_id
        found: int = end[0] if isinstance(end, list) else end
        return found

    @property
    def linear_layers(self) -> int:
        """How many layers have linear attention."""
        return sum(kind == "linear_attention" for kind in self.text.layer_types)


def read_config(checkpoint: Checkpoint) -> ModelConfig:
    """The configuration of `checkpoint`, of the whole model or of its text model.

    Raises: CheckpointError naming the field that is missing, or has a value that is not served.
    """
    stored = checkpoint.config
    kind = stored.get("model_type")
    if kind in WHOLE_TYPES:
        fields = stored.get("text_config")
        if not isinstance(fields, Mapping):
            raise CheckpointError("config.json lacks text_config", field="text_config")
        if fields.get("model_type", TEXT_TYPES[0]) not in TEXT_TYPES:
            raise CheckpointError(f"text model {fields['model_type']!r} is not read", field="model_type")
        fields = {"tie_word_embeddings": stored.get("tie_word_embeddings", False), **fields}
        prefix, images = "model.language_model", read_image_config(stored)
    elif kind in TEXT_TYPES:
        fields, prefix, images = stored, "model", None
    else:
        known = ", ".join((*WHOLE_TYPES, *TEXT_TYPES))
        raise CheckpointError(f"model_type {kind!r} is none of {known}", field="model_type")
    _check(fields)
    known_fields = {name: value for name, value in fields.items() if name not in _NOT_OURS}
    try:
        text = Qwen4ExpTextConfig(**known_fields)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise CheckpointError(f"config.json: {error}", field="text_config") from error
    return ModelConfig(
        text=text,
        prefix=prefix,
        formats=read_weight_formats(checkpoint),
        tensors=checkpoint.tensors,
        table_dtype=fields.get("ple_embedding_dtype"),
        images=images,
    )


_NOT_OURS = ("architectures", "model_type", "quantization_config", "torch_dtype", "dtype")


def _check(fields: Mapping[str, Any]) -> None:
    rope = fields.get("rope_parameters") or {}
    for name, place in [*((name, fields) for name in REQUIRED), *((name, rope) for name in REQUIRED_ROPE)]:
        # The interval that layer types follow from says as much as they do.
        other = name == "layer_types" and "full_attention_interval" in fields
        if place.get(name) is None and not other:
            raise CheckpointError(f"config.json lacks {name}", field=name)
    for served, place in ((_SERVED, fields), (_SERVED_ROPE, rope)):
        for name, values in served.items():
            if name in place and place[name] not in values:
                raise CheckpointError(
                    f"{name} {place[name]!r} is not served; {', '.join(map(str, values))} is", field=name
                )
