"""`scripts/fault-check`: plants one fault after the other and shows which random service notices it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from faults import FAULTS
from random_load import serve
from test_random_service import MODELS

from flare.errors import ExecutionError

MOST_SEEDS = 500


def first_failure(name: str, most_seeds: int = MOST_SEEDS) -> tuple[int, str] | None:
    """The first seed whose service fails with the fault planted, and how; None when none does."""
    with pytest.MonkeyPatch.context() as patch:
        FAULTS[name](patch)
        for seed in range(most_seeds):
            try:
                serve(seed, MODELS)
            except (AssertionError, ExecutionError, IndexError) as error:
                return seed, f"{type(error).__name__}: {' '.join(str(error).split())}"[:90]
    return None


def main(arguments: Sequence[str]) -> int:
    """Check the named faults, or all; the number of faults that nothing noticed."""
    for seed in range(100):
        serve(seed, MODELS)
    print("without a fault: 100 services are right")
    missed = 0
    for name in arguments or FAULTS:
        found = first_failure(name)
        missed += found is None
        what = "NOT NOTICED" if found is None else f"seed {found[0]}: {found[1]}"
        print(f"{name:45} {what}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
