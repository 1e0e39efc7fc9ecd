"""The front process's engine: starts the engine process, talks to it, and notices its death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from flare import errors
from flare.cache.store_options import StoreOptions
from flare.device.options import LoadOptions
from flare.engine.channel import Channel
from flare.engine.generation import ProcessGeneration
from flare.engine.loading import DEFAULT_LOADER
from flare.engine.messages import (
    Admitted,
    CacheReport,
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    LoadFailed,
    QueryCache,
    QueryStats,
    QueryTimeline,
    Ready,
    Rejected,
    Shutdown,
    Stats,
    Submit,
    TimelineReport,
    Tokens,
)
from flare.errors import ExecutionError, FlareError, RequestError, UnavailableError
from flare.scheduler import Settings

A = TypeVar("A", Stats, CacheReport, TimelineReport)

_DEATH_GRACE_S = 0.02  # for events the process sent before it ended
_SPINS = 20_000  # about the length of the pauses between the operators of a step
_CANCEL_GRACE_S = 2.0  # to give up running requests


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine process runs. `loader` names a `flare.engine.loading.Loader` as `module:function`.
    `load` is how it loads the core, `stores` keep checkpoints behind the device."""

    settings: Settings = field(default_factory=Settings)
    stores: StoreOptions = field(default_factory=StoreOptions)
    load: LoadOptions = field(default_factory=LoadOptions)
    loader: str = DEFAULT_LOADER


class ProcessEngineClient:
    """See `flare.engine.interface.EngineClient`. Made and used on one running event loop."""

    def __init__(self, core: str | os.PathLike[str], options: EngineOptions | None = None) -> None:
        options = options or EngineOptions()
        self._channel = Channel(self._take)
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Ready] = self._loop.create_future()
        self._ended = asyncio.Event()  # the process is gone and everything it said was taken in
        self._failure: FlareError | None = None
        self._shutting_down = False
        self._generations: dict[str, ProcessGeneration] = {}
        self._stats: deque[asyncio.Future[Stats]] = deque()
        self._reports: deque[asyncio.Future[CacheReport]] = deque()
        self._timelines: deque[asyncio.Future[TimelineReport]] = deque()
        self._background: set[asyncio.Task[None]] = set()
        self._process = subprocess.Popen(
            _command(os.fspath(core), self._channel.endpoint, options),
            stdin=subprocess.PIPE,  # its end tells the engine that we are gone
            env=_environment(),
        )
        threading.Thread(target=self._watch, name="engine-watch", daemon=True).start()

    @classmethod
    async def start(
        cls, core: str | os.PathLike[str], options: EngineOptions | None = None
    ) -> ProcessEngineClient:
        """A client whose engine is ready. Raises what `wait_ready` raises, after cleaning up."""
        client = cls(core, options)
        try:
            await client.wait_ready()
        except BaseException:
            await client.shutdown(drain=False)
            raise
        return client

    async def wait_ready(self) -> Ready:
        """Wait until the core is loaded. Raises the FlareError that loading raised in the engine (same
        class and field), or ExecutionError when the process failed otherwise."""
        return await asyncio.shield(self._ready)

    @property
    def ready(self) -> Ready | None:
        """See `EngineClient.ready`."""
        if self._ready.done() and not self._ready.cancelled() and self._ready.exception() is None:
            return self._ready.result()
        return None

    @property
    def alive(self) -> bool:
        """See `EngineClient.alive`."""
        return self._failure is None

    @property
    def restarts(self) -> int:
        """See `EngineClient.restarts`."""
        return 0

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid

    @property
    def failure(self) -> FlareError | None:
        """Why the engine is not alive."""
        return self._failure

    async def wait_ended(self) -> None:
        """Wait until the process is gone and everything it said was taken in."""
        await self._ended.wait()

    async def submit(self, request: Submit) -> ProcessGeneration:
        """See `EngineClient.submit`."""
        self._check()
        if request.request_id in self._generations:
            raise RequestError(f"request id {request.request_id!r} is in use", field="request_id")
        generation = ProcessGeneration(request.request_id, self._cancel)
        self._generations[request.request_id] = generation
        if not self._channel.send(request):
            del self._generations[request.request_id]
            raise ExecutionError("the engine process does not answer")
        try:
            await generation.admission
        except asyncio.CancelledError:
            generation.cancel()
            raise
        return generation

    async def stats(self) -> Stats:
        """See `EngineClient.stats`."""
        return await self._asked(QueryStats(), self._stats)

    async def cache_report(self, most: int = 1000) -> CacheReport:
        """See `EngineClient.cache_report`."""
        return await self._asked(QueryCache(most), self._reports)

    async def timeline(self, since: int = 0) -> TimelineReport:
        """See `EngineClient.timeline`."""
        return await self._asked(QueryTimeline(since), self._timelines)

    async def _asked(self, question: Command, waiting: deque[asyncio.Future[A]]) -> A:
        """Answers of one kind come in the order of the questions."""
        self._check()
        if not self._channel.send(question):
            raise ExecutionError("the engine process does not answer")
        answer: asyncio.Future[A] = self._loop.create_future()
        waiting.append(answer)
        return await answer

    async def shutdown(self, drain: bool = True, drain_timeout_s: float = 30.0) -> None:
        """End the engine process. Idempotent.

        With `drain` running requests may finish for `drain_timeout_s` seconds; then, or without it, they
        are cancelled; a process that is still there two seconds later, or that is still loading, is killed.
        """
        self._shutting_down = True
        if self.ready is not None:
            if drain and self._channel.send(Shutdown(drain=True)):
                await self._wait_ended(drain_timeout_s)
            if not self._ended.is_set() and self._channel.send(Shutdown(drain=False)):
                await self._wait_ended(_CANCEL_GRACE_S)
        if not self._ended.is_set():
            self._process.kill()
            await self._ended.wait()
        self._channel.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise ExecutionError(str(self._failure))
        if self._shutting_down:
            raise UnavailableError("the server is shutting down")
        if self.ready is None:
            raise UnavailableError("the engine is not ready")

    async def _wait_ended(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), timeout_s)

    def _cancel(self, request_id: str) -> None:
        self._channel.send(Cancel(request_id))

    # Events of the engine.

    def _take(self, event: Event) -> None:
        match event:
            case Tokens():
                if generation := self._generations.get(event.request_id):
                    generation.feed(event)
            case Admitted():
                if generation := self._generations.get(event.request_id):
                    generation.admitted()
            case Finished():
                if generation := self._generations.pop(event.request_id, None):
                    generation.finish(event)
            case Rejected():
                if generation := self._generations.pop(event.request_id, None):
                    generation.fail(_rejection(event))
            case Failed():
                if generation := self._generations.pop(event.request_id, None):
                    generation.fail(ExecutionError(event.message))
            case Stats():
                _settle(self._stats, event)
            case CacheReport():
                _settle(self._reports, event)
            case TimelineReport():
                _settle(self._timelines, event)
            case Ready():
                if not self._ready.done():
                    self._ready.set_result(event)
            case LoadFailed():
                self._fail(_load_error(event))

    # The end of the process.

    def _watch(self) -> None:
        """On its own thread: block until the process ended."""
        status = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody is left to tell
            self._loop.call_soon_threadsafe(self._died, status)

    def _died(self, status: int) -> None:
        task = self._loop.create_task(self._bury(status))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _bury(self, status: int) -> None:
        await self._channel.drain(_DEATH_GRACE_S)
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        self._fail(ExecutionError(f"the engine process {how}"))
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._ended.set()

    def _fail(self, error: FlareError) -> None:
        """Everything open ends with `error`; the first failure is kept."""
        if self._failure is None:
            self._failure = error
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # reported by whoever waits
        for generation in self._generations.values():
            generation.fail(ExecutionError(str(error)))
        self._generations.clear()
        _give_up(self._stats, error)
        _give_up(self._reports, error)
        _give_up(self._timelines, error)


