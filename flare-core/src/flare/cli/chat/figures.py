"""How many tokens answers took, and how fast they came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flare.cli.chat.answer import Answer


@dataclass(frozen=True)
class Counts:
    """Tokens of an answer; `cached` of the prompt and `reasoning` of what was drawn are None where the server
    does not say. How much was cached is known when the answer ended."""

    prompt: int
    cached: int | None
    drawn: int
    reasoning: int | None

    @classmethod
    def of(cls, answer: Answer) -> Counts | None:
        """From the usage of the API (https://platform.openai.com/docs/api-reference/chat/object); None
        without one."""
        usage = answer.usage
        if not usage:
            return None
        cached = _detail(usage, "prompt_tokens_details", "cached_tokens") if answer.finish else None
        reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
        return cls(usage["prompt_tokens"], cached, usage["completion_tokens"], reasoning)

    def __str__(self) -> str:
        cached = "" if self.cached is None else f" ({self.cached} cached)"
        reasoning = f" ({self.reasoning} reasoning)" if self.reasoning else ""
        return f"{self.prompt} prompt tokens{cached}, {self.drawn} drawn{reasoning}"


def summary(answer: Answer) -> str:
    """One line: counts, time to the first token in ms, tokens per second behind it."""
    counts = Counts.of(answer)
    words = [] if counts is None else [str(counts)]
    if answer.first:
        words.append(f"first token after {1000 * answer.first:.0f} ms")
    if counts is not None and counts.drawn > 1 and answer.last > answer.first:
        words.append(f"{(counts.drawn - 1) / (answer.last - answer.first):.1f} tok/s")
    return ", ".join(words) or "no tokens"


@dataclass
class Totals:
    """Sums over the answers of a conversation, taken back and stopped ones too; `context` is how many tokens
    the last one left it with."""

    answers: int = 0
    prompt: int = 0
    cached: int = 0
    drawn: int = 0
    reasoning: int = 0
    context: int = 0

    def add(self, answer: Answer) -> None:
        """One answer more."""
        self.answers += 1
        if (counts := Counts.of(answer)) is not None:
            self.prompt += counts.prompt
            self.cached += counts.cached or 0
            self.drawn += counts.drawn
            self.reasoning += counts.reasoning or 0
            self.context = counts.prompt + counts.drawn

    def __str__(self) -> str:
        counts = Counts(self.prompt, self.cached, self.drawn, self.reasoning)
        return f"{self.answers} answer{'' if self.answers == 1 else 's'}: {counts}"


def _detail(usage: dict[str, Any], group: str, name: str) -> int | None:
    value = (usage.get(group) or {}).get(name)
    return value if isinstance(value, int) else None
