"""The engine process: `python -m flare.engine CORE --endpoint ipc://...`, started by the front process.

It connects a PAIR socket to the front's endpoint (one peer each, no routing), loads the core, reports
`Ready` or `LoadFailed`, then alternates between commands and engine steps. With nothing to do it sleeps in
poll. See `flare.engine.wakeups` for signals and the death of the parent. Exit status: 0 after a shutdown or
the parent's end, 1 after a failure that was reported, anything else is a crash.
"""

from __future__ import annotations

import argparse
import gc
import logging
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import zmq

from flare.cache.store_options import StoreOptions
from flare.cache.stores import Store, core_state, open_stores
from flare.device import LoadOptions
from flare.device.base import Device
from flare.engine.codec import decode_command, encode_events
from flare.engine.constraints import Constraints
from flare.engine.loading import DEFAULT_LOADER, content_name, resolve_loader
from flare.engine.loop import Engine
from flare.engine.messages import (
    Cancel,
    Command,
    Event,
    LoadFailed,
    QueryCache,
    QueryStats,
    QueryTimeline,
    Ready,
    Shutdown,
    Submit,
)
from flare.engine.tiers import TierTransfers
from flare.engine.wakeups import Wakeups
from flare.errors import ExecutionError, FlareError
from flare.scheduler import Settings

logger = logging.getLogger("flare.engine")

_LINGER_MS = 2000  # for the last events of an ending process


