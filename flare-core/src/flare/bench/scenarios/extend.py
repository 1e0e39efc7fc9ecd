"""A prompt that goes on where one ended that was answered just now."""

from __future__ import annotations

from flare.bench.recorder import Recorder
from flare.bench.scenarios.common import add_first_token, check_fresh, fit
from flare.bench.target import Target, user

_TAILS = 3


async def extend(target: Target, recorder: Recorder) -> None:
    """A new prompt, and the same with several other tails of `append_tokens` in the same message: whether a
    server finds a prefix that ends inside a message, and what the tail costs. By chat some servers keep
    prefixes at the ends of messages only; ask them for completions.

    Raises: BenchmarkError when the new prompt was cached.
    """
    settings = target.settings
    output = settings.answer_tokens
    prefix = target.prompt(fit(target, recorder, settings.prefix_tokens, output + 2 * settings.append_tokens))
    for number in range(1 + _TAILS):
        text = f"{prefix} {target.words(settings.append_tokens)}" if number else prefix
        answer = await recorder.attempt(target.complete([user(text)], output))
        if answer is None:
            return
        if number == 0:
            check_fresh(answer, target)
        add_first_token(recorder, "with a tail" if number else "first", answer)
