"""Programs write what their active rows own and not one byte more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from altered import load
from state_bytes import (
    Bytes,
    allow_row,
    allow_tokens,
    changed,
    copy,
    nothing,
    outside,
    scramble,
    slot_window,
)

from flare.device.cpu import CpuDevice
from flare.device.direct import DirectRequest, DirectRunner

PROMPT = list(range(40, 80))
DRAWN = ("counter", "generated", "output_counts", "pending", "finished")


@pytest.fixture
def runner(tiny_core: Path) -> DirectRunner:
    device = load(tiny_core)
    scramble(device)
    return DirectRunner(device)


def device_of(runner: DirectRunner) -> CpuDevice:
    assert isinstance(runner.device, CpuDevice)
    return runner.device


def allow_slot(device: CpuDevice, mask: Bytes, slot: int, *names: str) -> None:
    for name in names:
        slot_window(device, mask, name)[slot] = 1


def written(runner: DirectRunner, request: DirectRequest, begin: int, end: int, *names: str) -> Bytes:
    """Bytes that consuming positions begin..end of `request` may change."""
    device = device_of(runner)
    mask = nothing(device)
    allow_tokens(device, mask, request.pages, begin, end)
    allow_row(device, mask, device.contract.capacities.live_row(request.slot))
    allow_slot(device, mask, request.slot, *names)
    return mask


def entries(changes: Bytes, mask: Bytes) -> float:
    """Share of the marked page bytes that changed."""
    marked = mask["pages"].bool()
    return float(changes["pages"][marked].float().mean())


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("sample", [True, False])
def test_prefill(runner: DirectRunner, tokens: int, sample: bool) -> None:
    device = device_of(runner)
    request = runner.start(2, PROMPT)
    before = copy(device)
    runner.prefill(request, PROMPT[:tokens], sample=sample, name="prefill.64")
    mask = written(runner, request, 0, tokens, "consumed", *(DRAWN if sample else ()))
    changes = changed(before, copy(device))
    assert outside(changes, mask) == {}
    assert entries(changes, mask) > 0.95  # noise may hold a right byte already
    assert changes["state/pending"].any() == sample


def test_later_chunks_touch_no_earlier_token(runner: DirectRunner) -> None:
    request = runner.start(0, PROMPT)
    runner.prefill(request, PROMPT[:10], sample=False, name="prefill.16")
    before = copy(device_of(runner))
    runner.prefill(request, PROMPT[10:30], sample=False, name="prefill.32")
    changes = changed(before, copy(device_of(runner)))
    assert outside(changes, written(runner, request, 10, 30, "consumed")) == {}


@pytest.mark.parametrize("lane", range(4))
def test_idle_lanes(runner: DirectRunner, lane: int) -> None:
    device = device_of(runner)
    request = runner.start(1, PROMPT)
    runner.prefill(request, PROMPT[:16], sample=True, name="prefill.16")
    before = copy(device)
    lanes: list[DirectRequest | None] = [None] * 4
    lanes[lane] = request
    drawn = runner.decode(lanes, "decode.4")
    assert [len(tokens) for tokens in drawn] == [int(index == lane) for index in range(4)]
    mask = written(runner, request, 16, 17, "consumed", *DRAWN)
    changes = changed(before, copy(device))
    assert outside(changes, mask) == {}
    assert entries(changes, mask) > 0.95


def test_a_step_of_idle_lanes_changes_nothing(runner: DirectRunner) -> None:
    before = copy(device_of(runner))
    runner.decode([None] * 4, "decode.4")
    assert outside(changed(before, copy(device_of(runner))), nothing(device_of(runner))) == {}


def test_a_finished_slot_changes_nothing(runner: DirectRunner) -> None:
    request = runner.start(1, PROMPT, max_tokens=1)
    runner.prefill(request, PROMPT, sample=True, name="prefill.64")
    before = copy(device_of(runner))
    assert runner.decode([request], "decode.1") == [[]]
    assert outside(changed(before, copy(device_of(runner))), nothing(device_of(runner))) == {}


def test_a_lane_does_not_depend_on_its_neighbours(runner: DirectRunner) -> None:
    """The same request beside idle lanes, and beside lanes that hold noise, draws the same logits."""
    device = device_of(runner)
    requests = [runner.start(slot, PROMPT) for slot in range(4)]
    for request in requests:
        runner.prefill(request, PROMPT if request.slot == 3 else PROMPT[:7], sample=True, name="prefill.64")
    kept = copy(device)
    logits = []
    for others in (requests[:3], [None] * 3):
        for name, contents in kept.items():
            device.storage(name).copy_(contents)
        values = runner.decode_values([*others, requests[3]])
        upload = runner.staging(runner.programs["decode.4"], values)
        logits.append(device.probe("decode.4", upload)["logits"][3])
    assert torch.equal(*logits)
