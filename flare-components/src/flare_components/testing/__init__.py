"""Helpers for tests of recipes that need components: tiny checkpoints in every number format."""

from flare_components.testing.plain_checkpoint import write_plain_checkpoint
from flare_components.testing.quantized_checkpoint import FORMATS, write_quantized_checkpoint

__all__ = ["FORMATS", "write_plain_checkpoint", "write_quantized_checkpoint"]
