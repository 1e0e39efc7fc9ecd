"""Operators: importing this package registers every `torch.ops.flare.*` operator with its CPU kernel, and
with its CUDA kernel where torch is built for CUDA and Triton is installed (extra `cuda`).

The CPU device loads this package by the name a core states, and packs constant operands with `bind`. The
package holds operators and kernels, no model.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch

# oneDNN's AMX kernels give a row other bits with another number of rows beside it (measured in BF16); what a
# request draws would depend on what else is served. Read once, when the first product runs.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

from flare_components.ops import (  # noqa: F401  (importing registers)
    activation,
    attention,
    axial_rotary,
    completion,
    experts,
    fp8_block,
    frame_attention,
    fused,
    gated_delta,
    gated_groups,
    gelu,
    group_norms,
    grouped_keys,
    image_grid,
    latent_attention,
    linear,
    mxfp8,
    ngram,
    norms,
    nvfp4,
    nvfp4_csf,
    paging,
    request_start,
    rotary,
    routing,
    rows,
    sampling,
    selected_attention,
    short_conv,
    state_transfer,
    stream_mixing,
    streams,
    token_state,
)
from flare_components.ops.binding import BoundOp, bind

if torch.version.cuda is not None and find_spec("triton") is not None:
    from flare_components.ops import cuda  # noqa: F401

__all__ = ["BoundOp", "bind"]
