"""Whether a recipe's frontend turns conversations into the bytes that Transformers makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flare.errors import RequestError
from flare.frontend import FrontendAssets, Prompts
from flare.testing.conversation import Conversation
from flare.testing.failure import blaming
from flare.testing.reference_prompts import ReferencePrompts

if TYPE_CHECKING:
    from flare.prepare import Checkpoint
    from flare.recipes import Recipe

CONVERSATIONS: tuple[Conversation, ...] = (
    Conversation([{"role": "user", "content": "What is the capital of France?"}]),
    Conversation([{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Hello"}]),
    Conversation(
        [
            {"role": "user", "content": "  Count to three.\n\n"},
            {"role": "assistant", "content": "1 2 3"},
            {"role": "user", "content": 'Again, in 日本語 with <b>"quotes"</b> & 🙂'},
        ]
    ),
    Conversation([{"role": "user", "content": ""}]),
)
"""One turn, a system message, several turns with space, markup and Unicode, and an empty message."""


class PromptCheck:
    """Compares prompts of one checkpoint, text and token ids, with those of Transformers, which reads the
    checkpoint's own tokenizer, template and image processor; Flare takes what the recipe would write into a
    core."""

    def __init__(self, recipe: Recipe, path: Path) -> None:
        opened = recipe.loader.open(path)
        with blaming("frontend"):
            self.prompts = Prompts(_assets(recipe, opened))
        self._reference = ReferencePrompts(path, opened)

    def compare(
        self, name: str, conversation: Conversation, variables: Mapping[str, Any] | None = None
    ) -> bool:
        """Compare one prompt, with `variables` of the template. False when both sides refuse it. Raises
        AssertionError with the first difference, `name` in front."""
        try:
            text, ids = self._reference.prompt(conversation, variables or {}, self.prompts)
        except Exception as refusal:  # a template can raise anything
            return self._refused(name, conversation, variables, refusal)
        try:
            found = self.prompts.from_messages(
                conversation.messages, variables=variables, tools=conversation.tools
            )
        except RequestError as error:
            raise AssertionError(f"prompt bytes: {name} is refused: {error}") from error
        assert found.text is not None
        _compare_text(name, found.text, text)
        if list(found.tokens) != ids:
            at = _common(found.tokens, ids)
            raise AssertionError(
                f"prompt bytes: {name}: the same text has other token ids from position {at}: "
                f"{list(found.tokens[at : at + 4])} here, {ids[at : at + 4]} in Transformers"
            )
        return True

    def _refused(
        self,
        name: str,
        conversation: Conversation,
        variables: Mapping[str, Any] | None,
        refusal: Exception,
    ) -> bool:
        try:
            self.prompts.from_messages(conversation.messages, variables=variables, tools=conversation.tools)
        except RequestError:
            return False
        raise AssertionError(f"prompt bytes: {name} is refused by Transformers only: {refusal}") from refusal


def check_prompts(
    recipe: Recipe, checkpoint: Path, conversations: Sequence[Conversation] = CONVERSATIONS
) -> None:
    """Compare the prompts of `conversations`; see `PromptCheck`. A conversation that both refuse agrees.
    Raises AssertionError with the first difference."""
    check = PromptCheck(recipe, checkpoint)
    for index, conversation in enumerate(conversations):
        check.compare(f"conversation {index}", conversation)


def _assets(recipe: Recipe, checkpoint: Checkpoint) -> FrontendAssets:
    files = recipe.frontend.assets(checkpoint, recipe.loader.config(checkpoint), recipe.sampling)
    template = files.frontend.template_asset
    return FrontendAssets(
        files.frontend,
        files.assets[files.frontend.tokenizer_asset],
        None if template is None else files.assets[template].decode(),
    )


def _compare_text(name: str, found: str, expected: str) -> None:
    ours, theirs = found.encode(), expected.encode()
    if ours != theirs:
        at = _common(ours, theirs)
        raise AssertionError(
            f"prompt bytes: {name}: from byte {at} the recipe's template gives "
            f"{ours[at : at + 40]!r}, Transformers {theirs[at : at + 40]!r}"
        )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading elements agree."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
