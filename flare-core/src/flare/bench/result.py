"""Result files: a versioned JSON document with every measured value."""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flare.bench.errors import BenchmarkError

_WANTED = "format flare.bench, version 1"


class Figure(BaseModel):
    """One measured quantity: a value per repetition. `better` says which direction is ahead; None for counts
    that describe the case."""

    case: str
    measure: str
    unit: str
    better: Literal["lower", "higher"] | None = None
    values: list[float] = Field(min_length=1)

    @property
    def median(self) -> float:
        """Of all repetitions."""
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return min(self.values), max(self.values)


class ScenarioResult(BaseModel):
    """`errors` counts failed requests and measurements by message; `notes` say what was left out and why."""

    figures: list[Figure] = []
    requests: int = 0
    errors: dict[str, int] = {}
    notes: list[str] = []
    seconds: float = 0.0

    @property
    def failures(self) -> int:
        """How many requests and measurements failed."""
        return sum(self.errors.values())


class BenchResult(BaseModel):
    """A result file. Later versions of the format get another `version`; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    format: Literal["flare.bench"]
    version: Literal[1]
    label: str
    model: str
    server_version: str | None = None
    versions: dict[str, str] = {}
    date: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    scenarios: dict[str, ScenarioResult]

    @property
    def failures(self) -> int:
        """How many requests and measurements failed."""
        return sum(scenario.failures for scenario in self.scenarios.values())


def write_result(result: BenchResult, path: Path) -> None:
    """Write a result file, complete or not at all. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(result.model_dump_json(indent=1) + "\n")
    partial.replace(path)


def read_result(path: Path) -> BenchResult:
    """Read a result file. Raises: BenchmarkError when it is missing or is none of this version."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise BenchmarkError(f"{path} cannot be read: {reason}", field="compare") from error
    try:
        return BenchResult.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise BenchmarkError(
            f"{path} is not a result of `flare bench --json` ({_WANTED}): {place}: {first['msg']}",
            field="compare",
        ) from error
