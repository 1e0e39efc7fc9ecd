"""The engine process: `python -m flare.engine CORE --endpoint ipc://...`, started by the front process.

It connects a PAIR socket to the front's endpoint (one peer each, no routing), loads the core, reports
`Ready` or `LoadFailed`, then alternates between commands and engine steps. With nothing to do it sleeps in
poll. See `flare.engine.wakeups` for signals and the death of the parent. Exit status: 0 after a shutdown or
the parent's end, 1 after a failure that was reported, anything else is a crash.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import zmq

from flare.device import LoadOptions
from flare.engine.codec import encode_events
from flare.engine.loading import DEFAULT_LOADER, resolve_loader
from flare.engine.messages import LoadFailed, Ready
from flare.errors import ExecutionError, FlareError

_LINGER_MS = 2000  # for the last events of an ending process


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
        with ThreadPoolExecutor(1, thread_name_prefix="imports") as imports:
            # What serves is not needed to load: a tenth of a second that reading the core leaves unused.
            serving = imports.submit(importlib.import_module, "flare.engine.serving")
            device = resolve_loader(options.loader)(options.core, _load_options(options))
        process = serving.result().engine_process(socket, device, options)
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


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m flare.engine", description=__doc__)
    parser.add_argument("core", help="path of the runtime core")
    parser.add_argument("--endpoint", required=True, help="ZeroMQ endpoint the front listens on")
    parser.add_argument("--threads", type=int, help="compute threads of a CPU device")
    parser.add_argument("--cache-tokens", type=int, help="tokens that the pages hold")
    parser.add_argument("--snapshot-rows", type=int, help="rows for saved state")
    parser.add_argument("--gpu-memory-utilization", type=float, help="part of the GPU's memory to fill")
    parser.add_argument("--max-waiting", type=int, help="see flare.scheduler.Settings")
    parser.add_argument("--max-passes", type=int, help="likewise")
    parser.add_argument("--inter-token-ms", type=float, help="likewise")
    parser.add_argument("--no-prefix-caching", dest="prefix_caching", action="store_false")
    parser.add_argument("--host-cache", type=int, default=0, help="bytes")
    parser.add_argument("--disk-cache", type=Path, default=None, help="directory")
    parser.add_argument("--disk-cache-size", type=int, default=None, help="bytes")
    parser.add_argument("--loader", default=DEFAULT_LOADER, help="module:function that loads the core")
    parser.add_argument(
        "--started", type=float, default=time.monotonic(), help="monotonic time the front started this"
    )
    return parser.parse_args(argv)