class EngineProcess:
    """Commands in, events out, around one engine. Events of a step leave as one message."""

    def __init__(
        self, socket: zmq.Socket[bytes], device: Device, settings: Settings, stores: Sequence[Store] = ()
    ) -> None:
        self._socket = socket
        self._events: list[Event] = []
        self._transfers = TierTransfers(device, stores) if stores else None
        self._constraints = Constraints(device.contract, device.tokenizer, beside=True)
        self._engine = Engine(
            device,
            self._events.append,
            settings,
            transfers=self._transfers,
            constraints=self._constraints,
        )
        self._shutting_down = False
        self._draining = False

    def run(self, ready: Ready) -> None:
        """Serve until shut down or orphaned. Raises ExecutionError after reporting when the engine fails."""
        wakeups = Wakeups(self._socket)
        self._constraints.wake = wakeups.wake
        if self._transfers is not None:
            self._transfers.wake = wakeups.wake
        self._events.append(ready)
        busy = True
        while True:
            self._flush()
            if self._shutting_down and self._engine.idle and not (self._draining and self._engine.saving):
                return
            if wakeups.wait(block=not busy):
                self._obey_all()
            if wakeups.orphaned:
                self._socket.linger = 0
                return
            if wakeups.terminated:
                self._shut_down(drain=True)
            try:
                busy = self._engine.step()
            except ExecutionError:
                self._flush()
                raise

    def close(self) -> None:
        """Release the device."""
        self._engine.close()

    def _obey_all(self) -> None:
        """Take in every command that has arrived, without waiting for more."""
        while True:
            try:
                message = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._obey(decode_command(message))

    def _obey(self, command: Command) -> None:
        match command:
            case Submit():
                self._engine.submit(command)
            case Cancel():
                self._engine.cancel(command.request_id)
            case QueryStats():
                self._events.append(self._engine.stats())
            case QueryTimeline():
                self._events.append(self._engine.timeline.report(command.since))
            case QueryCache():
                self._events.append(self._engine.cache_report(command.most))
            case Shutdown():
                self._shut_down(command.drain)

    def _shut_down(self, drain: bool) -> None:
        self._shutting_down, self._draining = True, drain
        self._engine.shut_down(drain)

    def _flush(self) -> None:
        if self._events:
            began = self._engine.timeline.now()
            self._socket.send(encode_events(self._events))
            self._events.clear()
            self._engine.timeline.delivered(self._engine.timeline.now() - began)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the process; returns its exit status."""
    options = _parse(argv)
    # Before loading, which takes seconds: ctrl-C belongs to the front (see `Wakeups`).
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    context = zmq.Context[zmq.Socket[bytes]](io_threads=1)
    socket: zmq.Socket[bytes] = context.socket(zmq.PAIR)
    socket.sndhwm = socket.rcvhwm = 0  # never block a step; what is queued is bounded by live requests
    socket.linger = _LINGER_MS
    socket.connect(options.endpoint)
    try:
        return _serve(socket, options)
    finally:
        socket.close()
        context.term()


def _serve(socket: zmq.Socket[bytes], options: argparse.Namespace) -> int:
    try:
        device = resolve_loader(options.loader)(options.core, _load_options(options))
        settings = Settings(
            max_waiting=options.max_waiting,
            max_passes=options.max_passes,
            inter_token_ms=options.inter_token_ms,
            prefix_caching=options.prefix_caching,
        )
        process = EngineProcess(socket, device, settings, _open_stores(options, device))
    except FlareError as error:
        socket.send(encode_events([LoadFailed(code=error.code, message=str(error), field=error.field)]))
        return 1
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        socket.send(encode_events([LoadFailed(code="internal", message=message)]))
        return 1
    # Everything loaded stays: a full collection over it stalls a step by about 100 ms, for nothing.
    gc.collect()
    gc.freeze()
    capacities = device.contract.capacities
    ready = Ready(
        context=capacities.context,
        concurrency=capacities.concurrency,
        ledger=dict(device.ledger),
        ready_seconds=time.monotonic() - options.started,
        cache_tokens=(capacities.pages - 1) * device.contract.page.page_tokens,
        snapshot_rows=capacities.snapshot_rows,
        load_spans=dict(device.load_spans),
    )
    try:
        process.run(ready)
    except ExecutionError as error:
        print(f"flare engine: {error}", file=sys.stderr)
        return 1
    finally:
        process.close()
    return 0


def _load_options(options: argparse.Namespace) -> LoadOptions:
    return LoadOptions(**{field.name: getattr(options, field.name) for field in fields(LoadOptions)})


def _open_stores(options: argparse.Namespace, device: Device) -> Sequence[Store]:
    chosen = StoreOptions(options.host_cache, options.disk_cache, options.disk_cache_size)
    if not chosen.enabled:
        return ()
    contract = device.contract
    if not (options.prefix_caching and contract.capacities.snapshot_rows):
        logger.warning("no checkpoints are kept: host and disk cache are not used")
        return ()
    return open_stores(chosen, core_state(contract, content_name(options.core)))


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    defaults = Settings()
    parser = argparse.ArgumentParser(prog="python -m flare.engine", description=__doc__)
    parser.add_argument("core", help="path of the runtime core")
    parser.add_argument("--endpoint", required=True, help="ZeroMQ endpoint the front listens on")
    parser.add_argument("--threads", type=int, help="compute threads of a CPU device")
    parser.add_argument("--cache-tokens", type=int, help="tokens that the pages hold")
    parser.add_argument("--snapshot-rows", type=int, help="rows for saved state")
    parser.add_argument("--gpu-memory-utilization", type=float, help="part of the GPU's memory to fill")
    parser.add_argument("--max-waiting", type=int, default=defaults.max_waiting)
    parser.add_argument("--max-passes", type=int, default=defaults.max_passes)
    parser.add_argument("--inter-token-ms", type=float, default=defaults.inter_token_ms)
    parser.add_argument("--no-prefix-caching", dest="prefix_caching", action="store_false")
    parser.add_argument("--host-cache", type=int, default=0, help="bytes")
    parser.add_argument("--disk-cache", type=Path, default=None, help="directory")
    parser.add_argument("--disk-cache-size", type=int, default=None, help="bytes")
    parser.add_argument("--loader", default=DEFAULT_LOADER, help="module:function that loads the core")
    parser.add_argument(
        "--started", type=float, default=time.monotonic(), help="monotonic time the front started this"
    )
    return parser.parse_args(argv)
