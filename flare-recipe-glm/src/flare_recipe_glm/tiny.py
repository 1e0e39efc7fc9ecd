"""A tiny random checkpoint with everything that a real one has, under the names it was published with.

`python -m flare_recipe_glm.tiny DIRECTORY` writes one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Glm5NextConfig, Glm5NextForConditionalGeneration

from flare_components.testing import split_experts, tiny_command, without_constants, write_checkpoint
from flare_recipe_glm.names import CONVERTED, CONVOLUTIONS, JOINED_CONVOLUTION
from flare_recipe_glm.tiny_template import TEMPLATE
from flare_recipe_glm.tiny_text import TOKENS, tokenizer

TEXT: dict[str, Any] = {
    "model_type": "glm5_next_text",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "n_group": 1,
    "topk_group": 1,
    "moe_router_dtype": "float32",
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 0,
    "v_head_dim": 16,
    "mla_use_nope": True,
    "attention_bias": False,
    "hidden_act": "silu",
    "swiglu_limit": 2.0,  # of weights this small, so that it is felt
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1024,
    "index_topk": 16,
    "index_head_dim": 16,
    "index_n_heads": 16,  # with few heads, scores of zero would tie
    "index_kpool": 4,
    "index_kpool_compress": True,
    "index_kpool_always_select_tail": True,
    "num_nextn_predict_layers": 1,
    "mhc": True,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "linear_attn_config": {
        "num_heads": 4,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
        "gate_lower_bound": -5.0,
        "kda_layers": [0, 1, 3],
        "full_attn_layers": [2, 4],
    },
    "layer_types": [
        "linear_attention",
        "linear_attention",
        "deepseek_sparse_attention",
        "linear_attention",
        "deepseek_sparse_attention",
    ],
    "mlp_layer_types": ["dense"] + ["sparse"] * 4,
    "indexer_types": ["full"] * 5,
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
    "pad_token_id": TOKENS["<|endoftext|>"],
    "eos_token_id": [TOKENS["<|endoftext|>"], TOKENS["<|user|>"], TOKENS["<|observation|>"]],
}
VISION: dict[str, Any] = {
    "model_type": "glm5_next_vision",
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "in_channels": 3,
    "image_size": 56,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 64,
    "projection_intermediate_size": 96,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "swiglu_limit": 2.0,
    "attention_bias": True,
}
CONFIG: dict[str, Any] = {
    "architectures": ["Glm5NextForConditionalGeneration"],
    "model_type": "glm5_next",
    "tie_word_embeddings": False,
    "image_start_token_id": TOKENS["<|begin_of_image|>"],
    "image_end_token_id": TOKENS["<|end_of_image|>"],
    "image_token_id": TOKENS["<|image|>"],
    "video_start_token_id": TOKENS["<|begin_of_video|>"],
    "video_end_token_id": TOKENS["<|end_of_video|>"],
    "video_token_id": TOKENS["<|video|>"],
    "text_config": TEXT,
    "vision_config": VISION,
}
_PROCESSOR = {
    "image_processor_type": "Glm5NextImageProcessor",
    "processor_class": "Glm5NextProcessor",
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "patch_expand_factor": 1,
    "min_image_tokens": 4,
    "max_image_tokens": 64,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_EXPERTS = "*.mlp.experts.*"
_DRAFTING = "*.layers.5.mlp.experts.*"
_LATENT = "*.language_model.layers.[24].self_attn"
_BLOCKED = (
    _EXPERTS,
    "*.mlp.shared_experts.*",
    "*.language_model.layers.0.mlp.*_proj",
    f"{_LATENT}.q_?_proj",
    f"{_LATENT}.kv_a_proj_with_mqa",
    f"{_LATENT}.o_proj",
)
FORMATS: dict[str, tuple[str, dict[str, str]]] = {
    "fp8": ("fp8", dict.fromkeys(_BLOCKED, "FP8_BLOCK_SCALES")),
    "nvfp4": ("modelopt", {_DRAFTING: "MXFP8", _EXPERTS: "NVFP4"}),
    "nvfp4-csf": ("modelopt", {_DRAFTING: "MXFP8", _EXPERTS: "NVFP4-CSF"}),
    "nvfp4-a16": ("compressed-tensors", {_DRAFTING: "FP8_BLOCK_SCALES", _EXPERTS: "W4A16_NVFP4"}),
}
"""What checkpoints of the model are published in: whose configuration, and which weights are in which format.
Of FP8 the linear attention is left as it is."""
_EXACT = ("A_log", "dt_bias", "e_score_correction_bias", "_base", "_scale")
"""Endings of the tensors that are FP32 in every checkpoint."""


def write_tiny(directory: Path, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """Write it, in one file; returns `directory`.

    Five layers of every kind, eight experts, an image encoder, and a layer of multi-token prediction. Tokens
    are `flare_recipe_glm.tiny_text`'s.
    """
    tensors = {
        name: tensor if name.endswith(_EXACT) else tensor.to(dtype) for name, tensor in _tensors(seed).items()
    }
    files = {
        "config.json": {**CONFIG, "dtype": str(dtype).removeprefix("torch.")},
        "generation_config.json": {"eos_token_id": TEXT["eos_token_id"], "temperature": 1.0, "top_p": 0.95},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|endoftext|>",
            "pad_token": "<|endoftext|>",
        },
        "preprocessor_config.json": _PROCESSOR,
        "tokenizer.json": tokenizer().to_str(),
        "chat_template.jinja": TEMPLATE,
    }
    return write_checkpoint(directory, tensors, files)


def _tensors(seed: int) -> dict[str, Tensor]:
    fields = {name: value for name, value in CONFIG.items() if name != "architectures"}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Glm5NextForConditionalGeneration(Glm5NextConfig(**fields))
        tensors: dict[str, Tensor] = {}
        for name, weight in without_constants(model.state_dict(), 0.2).items():
            tensors |= _published(name, weight)
        drafting = f"model.language_model.layers.{TEXT['num_hidden_layers']}"
        tensors |= {
            f"{drafting}.eh_proj.weight": torch.randn(64, 128),
            f"{drafting}.shared_head.norm.weight": torch.randn(64),
            f"{drafting}.mlp.experts.0.down_proj.weight": torch.randn(64, 32),
        }
    return split_experts(tensors)


def _published(name: str, weight: Tensor) -> dict[str, Tensor]:
    if name.endswith(JOINED_CONVOLUTION):
        layer = name.removesuffix(JOINED_CONVOLUTION)
        parts = weight.chunk(len(CONVOLUTIONS))
        return {f"{layer}{own}": part.contiguous() for own, part in zip(CONVOLUTIONS, parts, strict=True)}
    for published, theirs in CONVERTED.items():
        name = name.replace(f".{theirs}", f".{published}")
    return {name: weight}


if __name__ == "__main__":
    tiny_command({"fp32": write_tiny, "bf16": partial(write_tiny, dtype=torch.bfloat16)}, FORMATS)
