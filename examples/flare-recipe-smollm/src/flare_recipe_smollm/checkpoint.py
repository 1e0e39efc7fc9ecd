"""The checkpoint formats: the hub's directory as it is, the GGUF file under the hub's names.

Names in a GGUF file: https://github.com/ggml-org/llama.cpp/blob/master/gguf-py/gguf/constants.py.
"""

from __future__ import annotations

from pathlib import Path

from flare.prepare import (
    Assets,
    Checkpoint,
    GgufFile,
    MappedCheckpoint,
    PairsToHalves,
    SafetensorsCheckpoint,
    TensorMap,
    TensorRule,
)
from flare.recipes import LocalCheckpoint
from flare_recipe_smollm.gguf_config import read_config
from flare_recipe_smollm.gguf_tokenizer import read_special_tokens, read_tokenizer


def open_checkpoint(checkpoint: Path | LocalCheckpoint) -> Checkpoint:
    """Open a directory in the hub's layout, or a GGUF file. Both give the tensor names of Transformers.

    Raises: CheckpointError naming what is missing, unknown or damaged.
    """
    path = Path(checkpoint)
    if path.is_dir():
        return SafetensorsCheckpoint(checkpoint)
    return _open_gguf(checkpoint)


def _open_gguf(checkpoint: Path | LocalCheckpoint) -> Checkpoint:
    file = GgufFile(checkpoint)
    config = read_config(file)
    mapping = gguf_tensor_map(
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        key_value_heads=config["num_key_value_heads"],
        tied=config["tie_word_embeddings"],
    )
    assets = Assets(
        tokenizer=read_tokenizer(file),
        chat_template=file.metadata.get("tokenizer.chat_template"),
        special_tokens=read_special_tokens(file),
    )
    return MappedCheckpoint(file, mapping, config=config, assets=assets, revision=file.revision)


def gguf_tensor_map(*, layers: int, heads: int, key_value_heads: int, tied: bool) -> TensorMap:
    """Transformers' names from GGUF names. Query and key rows are stored as rotary pairs and moved back."""
    rules = {
        "model.embed_tokens.weight": TensorRule(("token_embd.weight",)),
        "model.norm.weight": TensorRule(("output_norm.weight",)),
    }
    if not tied:
        rules["lm_head.weight"] = TensorRule(("output.weight",))
    for index in range(layers):
        layer, block = f"model.layers.{index}", f"blk.{index}"
        for name, stored in _PLAIN.items():
            rules[f"{layer}.{name}.weight"] = TensorRule((f"{block}.{stored}.weight",))
        for name, stored, count in (("q", "attn_q", heads), ("k", "attn_k", key_value_heads)):
            rule = TensorRule((f"{block}.{stored}.weight",), PairsToHalves(count))
            rules[f"{layer}.self_attn.{name}_proj.weight"] = rule
    return TensorMap(rules)


_PLAIN = {
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
