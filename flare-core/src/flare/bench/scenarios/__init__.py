"""The scenarios: each measures every one of its cases once per call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from flare.bench.recorder import Recorder
from flare.bench.scenarios.append import append
from flare.bench.scenarios.branch import branch
from flare.bench.scenarios.cold import cold
from flare.bench.scenarios.decode import decode
from flare.bench.scenarios.extend import extend
from flare.bench.scenarios.mixed import mixed
from flare.bench.scenarios.repeat import repeat
from flare.bench.target import Target

SCENARIOS: dict[str, Callable[[Target, Recorder], Awaitable[None]]] = {
    "cold": cold,
    "decode": decode,
    "append": append,
    "branch": branch,
    "extend": extend,
    "repeat": repeat,
    "mixed": mixed,
}

__all__ = ["SCENARIOS"]
