"""Helpers for recipe authors and for this project's own tests; with pytest installed also its plugin.

For a recipe package: `check_recipe` looks at everything that can be looked at without numbers,
`round_trip` prepares a tiny core and generates from it, `check_prompts` compares prompts with Transformers',
`check_chunks` compares logits with Transformers' however the text is divided, `check_retained` finds
bypassed modules. Every checker raises AssertionError with the part at fault in front. `write_tiny_checkpoint`
and `load_reference` are most of a recipe's oracle. `flare.testing.plugin` adds the fixtures.

The names load lazily: nothing here may make an unrelated test run slower.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flare.testing.chunk_equality import check_chunks
    from flare.testing.conversation import Conversation
    from flare.testing.prompt_bytes import CONVERSATIONS, PromptCheck, check_prompts
    from flare.testing.recipe_check import check_recipe
    from flare.testing.retained import check_retained
    from flare.testing.tiny_checkpoint import TINY_VOCABULARY, load_reference, write_tiny_checkpoint
    from flare.testing.tiny_core import TINY_CAPACITIES, round_trip

_HOME = {
    "CONVERSATIONS": "flare.testing.prompt_bytes",
    "Conversation": "flare.testing.conversation",
    "PromptCheck": "flare.testing.prompt_bytes",
    "TINY_CAPACITIES": "flare.testing.tiny_core",
    "TINY_VOCABULARY": "flare.testing.tiny_checkpoint",
    "check_chunks": "flare.testing.chunk_equality",
    "check_prompts": "flare.testing.prompt_bytes",
    "check_recipe": "flare.testing.recipe_check",
    "check_retained": "flare.testing.retained",
    "load_reference": "flare.testing.tiny_checkpoint",
    "round_trip": "flare.testing.tiny_core",
    "write_tiny_checkpoint": "flare.testing.tiny_checkpoint",
}

__all__ = [
    "CONVERSATIONS",
    "TINY_CAPACITIES",
    "TINY_VOCABULARY",
    "Conversation",
    "PromptCheck",
    "check_chunks",
    "check_prompts",
    "check_recipe",
    "check_retained",
    "load_reference",
    "round_trip",
    "write_tiny_checkpoint",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
