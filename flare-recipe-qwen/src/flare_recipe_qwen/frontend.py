"""The frontend: the checkpoint's tokenizer and chat template, and what ends generation.

The template renders thinking itself: `enable_thinking`, `preserve_thinking` and `reasoning_effort` are its
variables, and what it takes without them is what the model card describes as the default.
"""

from __future__ import annotations

from flare.contract import DefaultSampling, TaggedArguments
from flare.prepare import Checkpoint
from flare.recipes import CheckpointText, FrontendFiles
from flare_recipe_qwen.config import ModelConfig
from flare_recipe_qwen.image_config import image_profile

_END_OF_TEXT = ("<|im_end|>", "<|endoftext|>")
_ARGUMENTS = TaggedArguments(
    name_start="<function=",
    name_end=">",
    argument_start="<parameter=",
    key_end=">",
    value_end="</parameter>",
    body_end="</function>",
    newlines=True,
)


class QwenFrontend:
    """The frontend part of the recipe."""

    def assets(self, checkpoint: Checkpoint, config: ModelConfig, sampling: DefaultSampling) -> FrontendFiles:
        """Tokenizer and template bytes, and what images are made into. Raises CheckpointError when one is
        missing."""
        text, images = CheckpointText(checkpoint.assets), config.images
        return text.frontend(
            vocab_size=config.text.vocab_size,
            ends=_END_OF_TEXT,
            sampling=sampling,
            output=text.tagged_output(_ARGUMENTS),
            images=image_profile(images, checkpoint.assets.image_processor) if images else None,
        )
