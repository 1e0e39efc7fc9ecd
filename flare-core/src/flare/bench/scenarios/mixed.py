"""A long prompt beside running streams: how long it waits, and how long it makes the streams wait."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any

from flare.bench.errors import BenchmarkError
from flare.bench.recorder import Recorder
from flare.bench.scenarios.common import add_first_token, check_fresh, fit
from flare.bench.stream import Completion, Stream
from flare.bench.target import Target, user
from flare.bench.timing import gaps, percentile

_LONGEST_OUTPUT = 4096
_WARM_EVENTS, _BEFORE_EVENTS = 4, 24  # of each stream before the long prompt is sent


async def mixed(target: Target, recorder: Recorder) -> None:
    """Streams run; then one long prompt is sent. `before` are the streams' pauses until then, `during` those
    from then to the long prompt's first token. The streams are cut afterwards.

    Raises: BenchmarkError when a stream ended too early.
    """
    settings = target.settings
    output = settings.answer_tokens
    long_tokens = fit(target, recorder, max(settings.prompt_tokens), output)
    short_tokens = fit(target, recorder, settings.decode_prompt_tokens, 2 * _BEFORE_EVENTS)
    room = _LONGEST_OUTPUT if target.context is None else target.context - 2 * short_tokens
    streams = [
        target.stream([user(target.prompt(short_tokens))], min(room, _LONGEST_OUTPUT))
        for _ in range(settings.running_streams)
    ]
    recorder.requests += len(streams)
    running = [asyncio.create_task(stream.run()) for stream in streams]
    warm = sent = 0.0
    answer = None
    try:
        if await _all_reach(streams, running, _WARM_EVENTS):
            warm = time.perf_counter()
            if await _all_reach(streams, running, _WARM_EVENTS + _BEFORE_EVENTS):
                sent = time.perf_counter()
                answer = await recorder.attempt(target.complete([user(target.prompt(long_tokens))], output))
    finally:
        for task in running:
            task.cancel()
        ends = await asyncio.gather(*running, return_exceptions=True)
    if failed := [end for end in ends if isinstance(end, BenchmarkError)]:
        for error in failed:
            recorder.fail(error)
        return
    waited = math.inf if answer is None else answer.times[0]
    for end in ends:
        if isinstance(end, Completion) and end.times[-1] < waited:
            raise BenchmarkError("a running stream ended before the long prompt's first token")
        if isinstance(end, Exception):
            raise end
    if answer is not None:
        check_fresh(answer, target)
        case = f"{long_tokens} tokens beside {len(streams)} streams"
        _add(recorder, case, streams, (warm, sent), answer)


async def _all_reach(
    streams: Sequence[Stream], running: Sequence[asyncio.Task[Completion]], events: int
) -> bool:
    """Wait until every stream had so many events; False when one ended before."""
    reached = asyncio.gather(*(stream.reach(events) for stream in streams))
    waits: set[asyncio.Future[Any]] = {reached, *running}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if reached.done():
        return True
    reached.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reached
    return False


def _add(
    recorder: Recorder,
    case: str,
    streams: Sequence[Stream],
    before: tuple[float, float],
    answer: Completion,
) -> None:
    during = (answer.sent, answer.times[0])
    times = [stream.arrivals() for stream in streams]
    if any(arrived[-1] < during[1] for arrived in times):
        recorder.note(
            "a stream was still paused when the long prompt was answered: that pause is not counted"
        )
    for name, (start, end) in (("before", before), ("during", during)):
        # Pauses that reach into the time count whole: the one that the prefill caused ends after it.
        pauses = [gap for arrived in times for gap in gaps(arrived, _widened(arrived, start, end))]
        for label, value in (
            ("p50", percentile(pauses, 50)),
            ("p99", percentile(pauses, 99)),
            ("max", max(pauses)),
        ):
            recorder.add(case, f"inter-token {name}, {label}", value, "ms", "lower")
    add_first_token(recorder, case, answer)


def _widened(times: Sequence[float], start: float, end: float) -> tuple[float, float]:
    """`start` and `end` moved outwards to the neighbouring times, if there are any."""
    earlier = [time for time in times if time <= start]
    later = [time for time in times if time >= end]
    return (earlier[-1] if earlier else start), (later[0] if later else end)
