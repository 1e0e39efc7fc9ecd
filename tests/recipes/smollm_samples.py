"""A tiny random model of the recipe's architecture, as Transformers' tensors and as a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he"]
TOKENS = [*CONTROL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
HEADS, KEY_VALUE_HEADS, HEAD_DIM = 4, 2, 6
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def tiny_config(*, tied: bool = True) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )


def tiny_tensors(config: LlamaConfig) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = dict(LlamaForCausalLM(config).state_dict())
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    # Norms are all ones after initialisation: mixing two of them up would go unnoticed.
    return {name: torch.randn(tensor.shape) for name, tensor in tensors.items()}


def write_gguf(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    *,
    changes: Mapping[str, Any] = {},
    extra: Mapping[str, np.ndarray] = {},
) -> Path:
    """Write a file as the published converter would. `changes` replaces metadata (None removes a key)."""
    metadata: dict[str, Any] = {
        "llama.vocab_size": len(TOKENS),
        "llama.embedding_length": 24,
        "llama.feed_forward_length": 40,
        "llama.block_count": 2,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KEY_VALUE_HEADS,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.context_length": 64,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL)),
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.chat_template": "{{ messages[0].content }}",
    }
    metadata.update(changes)
    writer = gguf.GGUFWriter(path, metadata.pop("general.architecture", "llama"))
    for key, value in metadata.items():
        match value:
            case None:
                pass
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case _:
                writer.add_array(key, value)
    for name, tensor in tensors.items():
        writer.add_tensor(stored_name(name), stored_rows(name, tensor).numpy())
    for name, array in extra.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def stored_name(name: str) -> str:
    module = name.removesuffix(".weight")
    if module.startswith("model.layers."):
        _, _, index, inner = module.split(".", 3)
        return f"blk.{index}.{NAMES[inner]}.weight"
    return f"{NAMES[module]}.weight"


def stored_rows(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Query and key rows from rotary halves to neighbouring pairs."""
    heads = HEADS if ".q_proj" in name else KEY_VALUE_HEADS if ".k_proj" in name else None
    if heads is None:
        return tensor
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape).contiguous()
