"""Counts of pages and rows: chosen at load time, up to what was prepared; programs do not notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flare.contract import PreparedContract
from flare.corefile import CoreReader, read_contract
from flare.device import LoadOptions, load_device
from flare.device.cpu import CpuDevice
from flare.device.direct import DirectRunner
from flare.device.sizing import Counts, chosen_counts, counts_within, sized
from flare.errors import CapacityError


def contract_of(core: Path) -> PreparedContract:
    with CoreReader(core) as reader:
        return read_contract(reader)


def loaded(core: Path, options: LoadOptions) -> CpuDevice:
    device = load_device(contract_of(core), CoreReader(core), options)
    assert isinstance(device, CpuDevice)
    return device


def drawn(device: CpuDevice, pages: list[int]) -> list[int]:
    runner = DirectRunner(device)
    runner._next_page = pages[0]
    request = runner.start(0, list(range(5, 60)), seed=3)
    assert request.pages == pages
    tokens = runner.prefill_all(request, list(range(5, 60)))
    for _ in range(6):
        tokens += runner.decode([request], "decode.1")[0]
    return tokens


def test_a_core_has_more_addresses_than_memory(tiny_core: Path) -> None:
    contract = contract_of(tiny_core)
    capacities = contract.capacities
    assert capacities.addressable_pages > 100 * capacities.pages
    assert capacities.addressable_rows == capacities.rows  # snapshot rows were asked for
    device = loaded(tiny_core, LoadOptions())
    assert device.contract.capacities.pages == capacities.pages
    assert device.ledger["pages"] == capacities.pages * contract.page.nbytes
    assert device.storage("pages").numel() == device.ledger["pages"]


def test_programs_run_the_same_with_any_number_of_pages(tiny_core: Path) -> None:
    contract = contract_of(tiny_core)
    per_request, tokens = contract.pages_per_request, contract.page.page_tokens
    least = loaded(tiny_core, LoadOptions(cache_tokens=contract.capacities.context))
    assert least.contract.capacities.pages == per_request + 1
    many = 50_000
    most = loaded(tiny_core, LoadOptions(cache_tokens=many * tokens, snapshot_rows=1))
    assert most.contract.capacities.pages == many + 1
    assert most.contract.capacities.snapshot_rows == 1
    first = drawn(least, list(range(1, per_request + 1)))
    assert first == drawn(most, list(range(many + 1 - per_request, many + 1)))
    assert len(first) == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_tokens": 17}, "cannot hold one context of 256 tokens"),
        ({"cache_tokens": 1 << 40}, "that this core was prepared for"),
        ({"snapshot_rows": 3}, "snapshot-rows 3 exceed the 2"),
        ({"gpu_memory_utilization": 0.5}, "is for GPUs, this core is for 'cpu'"),
        ({"gpu_memory_utilization": 1.5}, "above 0 and at most 1"),
        ({"cache_tokens": 0}, "at least 1"),
        ({"snapshot_rows": -1}, "not be negative"),
    ],
)
def test_what_cannot_be_chosen(tiny_core: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CapacityError, match=message):
        loaded(tiny_core, LoadOptions(**options))


def test_a_contract_of_fewer_blocks_is_a_contract(tiny_core: Path) -> None:
    contract = contract_of(tiny_core)
    smaller = sized(contract, Counts(contract.pages_per_request + 1, 0))
    assert PreparedContract.model_validate(json.loads(smaller.model_dump_json())) == smaller
    assert smaller.capacities.addressable_pages == smaller.capacities.pages
    assert chosen_counts(smaller, LoadOptions()) == (smaller.capacities.pages, 0)


@pytest.mark.parametrize("extra_pages", [0, 1, 7, 1000])
def test_memory_is_filled_and_never_overrun(tiny_core: Path, extra_pages: int) -> None:
    contract = contract_of(tiny_core)
    page, row, capacities = contract.page.nbytes, contract.row.nbytes, contract.capacities
    live = capacities.live_row(capacities.concurrency)
    nbytes = (contract.pages_per_request + 1 + extra_pages) * page + live * row
    counts = counts_within(contract, LoadOptions(), nbytes)
    used = counts.pages * page + (live + counts.snapshot_rows) * row
    assert nbytes - page < used <= nbytes
    assert counts.snapshot_rows == (2 if extra_pages else 0)
    with pytest.raises(CapacityError, match="there is room for"):
        counts_within(contract, LoadOptions(), contract.pages_per_request * page + live * row)


def test_addresses_that_are_not_to_be_had(tiny_core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    contract, reader = contract_of(tiny_core), CoreReader(tiny_core)
    monkeypatch.setattr("flare.device.cpu_memory.mmap.mmap", refuse)
    with pytest.raises(
        CapacityError, match=r"bytes of addresses for buffer .* prepare with a bound on memory"
    ):
        CpuDevice(contract, reader)
