"""How much to reason, as protocols ask for it, and as templates are told."""

from __future__ import annotations

from typing import Any


def effort_variables(effort: str | None) -> dict[str, Any]:
    """Variables of the template for `reasoning_effort`; `none` means not to reason at all."""
    if effort is None:
        return {}
    return {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}
