"""Reading checkpoints in the hub's layout, in every number format that is served."""

from __future__ import annotations

from pathlib import Path

from flare.prepare import Checkpoint, SafetensorsCheckpoint, TensorMap
from flare.recipes import LocalCheckpoint
from flare_recipe_qwen.config import ModelConfig, read_config
from flare_recipe_qwen.tables import check_tables, ngram_tables
from flare_recipe_qwen.tensors import tensor_map


class QwenLoader:
    """The loader part of the recipe."""

    def open(self, path: Path | LocalCheckpoint) -> Checkpoint:
        """Open a directory with safetensors."""
        return SafetensorsCheckpoint(path)

    def config(self, checkpoint: Checkpoint) -> ModelConfig:
        """The configuration; raises CheckpointError naming a field or tensor that is not as it must be."""
        config = read_config(checkpoint)
        if checkpoint.tensors:  # of a published configuration there are none
            check_tables(ngram_tables(config), checkpoint)
        return config

    def tensor_map(self, config: ModelConfig) -> TensorMap:
        """See `flare_recipe_qwen.tensors`."""
        return tensor_map(config)
