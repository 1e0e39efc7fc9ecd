"""How checkers fail: an AssertionError with the part at fault in front."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def require(condition: bool, part: str, problem: str) -> None:
    """Raise AssertionError `part: problem` unless `condition` holds (also under `python -O`)."""
    if not condition:
        raise AssertionError(f"{part}: {problem}")


@contextmanager
def blaming(part: str) -> Iterator[None]:
    """Turn whatever the body raises into an AssertionError about `part`; assertions pass through."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:  # recipe code can raise anything, and it is what is being checked
        raise AssertionError(f"{part}: {type(error).__name__}: {error}") from error
