"""Whether a recipe's frontend turns conversations into the bytes that Transformers makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flare.errors import RequestError
from flare.frontend import FrontendAssets, Prompts
from flare.testing.failure import blaming

if TYPE_CHECKING:
    from flare.prepare import Checkpoint
    from flare.recipes import Recipe

Conversation = Sequence[Mapping[str, Any]]

CONVERSATIONS: tuple[Conversation, ...] = (
    ({"role": "user", "content": "What is the capital of France?"},),
    ({"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Hello"}),
    (
        {"role": "user", "content": "  Count to three.\n\n"},
        {"role": "assistant", "content": "1 2 3"},
        {"role": "user", "content": 'Again, in 日本語 with <b>"quotes"</b> & 🙂'},
    ),
    ({"role": "user", "content": ""},),
)
"""One turn, a system message, several turns with space, markup and Unicode, and an empty message."""


def check_prompts(
    recipe: Recipe, checkpoint: Path, conversations: Sequence[Conversation] = CONVERSATIONS
) -> None:
    """Compare the prompts of `conversations`, text and token ids, with `apply_chat_template` of Transformers.

    Transformers reads the checkpoint's own tokenizer and template; Flare takes what the recipe would write
    into a core. A conversation that both refuse agrees. Raises AssertionError with the first difference.
    """
    opened = recipe.loader.open(checkpoint)
    with blaming("frontend"):
        prompts = Prompts(_assets(recipe, opened))
    theirs = _transformers_tokenizer(checkpoint, opened)
    for index, conversation in enumerate(conversations):
        messages = [dict(message) for message in conversation]
        expected = _rendered(theirs, messages)
        try:
            found = prompts.from_messages(messages)
        except RequestError as error:
            if expected is not None:
                raise AssertionError(f"prompt bytes: conversation {index} is refused: {error}") from error
            continue
        if expected is None:
            raise AssertionError(f"prompt bytes: conversation {index} is refused by Transformers only")
        assert found.text is not None
        _compare(index, found.text, expected)
        ids = theirs(expected, add_special_tokens=False)["input_ids"]
        if list(found.tokens) != ids:
            at = _common(found.tokens, ids)
            raise AssertionError(
                f"prompt bytes: conversation {index}: the same text has other token ids from position {at}: "
                f"{list(found.tokens[at : at + 4])} here, {ids[at : at + 4]} in Transformers"
            )


def _assets(recipe: Recipe, checkpoint: Checkpoint) -> FrontendAssets:
    files = recipe.frontend.assets(checkpoint, recipe.loader.config(checkpoint), recipe.sampling)
    template = files.frontend.template_asset
    return FrontendAssets(
        files.frontend,
        files.assets[files.frontend.tokenizer_asset],
        None if template is None else files.assets[template].decode(),
    )


def _transformers_tokenizer(path: Path, checkpoint: Checkpoint) -> Any:
    from transformers import PreTrainedTokenizerFast

    if path.is_dir():
        return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    from tokenizers import Tokenizer

    assets = checkpoint.assets
    tokenizer = Tokenizer.from_buffer(assets.tokenizer or b"")
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **assets.special_tokens)
    made.chat_template = assets.chat_template
    return made


def _rendered(tokenizer: Any, messages: list[dict[str, Any]]) -> str | None:
    """Transformers' prompt, None where the template refuses."""
    from jinja2 import TemplateError

    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError:
        return None
    return text


def _compare(index: int, found: str, expected: str) -> None:
    ours, theirs = found.encode(), expected.encode()
    if ours != theirs:
        at = _common(ours, theirs)
        raise AssertionError(
            f"prompt bytes: conversation {index}: from byte {at} the recipe's template gives "
            f"{ours[at : at + 40]!r}, Transformers {theirs[at : at + 40]!r}"
        )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading elements agree."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
