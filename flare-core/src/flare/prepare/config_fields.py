"""What a recipe demands of the fields of a checkpoint's configuration files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from flare.errors import CheckpointError


def check_present(fields: Mapping[str, Any], names: Iterable[str], file: str = "config.json") -> None:
    """Raise CheckpointError naming the first of `names` that `fields` of `file` lack, or have as null."""
    for name in names:
        if fields.get(name) is None:
            raise CheckpointError(f"{file} lacks {name}", field=name)


def check_served(fields: Mapping[str, Any], served: Mapping[str, Collection[Any]]) -> None:
    """Raise CheckpointError naming a field that is there with none of the values that are served of it."""
    for name, values in served.items():
        if name in fields and fields[name] not in values:
            raise CheckpointError(f"{name} {fields[name]!r} is not served", field=name)
