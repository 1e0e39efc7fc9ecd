"""Prompts that no cache has seen, one at a time: how the first token's latency grows with the length."""

from __future__ import annotations

from flare.bench.prompts import check_length
from flare.bench.recorder import Recorder
from flare.bench.scenarios.common import add_first_token, check_fresh, fit
from flare.bench.target import Target, user


async def cold(target: Target, recorder: Recorder) -> None:
    """Once per length. `prefill` is the prompt's tokens over the time to the first token.

    Raises: BenchmarkError for a prompt of another length, or one that was cached.
    """
    output = target.settings.answer_tokens
    lengths = {fit(target, recorder, tokens, output) for tokens in target.settings.prompt_tokens}
    for tokens in sorted(lengths):
        answer = await recorder.attempt(target.complete([user(target.prompt(tokens))], output))
        if answer is None:
            continue
        check_length(answer.prompt_tokens, tokens)
        check_fresh(answer, target)
        case = f"{tokens} tokens"
        add_first_token(recorder, case, answer)
        computed = answer.prompt_tokens - (answer.cached_tokens or 0)
        recorder.add(case, "prefill", 1000 * computed / answer.first_token_ms, "tok/s", "higher")
