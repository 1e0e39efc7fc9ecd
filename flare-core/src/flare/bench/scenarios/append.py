"""One conversation that grows, as an agent's does: each turn appends the answer and a tool's result."""

from __future__ import annotations

from flare.bench.recorder import Recorder
from flare.bench.scenarios.common import add_first_token, check_fresh, fit
from flare.bench.target import Message, Target, user

_MESSAGE_TOKENS = 16  # what a template puts around two messages, at most


async def append(target: Target, recorder: Recorder) -> None:
    """One conversation of `turns` turns. `appended` are the prompt tokens that the turn before did not have,
    neither as prompt nor as answer: all a server with a prefix cache has to compute.

    Raises: BenchmarkError when the first turn was cached.
    """
    settings = target.settings
    per_turn = settings.append_tokens + settings.answer_tokens + _MESSAGE_TOKENS
    room = (settings.turns - 1) * per_turn + settings.answer_tokens + settings.append_tokens // 2
    first = fit(target, recorder, settings.prefix_tokens, room)
    conversation: list[Message] = [user(target.prompt(first))]
    seen = 0
    for turn in range(1, settings.turns + 1):
        answer = await recorder.attempt(target.complete(conversation, settings.answer_tokens))
        if answer is None:
            return
        if turn == 1:
            check_fresh(answer, target)
        case = f"turn {turn}"
        add_first_token(recorder, case, answer)
        recorder.add(case, "appended", answer.prompt_tokens - seen, "tokens")
        seen = answer.prompt_tokens + answer.completion_tokens
        conversation.append(("assistant", answer.text))
        # A role that every template has; servers differ in what they take as `tool`.
        conversation.append(user(f"Tool result: {target.words(settings.append_tokens)}"))
