"""The configuration in a GGUF file's metadata, as the fields of Transformers' `LlamaConfig`."""

from __future__ import annotations

from typing import Any

import numpy as np

from flare.prepare import CheckpointError, GgufFile

ARCHITECTURE = "llama"

_FIELDS = {
    "vocab_size": "vocab_size",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "rope.dimension_count": "head_dim",
    "context_length": "max_position_embeddings",
}
_FLOATS = {
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_TOKENS = {"bos": "bos_token_id", "eos": "eos_token_id", "padding": "pad_token_id"}


def read_config(file: GgufFile) -> dict[str, Any]:
    """Every structural field, none of them defaulted.

    Raises: CheckpointError for another architecture, a missing key, or a key that would change the model
    and is not understood here (rope scaling, sliding windows, experts).
    """
    architecture = file.require("general.architecture")
    if architecture != ARCHITECTURE:
        raise CheckpointError(f"architecture {architecture} is not {ARCHITECTURE}", field="architecture")
    prefix = f"{ARCHITECTURE}."
    known = {prefix + key for key in (*_FIELDS, *_FLOATS)}
    unknown = sorted(key for key in file.metadata if key.startswith(prefix) and key not in known)
    if unknown:
        raise CheckpointError(
            f"metadata that this recipe does not read: {', '.join(unknown)}", field=unknown[0]
        )
    config: dict[str, Any] = {field: file.require(prefix + key) for key, field in _FIELDS.items()}
    config |= {field: _shortest(file.require(prefix + key)) for key, field in _FLOATS.items()}
    config |= {field: file.require(f"tokenizer.ggml.{key}_token_id") for key, field in _TOKENS.items()}
    return config | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }


def _shortest(value: float) -> float:
    """The decimal that was meant: metadata is stored as float32, where 1e-05 reads 9.999999747e-06."""
    return float(str(np.float32(value)))
