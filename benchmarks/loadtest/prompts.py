"""Prompts of a wanted number of tokens that no prefix cache has seen."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from loadtest.errors import BenchmarkError

TOLERANCE = 0.02
MOST_ATTEMPTS = 8

# One token each in common vocabularies, so that prompts of equally many words are equally long.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "home water room mother area money story fact month lot right study book eye job word business issue "
    "side kind head house service friend father power hour game line end member law car city name team"
)
WORDS = _TEXT.split()


class PromptWriter:
    """Random words from the first on: two prompts share a beginning by chance only.

    The default seed comes from the system: a server that kept running has not seen the prompts either.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def write(self, words: int) -> str:
        """A prompt of `words` words."""
        return " ".join(self._random.choices(WORDS, k=words))


async def fit_words(tokens: int, count: Callable[[str], Awaitable[int]], writer: PromptWriter) -> int:
    """How many words make a prompt of `tokens` tokens, within 2 percent.

    `count` asks the server how many tokens a prompt has. Raises: BenchmarkError when the number of words
    does not settle.
    """
    words = tokens
    for _ in range(MOST_ATTEMPTS):
        measured = await count(writer.write(words))
        if within(measured, tokens):
            return words
        if measured <= 0:
            raise BenchmarkError(f"the server counts {measured} tokens in a prompt of {words} words")
        words = max(1, round(words * tokens / measured))
    raise BenchmarkError(f"no number of words gives a prompt of {tokens} tokens within 2 percent")


def within(measured: int, tokens: int) -> bool:
    """Whether a prompt is as long as wanted, within 2 percent."""
    return abs(measured - tokens) <= TOLERANCE * tokens
