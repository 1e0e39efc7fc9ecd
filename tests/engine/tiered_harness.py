"""An engine with tiers behind the device whose transfers run when the test says so."""

from __future__ import annotations

from pathlib import Path

from engine_harness import Harness, image
from later import Later

from flare.cache.stores import CoreState, DiskStore, HostStore, Store, core_state
from flare.engine.tiers import TierTransfers
from flare.scheduler import Settings
from flare.testing.hash_model import HashModel


def state_of(model: HashModel) -> CoreState:
    return core_state(image(model).contract, "the hash model")


def make_stores(
    model: HashModel, *, host_blocks: int = 0, disk_blocks: int = 0, directory: Path | None = None
) -> list[Store]:
    """Stores of about so many pages."""
    core = state_of(model)
    stores: list[Store] = []
    if host_blocks:
        stores.append(HostStore(core, host_blocks * core.page_bytes + core.row_bytes))
    if disk_blocks:
        stores.append(
            DiskStore(directory, core, disk_blocks * (core.page_bytes + 512) + core.row_bytes + 512)
        )
    return stores


class TieredHarness(Harness):
    """`restores` and `saves` hold the transfers that have begun."""

    def __init__(
        self,
        model: HashModel,
        stores: list[Store],
        *,
        max_frames: int = 2,
        settings: Settings | None = None,
        proposal_key: int | None = None,
    ) -> None:
        self.restores, self.saves = Later(), Later()
        super().__init__(
            model,
            max_frames=max_frames,
            settings=settings,
            proposal_key=proposal_key,
            transfers=lambda device: TierTransfers(
                device, stores, restoring=self.restores, saving=self.saves
            ),
        )

    def run(self) -> None:
        """Step until idle, transfers included."""
        while self.engine.step() or self.restores.run_one() or self.saves.run_one():
            self.check_holders()

    def check_holders(self) -> None:
        """No page or row has two holders."""
        scheduler = self.scheduler
        pages = [page for request in scheduler._running for page in request.pages[request.shared :]]
        rows: list[int] = []
        storages = [checkpoint.storage for checkpoint in scheduler.tree]
        for checkpoint in scheduler.tree:
            pages += checkpoint.pages
        for ticket in scheduler.restores._tickets:
            pages += ticket.pages
            storages.append(ticket.storage)
        for storage in storages:
            rows.append(storage.row)
            pages += [] if storage.tail_page is None else [storage.tail_page]
        assert len(pages) == len(set(pages))
        assert len(rows) == len(set(rows))
        assert 0 not in pages
