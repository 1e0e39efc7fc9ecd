"""The identical request again."""

from __future__ import annotations

from flare.bench.recorder import Recorder
from flare.bench.scenarios.common import add_first_token, check_fresh, fit
from flare.bench.target import Target, user

_AGAIN = 2


async def repeat(target: Target, recorder: Recorder) -> None:
    """A new prompt, and the same twice more. Raises: BenchmarkError when the new prompt was cached."""
    output = target.settings.answer_tokens
    conversation = [
        user(target.prompt(fit(target, recorder, target.settings.prefix_tokens, 2 * output + 16)))
    ]
    for number in range(1 + _AGAIN):
        answer = await recorder.attempt(target.complete(conversation, output))
        if answer is None:
            return
        if number == 0:
            check_fresh(answer, target)
        add_first_token(recorder, "first" if number == 0 else "again", answer)
