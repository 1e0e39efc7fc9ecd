"""A tiny random checkpoint with everything that a real one has, in the hub's layout.

`python -m flare_recipe_qwen.tiny DIRECTORY` writes one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen4ExpConfig, Qwen4ExpForConditionalGeneration

from flare_components.testing import tiny_command, without_constants, write_checkpoint
from flare_recipe_qwen.tiny_template import TEMPLATE
from flare_recipe_qwen.tiny_text import TOKENS, tokenizer

TEXT: dict[str, Any] = {
    "model_type": "qwen4_exp_text",
    "vocab_size": 288,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "hc_count": 4,
    "hc_lowrank": 16,
    "ple_layer_ids": [2],
    "ple_embed_dim": 128,  # rows of 16 elements, which is one block of NVFP4
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 4,
    "ngram_vocab_size_base": 97,
    "make_ngram_vocab_size_divisible_by": 16,
    "split_ngram_parts": 4,
    "indexer_n_heads": 16,  # with few heads, scores of zero would tie
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 16,
    "indexer_compress_ratio": 4,
    "output_gate_type": "sigmoid",
    "initializer_range": 0.15,
    "eos_token_id": TOKENS["<|endoftext|>"],
    "bos_token_id": TOKENS["<|endoftext|>"],
    "mamba_ssm_dtype": "float32",
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
}
VISION: dict[str, Any] = {
    "model_type": "qwen4_exp_vision",
    "depth": 2,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 64,
    "out_hidden_size": 64,
    "num_position_embeddings": 64,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen4ExpForConditionalGeneration"],
    "model_type": "qwen4_exp",
    "tie_word_embeddings": False,
    "image_token_id": TOKENS["<|image_pad|>"],
    "video_token_id": TOKENS["<|video_pad|>"],
    "vision_start_token_id": TOKENS["<|vision_start|>"],
    "vision_end_token_id": TOKENS["<|vision_end|>"],
    "text_config": TEXT,
    "vision_config": VISION,
}
_PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen3VLProcessor",
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "size": {"shortest_edge": 4096, "longest_edge": 65536},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def write_tiny(directory: Path, *, seed: int = 0) -> Path:
    """Write it, in FP32 and one file; returns `directory`.

    Four layers, eight experts, a table of some nine hundred rows in four shards, a vision tower, and a tensor
    of multi-token prediction. Tokens are `flare_recipe_qwen.tiny_text`'s.
    """
    files = {
        "config.json": {**CONFIG, "dtype": "float32"},
        "generation_config.json": {"eos_token_id": [TOKENS["<|im_end|>"], TOKENS["<|endoftext|>"]]},
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
        },
        "preprocessor_config.json": _PROCESSOR,
        "tokenizer.json": tokenizer().to_str(),
        "chat_template.jinja": TEMPLATE,
    }
    return write_checkpoint(directory, _tensors(seed), files)


def _tensors(seed: int) -> dict[str, Tensor]:
    fields = {name: value for name, value in CONFIG.items() if name != "architectures"}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen4ExpForConditionalGeneration(Qwen4ExpConfig(**fields))
        tensors: dict[str, Tensor] = {}
        for name, weight in without_constants(model.state_dict(), 0.2).items():
            tensors |= _shards(name, weight)
        tensors["mtp.fc_hidden.weight"] = torch.randn(64, 64)
    return tensors


def _shards(name: str, weight: Tensor) -> dict[str, Tensor]:
    if not name.endswith(".ngram_embedding.weight"):
        return {name: weight}
    module = name.removesuffix(".weight")
    parts = weight.chunk(TEXT["split_ngram_parts"])
    for part in parts:
        part[0, 0] = weight.abs().max()  # of one range, so that a number format scales them alike
    return {f"{module}.shard_{index}.weight": part.contiguous() for index, part in enumerate(parts)}


if __name__ == "__main__":
    tiny_command({"fp32": write_tiny}, {})
