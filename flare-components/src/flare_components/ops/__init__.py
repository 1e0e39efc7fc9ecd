"""Operators: importing this package registers every `torch.ops.flare.*` operator with its CPU kernel.

The CPU device loads this package by the name a core states; it holds operators and kernels, no model.
"""

from __future__ import annotations

# Sampling and request state.
from flare_components.ops import completion, request_start, sampling, token_state  # noqa: F401
