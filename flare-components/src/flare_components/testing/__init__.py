"""Helpers for tests of recipes that need components: tiny checkpoints in every number format."""

from flare_components.testing.checkpoint_files import without_constants, write_checkpoint
from flare_components.testing.experts import split_experts, stack_experts
from flare_components.testing.plain_checkpoint import write_plain_checkpoint
from flare_components.testing.quantized_checkpoint import FORMATS, write_quantized_checkpoint
from flare_components.testing.tiny_command import tiny_command

__all__ = [
    "FORMATS",
    "split_experts",
    "stack_experts",
    "tiny_command",
    "without_constants",
    "write_checkpoint",
    "write_plain_checkpoint",
    "write_quantized_checkpoint",
]
