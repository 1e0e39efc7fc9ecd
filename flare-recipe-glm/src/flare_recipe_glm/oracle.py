"""References for tests and for the prompt that a core records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Glm5NextConfig, Glm5NextForConditionalGeneration

from flare.contract import DType
from flare.prepare import Checkpoint, CheckpointError, serving_dtype
from flare_components.testing import stack_experts
from flare_recipe_glm.config import ModelConfig, read_config
from flare_recipe_glm.names import CONVERTED
from flare_recipe_glm.tensors import drafting_tensors
from flare_recipe_glm.tiny import write_tiny

_CONVOLUTION = re.compile(r"(.*\.self_attn)\.([qkv])_conv1d\.weight")


class GlmOracle:
    """The oracle part of the recipe."""

    def reference(self, checkpoint: Checkpoint, dtype: DType) -> nn.Module:
        """Transformers' model with this checkpoint's weights, which must be plain ones."""
        if "quantization_config" in checkpoint.config:
            raise CheckpointError(
                "Transformers' model takes plain weights; decode the checkpoint first, with "
                "flare_components.testing.write_plain_checkpoint",
                field="quantization_config",
            )
        config = read_config(checkpoint)
        model = _model(config).eval()
        for name, parameter in model.named_parameters():
            if not any(exact in name for exact in model._keep_in_fp32_modules_strict):
                parameter.data = parameter.data.to(serving_dtype(dtype))
        left_out = set(drafting_tensors(config))
        stored = {
            name.replace(config.prefix, "model.language_model", 1): checkpoint.load(name)
            for name in checkpoint.tensors
            if name not in left_out
        }
        model.load_state_dict(converted(stored))
        return model

    def tiny_checkpoint(self, directory: Path, *, seed: int = 0) -> Path:
        """See `flare_recipe_glm.tiny`."""
        return write_tiny(directory, seed=seed)

    def prompt(self) -> str:
        """A question whose answer is short."""
        return "[gMASK]<sop><|user|>What is the capital of France?<|assistant|><think>"


def _model(config: ModelConfig) -> nn.Module:
    text = config.text
    text._attn_implementation = text._experts_implementation = "eager"
    if config.images is None:
        # The class has an encoder whatever it reads: the smallest one, and then none.
        sizes = dict.fromkeys(("hidden_size", "intermediate_size", "projection_intermediate_size"), 16)
        model = Glm5NextForConditionalGeneration(
            Glm5NextConfig(text_config=text, vision_config={**sizes, "depth": 0, "num_heads": 1})
        )
        del model.model.visual
        return model
    config.images.encoder._attn_implementation = "eager"
    return Glm5NextForConditionalGeneration(
        Glm5NextConfig(
            text_config=text,
            vision_config=config.images.encoder,
            image_token_id=config.images.placeholder,
        )
    )


def converted(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Published tensors as Transformers has them: other names, convolutions and experts together."""
    joined: dict[str, Tensor] = {}
    rows: dict[str, dict[str, Tensor]] = {}
    for name, tensor in stack_experts(stored).items():
        if match := _CONVOLUTION.fullmatch(name):
            rows.setdefault(match[1], {})[match[2]] = tensor
        else:
            joined[_renamed(name)] = tensor
    for name, parts in rows.items():
        joined[f"{name}.conv1d.weight"] = torch.cat([parts[part] for part in "qkv"])
    return joined


def _renamed(name: str) -> str:
    for published, theirs in CONVERTED.items():
        if f".{published}" in name:
            return name.replace(f".{published}", f".{theirs}")
    return name
