"""The serving plan: capacities and geometry, decided before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flare.contract import (
    Capacities,
    DType,
    ImageProfile,
    PageGeometry,
    Region,
    RowGeometry,
    page_geometry,
    row_geometry,
)
from flare.contract.schemes import CacheScheme
from flare.device.cuda.layout import DEFAULT_SPANS
from flare.device.sizing import default_snapshot_rows
from flare.errors import CapacityError
from flare.prepare.image_sizes import image_sizes
from flare.prepare.table_delivery import TableDelivery

MAX_STOP_TOKEN_IDS = 32
MAX_LOGIT_BIAS = 300  # the bound of the OpenAI API
MAX_LOGPROBS = 20  # the bound of the OpenAI API
SMALLEST_PREFILL = 16
MOST_BLOCKS = 1 << 20
"""Pages, and rows, that the cache keeps books of without the books becoming large themselves."""


@dataclass(frozen=True, kw_only=True)
class CapacityRequest:
    """What a person asks for. `memory` bounds weights, packed copies, state, windows, image features and
    pages together, in bytes; None takes what the capacities need. `context` None takes the model's limit,
    `prefill_chunk_size` None what suits the device, `page_tokens` None the recipe's choice. Of a model that
    takes images: `image_patches` are the most patches of one image (None: 16384, or what the model can need;
    larger images are scaled down), `image_features` the tokens of all images of a request (None: four of the
    largest images). Of a model with tables: `tables` says how their rows are delivered."""

    context: int | None = None
    concurrency: int = 4
    prefill_chunk_size: int | None = None
    memory: int | None = None
    page_tokens: int | None = None
    snapshot_rows: int | None = None
    image_patches: int | None = None
    image_features: int | None = None
    tables: TableDelivery = TableDelivery.HOST

    def __post_init__(self) -> None:
        for name in ("concurrency", "prefill_chunk_size", "page_tokens", "image_patches", "image_features"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CapacityError(f"{name.replace('_', '-')} must be at least 1", field=name)
        if self.context is not None and self.context < 2:
            raise CapacityError("context must be at least 2: a prompt and an answer", field="context")
        if self.snapshot_rows is not None and self.snapshot_rows < 0:
            raise CapacityError("snapshot-rows must not be negative", field="snapshot_rows")


@dataclass(frozen=True, kw_only=True)
class ServingPlan:
    """Capacities and the geometry that the schemes give, for one model."""

    capacities: Capacities
    schemes: tuple[CacheScheme, ...]
    page: PageGeometry
    row: RowGeometry
    dtype: DType
    vocab_size: int
    tables: TableDelivery = TableDelivery.HOST

    @property
    def pages_per_request(self) -> int:
        """Pages that hold one context."""
        return -(-self.capacities.context // self.page.page_tokens)


def decode_sizes(concurrency: int) -> tuple[int, ...]:
    """Powers of two up to the first that holds `concurrency` lanes."""
    sizes = [1]
    while sizes[-1] < concurrency:
        sizes.append(sizes[-1] * 2)
    return tuple(sizes)


def prefill_sizes(chunk: int) -> tuple[int, ...]:
    """16, 32, 64 ... below the chunk limit, and the limit itself."""
    sizes = [size for size in (SMALLEST_PREFILL << n for n in range(24)) if size < chunk]
    return (*sizes, chunk)


def plan_serving(
    request: CapacityRequest,
    *,
    schemes: Sequence[CacheScheme],
    dtype: DType,
    vocab_size: int,
    model_context: int,
    weight_bytes: int,
    weight_copies: float,
    prefill_chunk: int,
    page_tokens: int = 64,
    images: ImageProfile | None = None,
    other_bytes: int = 0,
) -> ServingPlan:
    """Decide capacities. `weight_copies` is how often the device holds the weights (packed layouts count),
    `prefill_chunk` the largest chunk and `page_tokens` the page where the request names none, `images` what
    the model wants of images, `other_bytes` what the device holds beside weights, rows and pages.

    Raises CapacityError with the numbers when the context exceeds the model's, or when the memory cannot
    hold all that and at least one full context.
    """
    context = model_context if request.context is None else request.context
    if context > model_context:
        raise CapacityError(
            f"context {context} exceeds the model's limit of {model_context}", field="context"
        )
    page = page_geometry(schemes, request.page_tokens or page_tokens)
    row = row_geometry(schemes)
    patches, features = image_sizes(request, images, context)
    chunk = prefill_chunk if request.prefill_chunk_size is None else request.prefill_chunk_size
    per_request = -(-context // page.page_tokens)
    wanted = 1 + per_request * request.concurrency  # page 0 is the null page
    snapshots = request.snapshot_rows
    if snapshots is None:
        snapshots = default_snapshot_rows(request.concurrency, wanted, page.nbytes, row.nbytes)
    rows = row.nbytes * (1 + request.concurrency + snapshots)
    fixed = int(weight_bytes * weight_copies) + other_bytes + rows
    least = 1 + per_request
    if request.memory is not None:
        affordable = (request.memory - fixed) // max(page.nbytes, 1)
        if affordable < least:
            raise CapacityError(
                f"memory {format_bytes(request.memory)} cannot hold weights, rows and windows "
                f"({format_bytes(fixed)}) and one context of {context} tokens "
                f"({least} pages of {format_bytes(page.nbytes)} = {format_bytes(least * page.nbytes)}); "
                f"at least {format_bytes(fixed + least * page.nbytes)} is needed",
                field="memory",
            )
        wanted = min(wanted, affordable)
    # A bound on memory, or a count that was asked for, is a bound for whoever loads the core too.
    bounded = request.memory is not None
    page_range = None if bounded else _range(wanted, Region.PAGES, page.nbytes)
    row_range = None
    if not bounded and request.snapshot_rows is None:
        row_range = _range(snapshots, Region.ROWS, row.nbytes)
    return ServingPlan(
        capacities=Capacities(
            concurrency=request.concurrency,
            context=context,
            pages=wanted,
            snapshot_rows=snapshots,
            decode_lanes=decode_sizes(request.concurrency),
            prefill_tokens=prefill_sizes(min(chunk, context)),
            completion_tokens=1,
            stop_token_ids=MAX_STOP_TOKEN_IDS,
            logit_bias=MAX_LOGIT_BIAS,
            logprobs=MAX_LOGPROBS,
            image_patches=patches,
            image_features=features,
            page_range=page_range,
            snapshot_row_range=row_range,
        ),
        schemes=tuple(schemes),
        page=page,
        row=row,
        dtype=dtype,
        vocab_size=vocab_size,
        tables=request.tables,
    )


def _range(count: int, region: Region, block_bytes: int) -> int:
    """Blocks that programs address: addresses cost nothing, so whoever loads the core chooses how many there
    are."""
    return max(count, min(DEFAULT_SPANS[region] // max(block_bytes, 1), MOST_BLOCKS))


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_bytes(text: str) -> int:
    """`"6G"`, `"512MiB"`, `"1.5g"` or a plain number of bytes. Raises CapacityError otherwise."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None:
        raise CapacityError(f"{text!r} is not a size; write 6G or 512M", field="memory")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def format_bytes(count: int) -> str:
    """Binary units, two decimals."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} TiB"
