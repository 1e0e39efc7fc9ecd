"""An origin that nobody may look at."""

from __future__ import annotations

from typing import Any

from flare.contract import Provenance


class Sealed(Provenance):
    """Raises when anything of it is read."""

    def __getattribute__(self, name: str) -> Any:
        if name in Provenance.model_fields:
            raise AssertionError(f"the runtime read provenance.{name}")
        return super().__getattribute__(name)
