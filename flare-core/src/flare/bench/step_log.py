"""Where the time of decode steps went, by number of streams, as a server that remembers its steps tells."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from flare.bench.recorder import Recorder
from flare.bench.timing import percentile

PARTS = {
    "plan": "plan_us",
    "pack": "pack_us",
    "submit": "submit_us",
    "wait": "wait_us",
    "complete": "complete_us",
    "deliver": "deliver_us",
    "program": "device_us",
    "gap before the program": "gap_us",
}
_DECODING = ("decode", "speculative")


def read_steps(body: bytes) -> dict[str, Any] | None:
    """A server's report of its steps; None when it is none."""
    try:
        report = json.loads(body)
    except ValueError:
        return None
    return report if isinstance(report, dict) and report.get("type") == "timeline_report" else None


class StepLog:
    """Steps of a decode scenario. `newest` is the number of the last step that was taken in."""

    def __init__(self) -> None:
        self.newest = 0
        self._steps: dict[int, list[dict[str, Any]]] = defaultdict(list)

    def skip(self, report: dict[str, Any] | None) -> None:
        """What a server did so far is of no interest; None where it does not tell."""
        self.newest = self.newest if report is None else int(report["newest"])

    def take(self, report: dict[str, Any] | None, streams: int) -> None:
        """Decode steps of `streams` streams at once."""
        self.skip(report)
        steps = () if report is None else report["steps"]
        self._steps[streams] += [
            step for step in steps if step["kind"] in _DECODING and step["requests"] == streams
        ]

    def record(self, recorder: Recorder) -> bool:
        """Median and 99th percentile of every part; False when no server told anything."""
        for streams, steps in self._steps.items():
            for part, name in PARTS.items():
                values = [step[name] for step in steps if step[name] is not None]
                for percent in (50, 99) if values else ():
                    measure = f"{streams} stream{'' if streams == 1 else 's'} p{percent}"
                    recorder.add(part, measure, percentile(values, percent), "us", "lower")
        return any(self._steps.values())
