"""The frontend: the checkpoint's tokenizer and chat template, what ends generation, and how the model writes.

The template always opens the reasoning. `reasoning_effort` (low, high, else max) and `clear_thinking` (drop
that of earlier turns) are its variables, and what it takes without them is what the model card describes as
the default.
"""

from __future__ import annotations

from flare.contract import DefaultSampling, TaggedArguments
from flare.prepare import Checkpoint
from flare.recipes import CheckpointText, FrontendFiles
from flare_recipe_glm.config import ModelConfig
from flare_recipe_glm.image_config import image_profile

# The end of the text, the user's turn, and results of tools: what comes next is not the model's.
_ENDS = ("<|endoftext|>", "<|user|>", "<|observation|>")
_ARGUMENTS = TaggedArguments(
    argument_start="<arg_key>",
    key_end="</arg_key>",
    value_start="<arg_value>",
    value_end="</arg_value>",
)


class GlmFrontend:
    """The frontend part of the recipe."""

    def assets(self, checkpoint: Checkpoint, config: ModelConfig, sampling: DefaultSampling) -> FrontendFiles:
        """Tokenizer and template bytes, and what images are made into. Raises CheckpointError when one is
        missing, or the tokenizer has not the tokens that the model writes."""
        text, images = CheckpointText(checkpoint.assets), config.images
        return text.frontend(
            vocab_size=config.text.vocab_size,
            ends=_ENDS,
            sampling=sampling,
            output=text.tagged_output(_ARGUMENTS),
            images=image_profile(images, checkpoint.assets.image_processor) if images else None,
        )
