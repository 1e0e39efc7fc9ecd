"""Refusals with a code of their own, each a `RequestError` (HTTP 400), and what becomes one."""

from __future__ import annotations

from flare.errors import RequestError


class TooManyTokens(Exception):
    """A text has `count` tokens, more than the `most` that the caller takes."""

    def __init__(self, count: int, most: int) -> None:
        super().__init__(count, most)
        self.count = count
        self.most = most


class UnsupportedError(RequestError):
    """The request asks for a known feature that this server, or this model, does not serve."""

    code = "unsupported"


class ImageAddressError(RequestError):
    """An image that is named by its address is not fetched; the message says why."""

    code = "image_not_fetched"


class ContextLengthError(RequestError):
    """Prompt, or prompt and requested output, do not fit the context; the message gives the numbers."""

    code = "context_length_exceeded"

    @classmethod
    def of_prompt(cls, prompt: int, context: int, field: str) -> ContextLengthError:
        """A prompt of `prompt` tokens that leaves no room for output in a context of `context` tokens."""
        # Clients look for the words and numbers in front to learn how much of a conversation has to go.
        return cls(
            f"the prompt is too long: {prompt} tokens > {context} tokens of context; with output it needs at "
            f"least {prompt + 1}",
            field=field,
        )
