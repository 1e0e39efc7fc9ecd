"""What is known about one HTTP request when it is over: one line in the log, one count in the metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from flare.errors import ExecutionError, FlareError
from flare.server.choices import Choice

_LONGEST_TEXT = 200  # characters of a path or method that are logged


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """Filled while the request runs. What is logged of it holds nothing of prompts and outputs.

    `route` is the path's pattern, `unknown` without one. `status` stays 0 when no response was started.
    `last_event` writes the event of a stream that ends with an error, where it has a shape of its own.
    """

    id: str
    method: str
    path: str
    started: float = field(default_factory=monotonic)
    route: str = "unknown"
    status: int = 0
    disconnected: bool = False
    error: FlareError | None = None
    choices: Sequence[Choice] = ()
    last_event: Callable[[Exception], bytes] | None = None

    @property
    def error_code(self) -> str | None:
        """Code of the error that the client got."""
        return None if self.error is None else self.error.code

    def fail(self, error: FlareError) -> None:
        """The client gets `error`. The first one counts."""
        if self.error is None:
            self.error = error

    def finish_reasons(self) -> list[str]:
        """One per choice that the engine admitted: `stop`, `length`, `abort` (client gone, shutdown) or
        `error`, vLLM's words."""
        failed = isinstance(self.error, ExecutionError)
        unfinished = "error" if failed else "abort"
        return [c.finish_reason or unfinished for c in self.choices if c.finish_reason or c.admitted_at]

    def fields(self, now: float) -> dict[str, Any]:
        """The line of the log: names and values, without what does not apply."""
        choices = self.choices
        admitted = [c.admitted_at - c.submitted_at for c in choices if c.admitted_at]
        first = min((c.first_at for c in choices if c.first_at), default=0.0)
        last = max((c.last_at for c in choices if c.last_at), default=0.0)
        drawn = sum(c.drawn for c in choices)
        first_drawn = sum(c.first_drawn for c in choices)
        counted = bool(choices)
        found = {
            "id": self.id,
            "method": self.method[:_LONGEST_TEXT],
            "path": self.path[:_LONGEST_TEXT],
            "status": self.status or None,
            "finish_reason": ",".join(sorted(set(self.finish_reasons()))) or None,
            "prompt_tokens": sum(c.prompt_tokens for c in choices if c.first) if counted else None,
            "cached_tokens": sum(c.cached_tokens for c in choices if c.first) if counted else None,
            "output_tokens": sum(c.output_tokens for c in choices) if counted else None,
            "queue_ms": _ms(min(admitted)) if admitted else None,
            "first_token_ms": _ms(first - self.started) if first else None,
            "total_ms": _ms(now - self.started),
            "tokens_per_s": round((drawn - first_drawn) / (last - first), 1) if last > first else None,
            "disconnected": self.disconnected or None,
            "error_code": self.error_code,
            "error_param": _root(self.error.field) if self.error is not None else None,
        }
        return {name: value for name, value in found.items() if value is not None}


def _root(param: str | None) -> str | None:
    # `logit_bias.KEY` and `messages[3].x` hold words of the client behind the parameter's name.
    return None if param is None else param.partition(".")[0].partition("[")[0][:64]


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
