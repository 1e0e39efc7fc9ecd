"""The base of every contract model, and its compatibility rule.

A field that was required when it was introduced rejects a core that lacks it; every later field has a
default that keeps the old behaviour. Unknown fields are ignored (an older engine reads a newer additive
core), unknown enum values reject. Models are frozen: a loaded contract never changes.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ContractModel(BaseModel):
    """Frozen pydantic model that ignores unknown fields."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")
