"""Where checkpoints are kept besides the device: host memory and disk, behind one interface."""

from flare.cache.stores.base import (
    Entry,
    Reading,
    Source,
    Store,
    StoreCounts,
    StoreFault,
    describe,
    prefix_name,
)
from flare.cache.stores.core import CoreState, core_state
from flare.cache.stores.disk import DiskStore
from flare.cache.stores.host import HostStore
from flare.cache.stores.opening import open_stores

__all__ = [
    "CoreState",
    "DiskStore",
    "Entry",
    "HostStore",
    "Reading",
    "Source",
    "Store",
    "StoreCounts",
    "StoreFault",
    "core_state",
    "describe",
    "open_stores",
    "prefix_name",
]
