"""From what an operator chose to open stores."""

from __future__ import annotations

from flare.cache.store_options import DEFAULT_DISK_BYTES, StoreOptions
from flare.cache.stores.base import Store
from flare.cache.stores.core import CoreState
from flare.cache.stores.disk import DiskStore
from flare.cache.stores.host import HostStore


def open_stores(options: StoreOptions, core: CoreState) -> list[Store]:
    """The stores of one core, the nearest first. Raises CacheError."""
    stores: list[Store] = []
    if options.host_bytes:
        stores.append(HostStore(core, options.host_bytes))
    if options.disk_directory is not None:
        stores.append(DiskStore(options.disk_directory, core, options.disk_bytes or DEFAULT_DISK_BYTES))
    return stores
