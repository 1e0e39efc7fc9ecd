"""State that is copied and put back by the programs that serving does it with."""

from __future__ import annotations

import torch

from flare.contract import ValueSource
from flare.device.direct import DirectRequest
from flare.testing.teacher_forcing import Forced


class Snapshots:
    """One snapshot at a time: a row and the page that the text ends in, behind those of live requests."""

    def __init__(self, forced: Forced) -> None:
        self.forced = forced
        capacities = forced.capacities
        self.rows = forced.device.storage("rows").view(capacities.rows, -1)
        self.pages = forced.device.storage("pages").view(capacities.pages, -1)
        self.row, self.page = capacities.rows - 1, capacities.pages - 1
        self.shared: list[int] = []
        self.count = 0

    def take(self, request: DirectRequest) -> None:
        """Copy what `request` is now; every byte is as it was."""
        self.count = request.consumed
        full = self.count // self.forced.device.contract.page.page_tokens
        self.shared = request.pages[:full]
        live, tail = self.forced.capacities.live_row(request.slot), request.pages[full]
        self.forced.runner.run("snapshot", _transfer((live, tail), (self.row, self.page)))
        assert torch.equal(self.rows[self.row], self.rows[live])
        assert torch.equal(self.pages[self.page], self.pages[tail])

    def wipe(self) -> None:
        """Leave nothing but the snapshot and the full pages that it shares."""
        kept = {0, *self.shared, self.page}
        self.pages[[page for page in range(len(self.pages)) if page not in kept]] = 0xFF
        self.rows[1 : self.row] = 0xFF

    def restore(self, slot: int) -> DirectRequest:
        """A request on `slot` that goes on from the snapshot, the only one that runs."""
        forced = self.forced
        forced.runner.reuse_pages()
        request = forced.start(slot)
        request.pages = [*self.shared, *request.pages[len(self.shared) :]]
        request.consumed, request.history = self.count, list(forced.ids[: self.count])
        table = {ValueSource.PAGE_TABLE_ROW: request.pages, ValueSource.MIN_TOKENS: [len(forced.ids) + 99]}
        forced.runner.start(slot, forced.ids, extra=table)
        target = forced.capacities.live_row(slot), request.pages[len(self.shared)]
        values = _transfer((self.row, self.page), target)
        slots = {ValueSource.LANE_SLOTS: [slot], ValueSource.CONSUMED_COUNTS: [self.count]}
        forced.runner.run("restore", values | slots)
        return request


def _transfer(source: tuple[int, int], target: tuple[int, int]) -> dict[ValueSource, object]:
    return {
        ValueSource.SOURCE_ROW: [source[0]],
        ValueSource.DESTINATION_ROW: [target[0]],
        ValueSource.SOURCE_PAGE: [source[1]],
        ValueSource.DESTINATION_PAGE: [target[1]],
    }
