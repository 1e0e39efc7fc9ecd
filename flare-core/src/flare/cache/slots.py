"""Request slots: an index into device request state, its live rows, and an epoch per tenant."""

from __future__ import annotations

from dataclasses import dataclass

from flare.cache.pool import FencedPool
from flare.contract import Capacities

_EPOCH_MASK = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Slot:
    """One tenancy of a slot: `epoch` differs from every earlier tenant's, `row` is its first live row."""

    index: int
    epoch: int
    row: int


class SlotPool(FencedPool):
    """Slots 0 .. concurrency - 1. Slot s owns the live rows `capacities.live_row(s)` onwards."""

    def __init__(self, capacities: Capacities) -> None:
        super().__init__(first=0, count=capacities.concurrency)
        self._capacities = capacities
        self._epochs = [0] * capacities.concurrency

    def take(self) -> Slot | None:
        """A free slot under a fresh epoch, or None."""
        blocks = self.allocate(1)
        if blocks is None:
            return None
        (index,) = blocks
        self._epochs[index] = (self._epochs[index] + 1) & _EPOCH_MASK
        return Slot(index=index, epoch=self._epochs[index], row=self._capacities.live_row(index))
