"""Some streams at once: their speed while all of them decode."""

from __future__ import annotations

import asyncio

from flare.bench.recorder import Recorder
from flare.bench.scenarios.common import check_drawn, fit
from flare.bench.stream import Completion
from flare.bench.target import Target, user
from flare.bench.timing import common_window, gaps, percentile, tokens_per_second


async def decode(target: Target, recorder: Recorder) -> None:
    """Once per number of streams, which start together. Prefill is no part of the rates: they are taken from
    the latest first text to the earliest last one.

    Raises: BenchmarkError when the streams did not overlap or ended early.
    """
    output = target.settings.output_tokens
    prompt = fit(target, recorder, target.settings.decode_prompt_tokens, output)
    for streams in target.settings.concurrency:
        requests = [target.complete([user(target.prompt(prompt))], output) for _ in range(streams)]
        target.step_log.skip(await target.steps(target.step_log.newest))
        answers = await asyncio.gather(*map(recorder.attempt, requests))
        target.step_log.take(await target.steps(target.step_log.newest), streams)
        complete = [answer for answer in answers if answer is not None]
        if len(complete) == streams:
            for answer in complete:
                check_drawn(answer, output)
            _add(recorder, complete)


def _add(recorder: Recorder, answers: list[Completion]) -> None:
    streams = len(answers)
    case = f"{streams} stream{'' if streams == 1 else 's'}"
    window = common_window(answers)
    pauses = [gap for answer in answers for gap in gaps(answer.times, window)]
    total = tokens_per_second(answers, window)
    recorder.add(case, "total", total, "tok/s", "higher")
    recorder.add(case, "per stream", total / streams, "tok/s", "higher")
    recorder.add(case, "inter-token p50", percentile(pauses, 50), "ms", "lower")
    recorder.add(case, "inter-token p99", percentile(pauses, 99), "ms", "lower")
    if any(answer.tokens_per_event > 1.5 for answer in answers):
        recorder.note("the server joins several tokens in an event: inter-token times are between events")
