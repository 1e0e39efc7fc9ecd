"""An engine process at work: commands in, events out.

Imported while the core is loaded, which does not need it.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence

import zmq

from flare.cache.store_options import StoreOptions
from flare.cache.stores import Store, core_state, open_stores
from flare.device.base import Device
from flare.engine.codec import decode_command, encode_events
from flare.engine.constraints import Constraints
from flare.engine.loading import content_name
from flare.engine.loop import Engine
from flare.engine.messages import (
    Cancel,
    Command,
    Event,
    QueryCache,
    QueryStats,
    QueryTimeline,
    Ready,
    Shutdown,
    Submit,
)
from flare.engine.tiers import TierTransfers
from flare.engine.wakeups import Wakeups
from flare.errors import ExecutionError
from flare.scheduler import Settings

logger = logging.getLogger("flare.engine")


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


def engine_process(socket: zmq.Socket[bytes], device: Device, options: argparse.Namespace) -> EngineProcess:
    """An engine around a loaded device, as the arguments of the process say. Raises FlareError."""
    chosen = ("max_waiting", "max_passes", "inter_token_ms", "prefix_caching")
    given = {name: getattr(options, name) for name in chosen if getattr(options, name) is not None}
    return EngineProcess(socket, device, Settings(**given), _open_stores(options, device))


def _open_stores(options: argparse.Namespace, device: Device) -> Sequence[Store]:
    chosen = StoreOptions(options.host_cache, options.disk_cache, options.disk_cache_size)
    if not chosen.enabled:
        return ()
    contract = device.contract
    if not (options.prefix_caching and contract.capacities.snapshot_rows):
        logger.warning("no checkpoints are kept: host and disk cache are not used")
        return ()
    return open_stores(chosen, core_state(contract, content_name(options.core)))
