"""Changed copies of the tiny checkpoint, and the configuration of the published model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

Change = Callable[[dict[str, Any]], None]

REAL_TEXT: dict[str, Any] = {
    "model_type": "qwen4_exp_text",
    "vocab_size": 248320,
    "hidden_size": 2560,
    "num_hidden_layers": 48,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "moe_intermediate_size": 640,
    "shared_expert_intermediate_size": 640,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "full_attention_interval": 4,
    "hc_count": 4,
    "hc_lowrank": 320,
    "ple_layer_ids": [2],
    "ple_embed_dim": 2560,
    "ple_conv_kernel_size": 4,
    "ple_embedding_dtype": "nvfp4",
    "ngram_size": 3,
    "heads_per_ngram": 8,
    "ngram_vocab_size_base": 20_000_000,
    "make_ngram_vocab_size_divisible_by": 128,
    "split_ngram_parts": 128,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
    "output_gate_type": "sigmoid",
    "eos_token_id": 248044,
    "bos_token_id": 248044,
    "mamba_ssm_dtype": "float32",
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000_000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
}


def changed_config(source: Path, target: Path, change: Change) -> Path:
    """A copy of checkpoint `source` with another config.json."""
    shutil.copytree(source, target)
    file = target / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))
    return target


def changed_tensors(source: Path, target: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    """A copy of checkpoint `source` with other tensors."""
    shutil.copytree(source, target)
    tensors = load_file(source / "model.safetensors")
    change(tensors)
    file = target / "model.safetensors"
    file.unlink()
    save_file({name: t.contiguous() for name, t in tensors.items()}, file, metadata={"format": "pt"})
    return target
