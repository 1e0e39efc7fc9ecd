"""How many pages and snapshot rows a device holds: a choice made at load time, up to what was prepared.

Programs address pages and rows by number and know only the size of one, so that any count up to the prepared
range runs the same programs.
"""

from __future__ import annotations

from typing import NamedTuple

from flare.contract import BufferSpec, PreparedContract, Region
from flare.device.options import LoadOptions
from flare.errors import CapacityError

BLOCK_REGIONS = (Region.PAGES, Region.ROWS)


class Counts(NamedTuple):
    """Pages (the null page included) and snapshot rows."""

    pages: int
    snapshot_rows: int


def default_snapshot_rows(concurrency: int, pages: int, page_bytes: int, row_bytes: int) -> int:
    """Eight checkpoints per request, and more where rows are small: up to one for two pages, as long as all
    of them take no more than a sixteenth of the pages."""
    affordable = pages * page_bytes // (16 * max(row_bytes, 1))
    return max(8 * concurrency, min(pages // 2, affordable))


def chosen_counts(contract: PreparedContract, options: LoadOptions) -> Counts:
    """What `options` names, and what was recorded at preparation otherwise. Raises CapacityError for more
    than was prepared, or less than one context."""
    capacities = contract.capacities
    pages, rows = _pages(contract, options), _rows(contract, options)
    return Counts(
        capacities.pages if pages is None else pages, capacities.snapshot_rows if rows is None else rows
    )


def least_counts(contract: PreparedContract, options: LoadOptions) -> Counts:
    """The fewest blocks that serve, or those of `options`. Raises CapacityError as `chosen_counts`."""
    pages, rows = _pages(contract, options), _rows(contract, options)
    return Counts(contract.pages_per_request + 1 if pages is None else pages, rows or 0)


def counts_within(contract: PreparedContract, options: LoadOptions, nbytes: int) -> Counts:
    """As many blocks as `nbytes` have room for, of those that `options` does not name.

    Raises CapacityError, with the numbers, when not even one context fits; and as `chosen_counts`.
    """
    capacities = contract.capacities
    least = least_counts(contract, options)
    if (needed := block_bytes(contract, least)) > nbytes:
        live = capacities.live_row(capacities.concurrency)
        raise CapacityError(
            f"{least.pages} pages of {contract.page.nbytes} bytes (a context of {capacities.context} tokens "
            f"takes {contract.pages_per_request} and the null page) and {live + least.snapshot_rows} rows of "
            f"{contract.row.nbytes} need {needed} bytes, beside weights and programs there is room for "
            f"{max(nbytes, 0)}: end other processes on this GPU, raise gpu-memory-utilization, lower "
            "cache-tokens or snapshot-rows, or prepare with a smaller context",
            field="cache_tokens",
        )
    fixed = block_bytes(contract, Counts(0, 0))
    page, row = max(contract.page.nbytes, 1), max(contract.row.nbytes, 1)
    most = min((nbytes - fixed) // page, capacities.addressable_pages)
    pages, rows = _pages(contract, options), _rows(contract, options)
    if rows is None:
        wanted = default_snapshot_rows(capacities.concurrency, most if pages is None else pages, page, row)
        room = (nbytes - fixed - least.pages * page) // row
        rows = min(wanted, room, capacities.addressable_rows - capacities.live_row(capacities.concurrency))
    if pages is None:
        pages = min((nbytes - fixed - rows * row) // page, capacities.addressable_pages)
    return Counts(pages, rows)


def block_bytes(contract: PreparedContract, counts: Counts) -> int:
    """Bytes of pages and rows together; null row and live rows come on top of `counts`."""
    rows = contract.capacities.live_row(contract.capacities.concurrency) + counts.snapshot_rows
    return counts.pages * contract.page.nbytes + rows * contract.row.nbytes


def sized(contract: PreparedContract, counts: Counts) -> PreparedContract:
    """The contract of a device that holds `counts`: capacities and buffers are what there is."""
    capacities = contract.capacities.model_copy(
        update={**counts._asdict(), "page_range": None, "snapshot_row_range": None}
    )
    blocks = {
        Region.PAGES: (contract.capacities.addressable_pages, capacities.pages),
        Region.ROWS: (contract.capacities.addressable_rows, capacities.rows),
    }
    buffers = tuple(
        _shortened(buffer, *blocks[buffer.region]) if buffer.region in blocks else buffer
        for buffer in contract.buffers
    )
    return contract.model_copy(update={"capacities": capacities, "buffers": buffers})


def _shortened(buffer: BufferSpec, have: int, wanted: int) -> BufferSpec:
    if have == wanted:
        return buffer
    assert buffer.strides is None, "blocks lie side by side"
    assert buffer.shape[0] == have, "a region of blocks is one buffer"
    return buffer.model_copy(update={"shape": (wanted, *buffer.shape[1:])})


def _pages(contract: PreparedContract, options: LoadOptions) -> int | None:
    if options.cache_tokens is None:
        return None
    pages = 1 + -(-options.cache_tokens // contract.page.page_tokens)  # page 0 is the null page
    most, least = contract.capacities.addressable_pages, contract.pages_per_request + 1
    if pages < least:
        raise CapacityError(
            f"cache-tokens {options.cache_tokens} cannot hold one context of {contract.capacities.context} "
            "tokens: choose at least as many, or prepare with a smaller context",
            field="cache_tokens",
        )
    if pages > most:
        raise CapacityError(
            f"cache-tokens {options.cache_tokens} exceed the {(most - 1) * contract.page.page_tokens} that "
            "this core was prepared for",
            field="cache_tokens",
        )
    return pages


def _rows(contract: PreparedContract, options: LoadOptions) -> int | None:
    rows, capacities = options.snapshot_rows, contract.capacities
    most = capacities.addressable_rows - capacities.live_row(capacities.concurrency)
    if rows is not None and rows > most:
        raise CapacityError(
            f"snapshot-rows {rows} exceed the {most} that this core was prepared for", field="snapshot_rows"
        )
    return rows
