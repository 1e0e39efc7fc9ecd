"""Options of `flare run` about the sizes of the cache and its tiers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flare.errors import CacheError, CapacityError

if TYPE_CHECKING:
    from flare.cache.store_options import StoreOptions

CacheTokensOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens that the pages of the cache hold, at least one context.",
        show_default="CPU: a context for each request; GPU: what the memory has room for",
    ),
]
SnapshotRowsOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Rows for saved state: prefixes that the device keeps.",
        show_default="eight for each concurrent request, more where rows are small",
    ),
]
GpuMemoryUtilizationOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=1.0,
        help="Part of the GPU's memory that this process may fill with weights, programs and cache.",
        show_default="0.9",
    ),
]
HostCacheOption = Annotated[
    str | None,
    typer.Option(help="Memory for checkpoints that the device has no room for: 4G.", show_default="none"),
]
DiskCacheOption = Annotated[
    Path | None, typer.Option(help="Directory that keeps checkpoints over a restart.", show_default="none")
]
DiskCacheSizeOption = Annotated[
    str | None, typer.Option(help="Bound of that directory: 64G.", show_default="8G")
]


def store_options(
    host_cache: str | None, disk_cache: Path | None, disk_cache_size: str | None
) -> StoreOptions:
    """The chosen tiers. Raises CacheError for sizes that are none."""
    from flare.cache.store_options import StoreOptions

    return StoreOptions(
        host_bytes=0 if host_cache is None else _bytes(host_cache, "host_cache"),
        disk_directory=disk_cache,
        disk_bytes=None if disk_cache_size is None else _bytes(disk_cache_size, "disk_cache_size"),
    )


def _bytes(text: str, field: str) -> int:
    from flare.prepare.plan import parse_bytes

    try:
        return parse_bytes(text)
    except CapacityError as error:
        raise CacheError(str(error), field=field) from error
