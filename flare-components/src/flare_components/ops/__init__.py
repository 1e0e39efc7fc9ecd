"""Operators: importing this package registers every `torch.ops.flare.*` operator with its CPU kernel.

The CPU device loads this package by the name a core states, and packs constant operands with `bind`. The
package holds operators and kernels, no model.
"""

from __future__ import annotations

from flare_components.ops import (  # noqa: F401  (importing registers)
    activation,
    attention,
    completion,
    linear,
    norms,
    paging,
    request_start,
    rotary,
    rows,
    sampling,
    state_transfer,
    token_state,
)
from flare_components.ops.binding import BoundOp, bind

__all__ = ["BoundOp", "bind"]
