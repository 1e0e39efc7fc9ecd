"""Checkpoints with an image encoder only, the encoder that the recipe makes of one, and Transformers'."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from glm_image_samples import stored
from safetensors.torch import save_file
from torch import nn
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextVisionModel

from flare.prepare import Checkpoint, SafetensorsCheckpoint, TensorMap, read_weight_formats
from flare_components.modules import ImageEncoder, keep_formats
from flare_recipe_glm.image_config import ImageConfig, read_image_config
from flare_recipe_glm.image_tensors import VISUAL, encoder_rules, encoder_sources
from flare_recipe_glm.vision import image_encoder


def write_tower(directory: Path, seed: int = 0) -> Path:
    """Random weights, also where the class starts from constants."""
    directory.mkdir()
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        f"{VISUAL}.{name}": torch.randn(value.shape, generator=generator) * 0.2
        for name, value in Glm5NextVisionModel(images_of(stored()).encoder).state_dict().items()
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(stored()), encoding="utf-8")
    return directory


def images_of(config: dict[str, object]) -> ImageConfig:
    images = read_image_config(config)
    assert images is not None
    return images


def canonical(path: Path) -> Glm5NextVisionModel:
    """Of plain weights."""
    checkpoint = SafetensorsCheckpoint(path)
    tower = Glm5NextVisionModel(images_of(dict(checkpoint.config)).encoder).eval()
    tower.load_state_dict(
        {name.removeprefix(f"{VISUAL}."): checkpoint.load(name) for name in checkpoint.tensors}
    )
    return tower


def served(path: Path, dtype: torch.dtype = torch.float32) -> tuple[ImageEncoder, Checkpoint]:
    """The encoder with the weights of `path`, in the formats they are stored in."""
    checkpoint = SafetensorsCheckpoint(path)
    images, formats = images_of(dict(checkpoint.config)), read_weight_formats(checkpoint)
    encoder, frequencies = image_encoder(images, dtype)
    root = nn.ModuleDict({"image_encoder": encoder})
    keep_formats(root, formats, encoder_sources(images))
    rules = TensorMap(encoder_rules(formats, images))
    rules.check(checkpoint)
    state: dict[str, torch.Tensor] = {}
    for name, parameter in root.named_parameters():
        assert name in rules.rules, name
        value = rules.assemble(name, checkpoint)
        assert value.shape == parameter.shape, name
        state[name] = value.to(dtype) if parameter.dtype == dtype else value
        assert state[name].dtype == parameter.dtype, name
    assert state.keys() == rules.rules.keys()
    root.load_state_dict({**state, "image_encoder.frequencies": frequencies}, assign=True)
    return encoder.eval(), checkpoint
