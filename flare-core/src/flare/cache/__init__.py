"""Pools of pages, slots and rows: who holds a block, and until when the device may still touch it."""

from flare.cache.pages import NULL_PAGE, PagePool
from flare.cache.pool import FencedPool
from flare.cache.rows import NULL_ROW, RowPool
from flare.cache.slots import Slot, SlotPool

__all__ = ["NULL_PAGE", "NULL_ROW", "FencedPool", "PagePool", "RowPool", "Slot", "SlotPool"]
