"""Reading checkpoints in the hub's layout, in every number format that is served."""

from __future__ import annotations

from pathlib import Path

from flare.prepare import Checkpoint, SafetensorsCheckpoint, TensorMap
from flare.recipes import LocalCheckpoint
from flare_recipe_glm.config import ModelConfig, read_config
from flare_recipe_glm.tensors import tensor_map


class GlmLoader:
    """The loader part of the recipe."""

    def open(self, path: Path | LocalCheckpoint) -> Checkpoint:
        """Open a directory with safetensors."""
        return SafetensorsCheckpoint(path)

    def config(self, checkpoint: Checkpoint) -> ModelConfig:
        """The configuration; raises CheckpointError naming a field that is not as it must be."""
        return read_config(checkpoint)

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        """See `flare_recipe_glm.tensors`."""
        return tensor_map(config)
