"""SmolLM2's frontend: its tokenizer, its chat template, and what ends generation."""

from __future__ import annotations

from typing import Any

from flare.contract import DefaultSampling
from flare.prepare import Checkpoint
from flare.recipes import CheckpointText, FrontendFiles

_END_OF_TEXT = ("<|im_end|>", "<|endoftext|>")


class SmolLMFrontend:
    """The frontend part of the recipe."""

    def assets(self, checkpoint: Checkpoint, config: Any, sampling: DefaultSampling) -> FrontendFiles:
        """Tokenizer and template bytes of the checkpoint. Raises CheckpointError when one is missing."""
        return CheckpointText(checkpoint.assets).frontend(
            vocab_size=config.vocab_size,
            ends=_END_OF_TEXT,
            sampling=sampling,
            special_tokens={"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
        )
