"""CUDA kernels of the operators: importing this package registers them.

Every kernel can be captured in a CUDA graph: lengths, slots and parameters are read on the device, grids
follow from shapes, nothing waits for the host. Indices of padding lanes are negative; such lanes read no
state and write none. Slots of one call are distinct.

Kernels are Triton's, compiled when a core is prepared; the serving process needs neither Triton nor torch.
Results agree with the CPU kernels to rounding. A row's bits may depend on the number of rows that a program
was captured for, because the fastest kernel and its split of a sum differ; they do not depend on what the
other rows hold.
"""

from __future__ import annotations

from flare_components.ops.cuda import (  # noqa: F401  (importing registers)
    activation,
    attention_choice,
    completion,
    fused,
    linear,
    norms,
    paging,
    request_start,
    rotary,
    rows,
    sampling,
    token_state,
)
