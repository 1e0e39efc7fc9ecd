"""Number formats of weights: how small floating-point codes and their scales stand for a matrix.

One module per element type (`e2m1`, `e4m3`, `e8m0`), per block format (`nvfp4`, `mxfp8`, `fp8_block`) and per
compressed form of FP4 block scales (`csf`, `csf_split`, `csf_bit`). Every encoder rounds to nearest with ties
to even and saturates; a block with a value that is not finite decodes to NaN as a whole, so that a poisoned
input is seen. `reference` holds the same definitions as slow NumPy code for tests.

A matrix is [..., rows, columns]; blocks lie along columns (and rows for `fp8_block`), the last one may be
short.
"""

from __future__ import annotations

from flare_components.quant import csf, csf_bit, csf_split, e2m1, e4m3, e8m0, fp8_block, mxfp8, nvfp4

__all__ = ["csf", "csf_bit", "csf_split", "e2m1", "e4m3", "e8m0", "fp8_block", "mxfp8", "nvfp4"]
