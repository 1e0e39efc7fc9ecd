"""Several continuations of one prefix, one after the other and at once."""

from __future__ import annotations

import asyncio

from flare.bench.recorder import Recorder
from flare.bench.scenarios.common import add_first_token, check_fresh, fit
from flare.bench.target import Message, Target, user


async def branch(target: Target, recorder: Recorder) -> None:
    """`branches` continuations of a new prefix: the first, later ones alone, and as many at once.

    Raises: BenchmarkError when the prefix was cached before.
    """
    settings = target.settings
    output = settings.answer_tokens
    prefix_tokens = fit(target, recorder, settings.prefix_tokens, output + 2 * settings.append_tokens)
    prefix = target.prompt(prefix_tokens)

    def continuation() -> list[Message]:
        return [("system", prefix), user(target.words(settings.append_tokens))]

    for number in range(settings.branches):
        answer = await recorder.attempt(target.complete(continuation(), output))
        if answer is None:
            return
        if number == 0:
            check_fresh(answer, target)
        add_first_token(recorder, "first" if number == 0 else "next, alone", answer)

    requests = [target.complete(continuation(), output) for _ in range(settings.branches)]
    for answer in await asyncio.gather(*map(recorder.attempt, requests)):
        if answer is not None:
            add_first_token(recorder, f"{settings.branches} at once", answer)
