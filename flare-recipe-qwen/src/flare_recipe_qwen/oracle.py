"""References for tests and for the prompt that a core records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Qwen4ExpConfig, Qwen4ExpForCausalLM, Qwen4ExpForConditionalGeneration

from flare.contract import DType
from flare.prepare import Checkpoint, CheckpointError, serving_dtype
from flare_components.testing import stack_experts
from flare_recipe_qwen.config import ModelConfig, read_config
from flare_recipe_qwen.tensors import LEFT_OUT
from flare_recipe_qwen.tiny import write_tiny

_SHARD = re.compile(r"(.*\.ngram_embedding)\.shard_(\d+)\.weight")


class QwenOracle:
    """The oracle part of the recipe."""

    def reference(self, checkpoint: Checkpoint, dtype: DType) -> nn.Module:
        """Transformers' model with this checkpoint's weights, which must be plain ones: that of texts, or
        that of texts with images."""
        if "quantization_config" in checkpoint.config:
            raise CheckpointError(
                "Transformers' model takes plain weights; decode the checkpoint first, with "
                "flare_components.testing.write_plain_checkpoint",
                field="quantization_config",
            )
        config = read_config(checkpoint)
        model = _model(config).eval()
        prefix = "model" if config.images is None else config.prefix
        for parameter in model.parameters():
            parameter.data = parameter.data.to(serving_dtype(dtype))
        stored = {
            name.replace(config.prefix, prefix, 1): checkpoint.load(name)
            for name in checkpoint.tensors
            if not name.startswith(tuple(LEFT_OUT))
        }
        model.load_state_dict(_joined(stored))
        return model

    def tiny_checkpoint(self, directory: Path, *, seed: int = 0) -> Path:
        """See `flare_recipe_qwen.tiny`."""
        return write_tiny(directory, seed=seed)

    def prompt(self) -> str:
        """A question whose answer is short."""
        return "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n"


def _model(config: ModelConfig) -> nn.Module:
    config.text._attn_implementation = config.text._experts_implementation = "eager"
    if config.images is None:
        return Qwen4ExpForCausalLM(config.text)
    config.images.encoder._attn_implementation = "eager"
    return Qwen4ExpForConditionalGeneration(
        Qwen4ExpConfig(
            text_config=config.text,
            vision_config=config.images.encoder,
            image_token_id=config.images.placeholder,
        )
    )


def _joined(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Shards of tables, and experts one by one, as Transformers has them: together."""
    joined: dict[str, Tensor] = {}
    shards: dict[str, dict[int, Tensor]] = {}
    for name, tensor in stack_experts(stored).items():
        if match := _SHARD.fullmatch(name):
            shards.setdefault(match[1], {})[int(match[2])] = tensor
        else:
            joined[name] = tensor
    for name, parts in shards.items():
        joined[f"{name}.weight"] = torch.cat([parts[index] for index in sorted(parts)])
    return joined
