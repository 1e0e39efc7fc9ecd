"""Products of 9 to 64 rows: still a walk through the weights, with the rows as the narrow side.

A tile of weights is the left operand of the matrix units, which take at least 64 rows there, and all rows
of x lie beside it: the kernel is the one of fewer rows. Where outputs are few the inner dimension is split.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from flare_components.ops.cuda.launch import cdiv, power_of_two, processors, roomy
from flare_components.ops.cuda.tuning import Candidate

MOST_ROWS = 64
"""More rows are cuBLAS's, whose tiles are full then."""
_SHAPES = (
    (64, 128, 4, 4),
    (64, 128, 4, 5),
    (128, 64, 4, 6),
    (128, 128, 8, 4),
)  # outputs, inputs, warps, stages


def tiles(few_rows: Callable[..., Tensor], x: Tensor, weight: Tensor) -> list[Candidate]:
    """Calls of `linear.few_rows` that take these operands, of two bytes a value."""
    rows, (outputs, inputs) = x.shape[0], weight.shape
    if rows > MOST_ROWS or x.element_size() != 2 or not roomy(x):
        return []
    width = max(power_of_two(rows), 16)
    found = []
    for tile, step, warps, stages in _SHAPES:
        fill = cdiv(2 * processors(x), cdiv(outputs, tile))
        for splits in sorted({1, 2, min(power_of_two(fill), 4)}):
            if splits > cdiv(inputs, step) or splits > fill:
                continue
            name = f"tile {tile}x{step}/{splits} of {stages}"
            found.append(
                Candidate(
                    name, partial(few_rows, tile, step, splits, width=width, warps=warps, stages=stages)
                )
            )
    return found
