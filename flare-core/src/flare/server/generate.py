"""Generation responses, whole or as an event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flare.engine.interface import EngineClient
from flare.server.failures import note_failure
from flare.server.formats import Format, Result
from flare.server.group import Group
from flare.server.jobs import Job
from flare.server.outcome import Outcome
from flare.server.pulse import Pulse
from flare.server.record import RequestRecord

_WRITTEN_AT_ONCE = 16 << 10  # bytes of a stream
_ENCODED_AT_ONCE = 2000  # log-probabilities; more are encoded on a thread


async def generate(
    request: Request, engine: EngineClient, job: Job, form: Format, keep_alive: float
) -> Response:
    """Run `job`; a stream shows life after `keep_alive` seconds of silence.

    The response exists once the first choice is admitted: a refusal before it is an HTTP error
    (RequestError, UnavailableError, ExecutionError as of `EngineClient.submit`)."""
    record: RequestRecord = request.state.record
    record.choices = job.choices
    for choice in job.choices:
        choice.arrived_at = record.started
    group = await request.state.resources.enter_async_context(Group(engine, job.choices))
    await group.start()
    if job.stream:
        record.last_event = partial(form.failure, request_id=record.id)
        return EventStream(_events(group, form), record, form.beat(), keep_alive)
    results = await _collect(group, job)
    scored = sum(len(tokens) * (1 + job.alternatives) for _, _, tokens in results)
    if scored > _ENCODED_AT_ONCE:
        body = await asyncio.to_thread(form.body, results)
    else:
        body = form.body(results)
    return Response(body, media_type="application/json")


async def _events(group: Group, form: Format) -> AsyncIterator[bytes]:
    if beginning := form.begin():
        yield beginning
    async for choice, delta in group.deltas():
        yield form.chunks(choice, delta)
    yield form.end()


async def _collect(group: Group, job: Job) -> list[Result]:
    results: list[Result] = [(choice, Outcome(), []) for choice in job.choices]
    async for choice, delta in group.deltas():
        _, outcome, scored = results[choice.index]
        outcome.take(delta.events)
        scored.extend(delta.scored)
    return results


class EventStream(Response):
    """Server-sent events, and `beat` whenever there were none for `keep_alive` seconds. Headers go out at
    once. A failure while streaming becomes the last event, without the `[DONE]` of a stream that went
    well."""

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes], record: RequestRecord, beat: bytes, keep_alive: float
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._record = record
        self._beat = beat
        self._keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        last = b""
        written = 0
        beat = partial(send, {"type": "http.response.body", "body": self._beat, "more_body": True})
        try:
            async with Pulse(beat, self._keep_alive) as pulse:
                async for data in self._events:
                    pulse.writing()
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    pulse.wrote()
                    # Behind a reader that fell back there is always more: others get their turn.
                    if (written := written + len(data)) > _WRITTEN_AT_ONCE:
                        written = 0
                        await asyncio.sleep(0)
        except Exception as error:
            note_failure(self._record, error)
            assert self._record.last_event is not None
            last = self._record.last_event(error)
        await send({"type": "http.response.body", "body": last, "more_body": False})
