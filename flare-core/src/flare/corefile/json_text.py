"""JSON as the header has it: compact when written, strict when read."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from flare.errors import CoreError


def dump(value: object) -> str:
    """Text without spaces; characters beyond ASCII stand for themselves."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def parse(text: bytes | str, field: str) -> dict[str, Any]:
    """A JSON object whose keys are unique. Raises CoreError naming `field` for anything else."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CoreError(f"{field} is not JSON: {error}", field=field) from error
    if not isinstance(value, dict):
        raise CoreError(f"{field} is not a JSON object", field=field)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice")
    return table


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
