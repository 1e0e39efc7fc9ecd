"""Snapshot, restore, resume and start: copies are exact, and nothing of an old request survives."""

from __future__ import annotations

import pytest
import torch
from altered import load
from state_bytes import changed, copy, nothing, outside, scramble, slot_window

from flare.contract import ValueSource
from flare.device.cpu import CpuDevice
from flare.device.direct import DirectRequest, DirectRunner

S = ValueSource
PROMPT = list(range(30, 70))
FORCED = [9, 100, 41, 200, 7]
SNAPSHOT_ROW = 5  # behind the null row and the rows of four slots
SPARE_PAGE = 64  # the last of 65
HOLD = {S.MIN_TOKENS: [200]}


@pytest.fixture(params=["tiny_core", "tiny_core_bf16"])
def device(request: pytest.FixtureRequest) -> CpuDevice:
    return load(request.getfixturevalue(request.param))


def prefill(runner: DirectRunner, request: DirectRequest, tokens: list[int], name: str) -> torch.Tensor:
    device = runner.device
    assert isinstance(device, CpuDevice)
    upload = runner.staging(runner.programs[name], runner.prefill_values(request, tokens, sample=True))
    request.consumed += len(tokens)
    return device.probe(name, upload)["logits"]


def decode_forced(runner: DirectRunner, request: DirectRequest, tokens: list[int]) -> list[torch.Tensor]:
    """Feed known tokens instead of the drawn ones; the logits after each."""
    device = runner.device
    assert isinstance(device, CpuDevice)
    logits = []
    for token in tokens:
        device.storage("state/pending").view(torch.int32)[request.slot] = token
        upload = runner.staging(runner.programs["decode.1"], runner.decode_values([request]))
        logits.append(device.probe("decode.1", upload)["logits"][0])
    return logits


def transfer(
    runner: DirectRunner, name: str, source: tuple[int, int], target: tuple[int, int], **slot: int
) -> None:
    """Copy (row, page); with `slot` and `consumed`, into a live slot."""
    values: dict[ValueSource, object] = {
        S.SOURCE_ROW: [source[0]],
        S.DESTINATION_ROW: [target[0]],
        S.SOURCE_PAGE: [source[1]],
        S.DESTINATION_PAGE: [target[1]],
    }
    if slot:
        values |= {S.LANE_SLOTS: [slot["slot"]], S.CONSUMED_COUNTS: [slot["consumed"]]}
    runner.run(name, values)


@pytest.mark.parametrize("length", [1, 15, 20, 31, 40])
def test_restore_continues_as_if_nothing_had_happened(device: CpuDevice, length: int) -> None:
    runner = DirectRunner(device)
    live = device.contract.capacities.live_row
    prompt = PROMPT[:length]
    shared, tail = length // 16, length // 16
    first = runner.start(0, prompt, seed=5, extra=HOLD)
    at_end = prefill(runner, first, prompt, "prefill.64")
    pending = int(device.storage("state/pending").view(torch.int32)[0])
    transfer(runner, "snapshot", (live(0), first.pages[tail]), (SNAPSHOT_ROW, SPARE_PAGE))
    undisturbed = decode_forced(runner, first, FORCED)

    # Everything that is not shared is lost: the live row, the tail page and the slot's state.
    keep = {*first.pages[:shared], SPARE_PAGE}
    pages = device.storage("pages").view(device.contract.capacities.pages, -1)
    pages[[page for page in range(len(pages)) if page not in keep]] = 0x7E
    device.storage("rows").view(device.contract.capacities.rows, -1)[1:SNAPSHOT_ROW] = 0x7E

    table = [*first.pages[:shared], *range(40, 40 + runner.contract.pages_per_request - shared)]
    second = runner.start(3, prompt, seed=5, extra={**HOLD, S.PAGE_TABLE_ROW: table})
    transfer(runner, "restore", (SNAPSHOT_ROW, SPARE_PAGE), (live(3), table[tail]), slot=3, consumed=length)
    upload = runner.staging(runner.programs["resume"], {S.LANE_SLOTS: [3], S.LIVE_ROWS: [live(3)]})
    assert torch.equal(device.probe("resume", upload)["logits"], at_end)
    assert int(device.storage("state/pending").view(torch.int32)[3]) == pending
    assert int(device.storage("state/consumed").view(torch.int32)[3]) == length
    for got, want in zip(decode_forced(runner, second, FORCED), undisturbed, strict=True):
        assert torch.equal(got, want)


def test_transfer_copies_one_row_and_one_page(device: CpuDevice) -> None:
    runner = DirectRunner(device)
    scramble(device)
    before = copy(device)
    transfer(runner, "snapshot", (2, 7), (SNAPSHOT_ROW, SPARE_PAGE))
    after, allowed = copy(device), nothing(device)
    capacities = device.contract.capacities
    for buffer, count, source, target in (
        ("rows", capacities.rows, 2, SNAPSHOT_ROW),
        ("pages", capacities.pages, 7, SPARE_PAGE),
    ):
        allowed[buffer].view(count, -1)[target] = 1
        blocks = after[buffer].view(count, -1)
        assert torch.equal(blocks[target], blocks[source])
    assert outside(changed(before, after), allowed) == {}


def test_an_aligned_endpoint_copies_no_page(device: CpuDevice) -> None:
    runner = DirectRunner(device)
    scramble(device)
    before = copy(device)
    transfer(runner, "snapshot", (2, -1), (SNAPSHOT_ROW, SPARE_PAGE))
    assert torch.equal(before["pages"], copy(device)["pages"])


def test_start_resets_the_whole_slot_and_no_other(device: CpuDevice) -> None:
    extra: dict[ValueSource, object] = {
        S.STOP_TOKEN_IDS: [3, 4],
        S.LOGIT_BIAS_IDS: [8],
        S.LOGIT_BIAS_VALUES: [-2.5],
        S.LOGPROBS_WANTED: [5],
        S.MIN_TOKENS: [2],
    }

    def start() -> None:
        DirectRunner(device).start(2, [5, 5, 6], seed=2**62, max_tokens=9, temperature=0.5, extra=extra)

    start()
    fresh = copy(device)  # on storage that was zero
    scramble(device)
    before = copy(device)
    start()
    after, allowed = copy(device), nothing(device)
    capacities = device.contract.capacities
    names = [name.removeprefix("state/") for name in fresh if name.startswith("state/")]
    assert {"page_table", "consumed", "finished", "output_counts", "prompt_counts", "seed"} <= set(names)
    for name in names:
        slot_window(device, allowed, name)[2] = 1
        assert torch.equal(slot_window(device, after, name)[2], slot_window(device, fresh, name)[2]), name
    row = capacities.live_row(2)
    allowed["rows"].view(capacities.rows, -1)[row] = 1
    assert not after["rows"].view(capacities.rows, -1)[row].any()  # the null row holds zeros here
    assert outside(changed(before, after), allowed) == {}
    counts = slot_window(device, after, "prompt_counts")[2].view(torch.int32)
    assert {int(token): int(counts[token]) for token in counts.nonzero()} == {5: 2, 6: 1}
