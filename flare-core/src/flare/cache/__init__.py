"""Pools of pages, slots and rows: who holds a block, and until when the device may still touch it."""

from flare.cache.pages import PagePool
from flare.cache.pool import FencedPool
from flare.cache.rows import RowPool
from flare.cache.slots import Slot, SlotPool

__all__ = ["FencedPool", "PagePool", "RowPool", "Slot", "SlotPool"]
