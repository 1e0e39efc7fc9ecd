"""How an operator of the `flare` namespace is declared: one schema, one CPU kernel, one shape function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

LIBRARY = torch.library.Library("flare", "FRAGMENT")
"""Owns every registration; the operators live as long as this object."""


def define(schema: str, *, cpu: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Register one operator under `flare::`.

    schema: an ATen schema without namespace, e.g. `"silu_and_mul(Tensor gate_up) -> Tensor"`. An
        argument written in place is marked `Tensor(a!)`; an operator never returns an alias of an
        argument.
    cpu: the kernel. It is dispatched directly (about 1.4 us a call; `torch.library.custom_op` adds
        60 us), so it checks nothing that the fake kernel has already checked.
    fake: shapes and dtypes of the results for tracing, from fake tensors; raises on operands that the
        operator does not take.

    `torch.ops.flare.<name>` exists afterwards. Registering a name twice raises RuntimeError.
    """
    name = LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,)).split("::")[-1].split(".")[0]
    LIBRARY.impl(name, cpu, "CPU")
    torch.library.register_fake(f"flare::{name}", fake, lib=LIBRARY)


def accelerate(name: str, kernel: Callable[..., Any]) -> None:
    """Register the CUDA kernel of a defined operator. It has the operator's schema and can be captured: it
    never waits for the device, allocates by torch's allocator alone, and its shapes follow from its operands'
    shapes. Like the CPU kernel it relies on what the fake kernel has checked."""
    LIBRARY.impl(name, kernel, "CUDA")
