"""What was checked, and with what result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flare.errors import VerificationError


class Outcome(StrEnum):
    """Of one check. `skipped`: nothing recorded to compare with, or an earlier check failed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """One check. `field` names what is at fault, `facts` are the numbers behind `detail`."""

    name: str
    outcome: Outcome
    detail: str
    field: str | None = None
    facts: dict[str, Any] | None = None

    @property
    def line(self) -> str:
        """For people."""
        word = {Outcome.PASSED: "ok", Outcome.FAILED: "FAILED", Outcome.SKIPPED: "-"}[self.outcome]
        return f"{self.name:<11} {word:<7} {self.detail}"


@dataclass(frozen=True)
class Report:
    """All checks in order."""

    core: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing that was checked failed."""
        return all(check.outcome is not Outcome.FAILED for check in self.checks)

    def require(self) -> None:
        """Raise VerificationError for the first check that failed."""
        for check in self.checks:
            if check.outcome is Outcome.FAILED:
                raise VerificationError(
                    f"{self.core}: verification failed: {check.name}: {check.detail}", field=check.field
                )

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "core": self.core,
            "passed": self.passed,
            "checks": [
                {
                    "name": check.name,
                    "outcome": check.outcome.value,
                    "detail": check.detail,
                    "field": check.field,
                    **(check.facts or {}),
                }
                for check in self.checks
            ],
        }
