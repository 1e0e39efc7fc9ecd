"""Per-slot request state on the device: sampling parameters, counts, and where each request stands."""

from __future__ import annotations

from flare.contract import BufferView, Capacities, DType, Region
from flare.device.torch_types import CONTRACT_DTYPES
from flare.prepare import BufferLayout
from flare_components.ops.request_state import PARAMETERS, PROGRESS


def place_request_state(
    layout: BufferLayout, capacities: Capacities, *, vocab_size: int, pages_per_request: int
) -> dict[str, BufferView]:
    """Place every request-state buffer; returns views by name, leading dimension S (slots)."""
    extents = {
        "S": capacities.concurrency,
        "K": capacities.stop_token_ids,
        "B": capacities.logit_bias,
        "V": vocab_size,
    }
    shapes = {
        name: (CONTRACT_DTYPES[dtype], tuple(extents[dim] for dim in dims))
        for name, (dtype, dims) in (PARAMETERS | PROGRESS).items()
    }
    shapes["page_table"] = (DType.I32, (capacities.concurrency, pages_per_request))
    return {
        name: layout.add(f"state/{name}", Region.REQUEST_STATE, dtype, shape, role="request state")
        for name, (dtype, shape) in shapes.items()
    }
