"""Prompts of a wanted number of tokens that no prefix cache has seen."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from flare.bench.errors import BenchmarkError

# Words are one token each in common vocabularies; where they are not, their mean is only known roughly.
_TOLERANCE, _TOLERANCE_TOKENS = 0.2, 16
_SHORT_WORDS, _LONG_WORDS = 8, 32

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


@dataclass(frozen=True)
class Lengths:
    """Tokens of a prompt: `overhead` of the template (and of what it adds), and so many per word."""

    overhead: float
    per_word: float

    def words(self, tokens: int) -> int:
        """Words of a prompt of `tokens` tokens, template included; at least one."""
        return max(1, round((tokens - self.overhead) / self.per_word))

    def more_words(self, tokens: int) -> int:
        """Words of `tokens` tokens inside a longer prompt; at least one."""
        return max(1, round(tokens / self.per_word))


async def calibrate(count: Callable[[str], Awaitable[int]], writer: PromptWriter) -> Lengths:
    """Learn lengths from two prompts; `count` asks the server how many tokens one has. Raises: BenchmarkError
    when the longer is not longer."""
    text = writer.write(_LONG_WORDS)
    # The short one ends with the words of the long one, and so does not begin like it.
    short = await count(" ".join(text.split()[-_SHORT_WORDS:]))
    long = await count(text)
    if long <= short:
        raise BenchmarkError(
            f"the server counts {short} tokens in a prompt of {_SHORT_WORDS} words and {long} in one of "
            f"{_LONG_WORDS}: its usage cannot be used"
        )
    per_word = (long - short) / (_LONG_WORDS - _SHORT_WORDS)
    return Lengths(max(0.0, short - _SHORT_WORDS * per_word), per_word)


def check_length(measured: int, tokens: int) -> None:
    """Raises: BenchmarkError when a prompt is not about as long as wanted."""
    if abs(measured - tokens) > max(_TOLERANCE * tokens, _TOLERANCE_TOKENS):
        raise BenchmarkError(f"a prompt of about {tokens} tokens has {measured} by the server's usage")
