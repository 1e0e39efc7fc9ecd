"""A loader (`flare.engine.loading.Loader`) that serves the hash model instead of a core file.

Start an engine process with `loader="flare.testing.sim_loader:load"` and, as the core's path, the text that
`describe` returns.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import msgspec

from flare.device import LoadOptions
from flare.device.base import Device
from flare.device.sim import SimDevice, SimOptions
from flare.errors import CoreError
from flare.testing.hash_model import HashModel

LOADER = "flare.testing.sim_loader:load"


def describe(
    model: HashModel | None = None,
    *,
    max_frames: int = 2,
    delay_ms: float = 0.0,
    load_s: float = 0.0,
    fail_at: int | None = None,
    load_error: str | None = None,
) -> str:
    """The hash model `model` on a sim device that takes `delay_ms` more per program, loads for `load_s`
    seconds, fails at frame `fail_at`, or fails to load with a CoreError."""
    behaviour = {
        "max_frames": max_frames,
        "delay_ms": delay_ms,
        "load_s": load_s,
        "fail_at": fail_at,
        "load_error": load_error,
    }
    return json.dumps({"model": asdict(model or HashModel()), **behaviour})


def load(description: str, options: LoadOptions) -> Device:
    """The device that `description` describes; `options` are for devices with memory of their own. Raises
    CoreError when that is asked for."""
    wanted = json.loads(description)
    time.sleep(wanted["load_s"])
    if wanted["load_error"] is not None:
        raise CoreError(wanted["load_error"], field="identity")
    model = msgspec.convert(wanted["model"], HashModel)
    delay_s = wanted["delay_ms"] / 1e3
    behaviour = SimOptions(
        max_frames=wanted["max_frames"],
        delay_s=(lambda frame, program: delay_s) if delay_s else None,
        fail_at=wanted["fail_at"],
    )
    return SimDevice(model.build(), behaviour)
