"""Log lines for people (logfmt) and for machines (JSON), on standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,+@")


def configure_logging(form: LogFormat, level: LogLevel) -> None:
    """Send every logger's lines of `level` and above to standard error. One record is one line, except that a
    traceback in text form follows on lines of its own. The HTTP server library speaks from `warning` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, logging.getLogger().level))


def logfmt(fields: Mapping[str, Any]) -> str:
    """`name=value` pairs; values with spaces, quotes or anything unprintable are JSON strings."""
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


class TextFormatter(logging.Formatter):
    """`time level logger: message`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {_one_line(record.getMessage())}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class JSONFormatter(logging.Formatter):
    """One object a line: `time`, `level`, `logger`, and either the `fields` of a record or `message`."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        fields: Mapping[str, Any] | None = getattr(record, "fields", None)
        line.update(fields if fields is not None else {"message": record.getMessage()})
        if record.exc_info is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