def _settle(waiting: deque[asyncio.Future[A]], answer: A) -> None:
    asked = waiting.popleft()
    if not asked.done():
        asked.set_result(answer)


def _give_up(waiting: deque[asyncio.Future[A]], error: FlareError) -> None:
    while waiting:
        asked = waiting.popleft()
        if not asked.done():
            asked.set_exception(ExecutionError(str(error)))


def _command(core: str, endpoint: str, options: EngineOptions) -> list[str]:
    settings = options.settings
    command = [sys.executable, "-m", "flare.engine", core, "--endpoint", endpoint]
    command += ["--loader", options.loader, "--started", repr(time.monotonic())]
    command += ["--max-waiting", str(settings.max_waiting), "--max-passes", str(settings.max_passes)]
    if settings.inter_token_ms is not None:
        command += ["--inter-token-ms", repr(settings.inter_token_ms)]
    if not settings.prefix_caching:
        command.append("--no-prefix-caching")
    for name, value in asdict(options.load).items():
        if value is not None:
            command += [f"--{name.replace('_', '-')}", repr(value)]
    stores = options.stores
    if stores.host_bytes:
        command += ["--host-cache", str(stores.host_bytes)]
    if stores.disk_directory is not None:
        command += ["--disk-cache", os.fspath(stores.disk_directory.absolute())]
    if stores.disk_bytes is not None:
        command += ["--disk-cache-size", str(stores.disk_bytes)]
    return command


def _environment() -> dict[str, str]:
    """Compute threads that wait for each other with all their might slow a step down ten times and more when
    somebody else needs one of the processors: GNU's OpenMP, which torch comes with, gives up sooner here. It
    reads its variables when it is loaded."""
    environment = dict(os.environ)
    if environment.get("OMP_WAIT_POLICY") is None:
        environment.setdefault("GOMP_SPINCOUNT", str(_SPINS))
    return environment


def _rejection(event: Rejected) -> FlareError:
    if event.reason in ("queue_full", "shutting_down"):
        return UnavailableError(event.message)
    return RequestError(event.message)


def _load_error(event: LoadFailed) -> FlareError:
    """The error the engine raised, in its own class."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, FlareError) and kind.code == event.code:
            return kind(event.message, field=event.field)
    return ExecutionError(event.message, field=event.field)
