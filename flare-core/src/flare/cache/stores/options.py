"""Which stores a server keeps, as an operator chooses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flare.cache.stores.base import Store
from flare.cache.stores.core import CoreState
from flare.cache.stores.disk import DiskStore
from flare.cache.stores.host import HostStore
from flare.errors import CacheError

DEFAULT_DISK_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`host_bytes` of memory and `disk_bytes` of files below `disk_directory`; 0 and None are off.

    `disk_bytes` None is DEFAULT_DISK_BYTES. Raises CacheError for what makes no sense.
    """

    host_bytes: int = 0
    disk_directory: Path | None = None
    disk_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.host_bytes < 0:
            raise CacheError("the size of the host cache is negative", field="host_cache")
        if self.disk_bytes is not None:
            if self.disk_directory is None:
                raise CacheError(
                    "--disk-cache-size without --disk-cache: name the directory", field="disk_cache_size"
                )
            if self.disk_bytes <= 0:
                raise CacheError("the size of the disk cache must be positive", field="disk_cache_size")

    @property
    def enabled(self) -> bool:
        """Whether there is any store."""
        return self.host_bytes > 0 or self.disk_directory is not None


def open_stores(options: StoreOptions, core: CoreState) -> list[Store]:
    """The stores of one core, the nearest first. Raises CacheError."""
    stores: list[Store] = []
    if options.host_bytes:
        stores.append(HostStore(core, options.host_bytes))
    if options.disk_directory is not None:
        stores.append(DiskStore(options.disk_directory, core, options.disk_bytes or DEFAULT_DISK_BYTES))
    return stores
