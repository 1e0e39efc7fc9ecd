"""The base of every contract model, and its compatibility rule.

A field that was required when it was introduced rejects a core that lacks it; every later field has a
default that keeps the old behaviour. Unknown fields are ignored (an older engine reads a newer additive
core), unknown enum values reject. A removed field's name goes to `RESERVED` and never means anything else.
Models are frozen: a loaded contract never changes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class ContractModel(BaseModel):
    """Frozen pydantic model that ignores unknown fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    RESERVED: ClassVar[frozenset[str]] = frozenset()
    """Names of fields that older cores may carry; no field may take one again."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        if reused := cls.RESERVED & cls.model_fields.keys():
            raise TypeError(f"{cls.__name__}: {sorted(reused)} had another meaning once and stay reserved")
