"""Operators: importing this package registers every `torch.ops.flare.*` operator with its CPU kernel.

The CPU device loads this package by the name a core states; it holds operators and kernels, no model.
"""

from __future__ import annotations
