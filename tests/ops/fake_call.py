"""Calling an operator with fake tensors, as tracing does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def faked(name: str, args: Sequence[Any]) -> Any:
    """The fake result of `flare::name` for the layouts of `args`."""
    with FakeTensorMode() as mode:
        given = (mode.from_tensor(arg) if isinstance(arg, torch.Tensor) else arg for arg in args)
        return getattr(torch.ops.flare, name)(*given)
