"""What a scenario collects while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import Literal

from flare.bench.errors import BenchmarkError
from flare.bench.result import Figure, ScenarioResult
from flare.bench.stream import Completion


class Recorder:
    """Figures, requests, errors and notes of one scenario. No failed request is dropped."""

    def __init__(self) -> None:
        self.requests = 0
        self.answers = 0
        self._figures: dict[tuple[str, str], Figure] = {}
        self._errors: Counter[str] = Counter()
        self._notes: dict[str, None] = {}

    def add(
        self,
        case: str,
        measure: str,
        value: float,
        unit: str,
        better: Literal["lower", "higher"] | None = None,
    ) -> None:
        """One more value of a figure."""
        figure = self._figures.get((case, measure))
        if figure is None:
            figure = Figure(case=case, measure=measure, unit=unit, better=better, values=[value])
            self._figures[case, measure] = figure
        else:
            figure.values.append(value)

    def note(self, text: str) -> None:
        """Something a reader of the figures has to know; said once."""
        self._notes[text] = None

    def fail(self, error: BenchmarkError) -> None:
        """Count a failed request, or a measurement that would mean nothing."""
        self._errors[str(error)] += 1

    async def attempt(self, request: Awaitable[Completion]) -> Completion | None:
        """The answer, or None after counting the error."""
        self.requests += 1
        try:
            answer = await request
        except BenchmarkError as error:
            self.fail(error)
            return None
        self.answers += 1
        return answer

    def result(self, seconds: float) -> ScenarioResult:
        """Everything collected in `seconds`."""
        return ScenarioResult(
            figures=list(self._figures.values()),
            requests=self.requests,
            errors=dict(self._errors),
            notes=list(self._notes),
            seconds=round(seconds, 3),
        )
