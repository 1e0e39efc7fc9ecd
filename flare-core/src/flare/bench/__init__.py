"""The load generator behind `flare bench`: one client that measures any server of the OpenAI API.

It knows servers by HTTP only: prompts are text, counts are the server's `usage`, so the same figures can be
taken of any of them and compared.
"""

from __future__ import annotations

from flare.bench.comparison import compare
from flare.bench.errors import BenchmarkError
from flare.bench.report import print_comparison, print_result
from flare.bench.result import BenchResult, Figure, ScenarioResult, read_result, write_result
from flare.bench.run import measure
from flare.bench.scenarios import SCENARIOS
from flare.bench.settings import BenchSettings, Endpoint

__all__ = [
    "SCENARIOS",
    "BenchResult",
    "BenchSettings",
    "BenchmarkError",
    "Endpoint",
    "Figure",
    "ScenarioResult",
    "compare",
    "measure",
    "print_comparison",
    "print_result",
    "read_result",
    "write_result",
]
