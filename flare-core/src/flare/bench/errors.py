"""The error of the load generator."""

from __future__ import annotations

from flare.errors import FlareError


class BenchmarkError(FlareError):
    """A request that failed, or a measurement that would mean nothing; the message says why."""

    code = "benchmark"
