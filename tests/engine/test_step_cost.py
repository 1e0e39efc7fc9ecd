"""Host time of a decode step: planning, packing and completing, without a device."""

import time
from statistics import median

import numpy as np
import pytest
from engine_harness import image, request

from flare.contract import METADATA_FIELDS, ProgramKind, Record, Status
from flare.engine.loop import Engine
from flare.testing.hash_model import HashModel

pytestmark = pytest.mark.alone

MODEL = HashModel(context=1024, page_tokens=16)


class InstantFrame:
    elapsed_us = 1.0
    gap_us = 0.0

    def __init__(self, completion):
        self.completion = completion

    def wait(self, timeout=None):
        return True


class InstantDevice:
    """Answers every program at once with records that a faithful device would give."""

    max_frames = 1
    ledger: dict[str, int] = {}
    tables: dict[str, np.ndarray] = {}
    tokenizer = np.zeros(0, np.uint8)

    def __init__(self, contract):
        self.contract = contract
        self.programs = {program.name: program for program in contract.programs}
        self.plan = None  # set by the test's scheduler hook

    def submit(self, name, upload):
        program = self.programs[name]
        records = np.zeros((program.lanes, METADATA_FIELDS + 1), dtype=np.int32)
        if program.kind is not ProgramKind.START:
            for index, lane in enumerate(self.plan.lanes):
                row, live = records[index], lane.request
                row[Record.STATUS] = Status.OK
                row[Record.SLOT], row[Record.EPOCH] = live.slot.index, live.slot.epoch
                row[Record.TOKENS] = int(lane.sample)
                row[Record.CONSUMED] = lane.consumed + lane.length
                row[Record.GENERATED] = live.generated + int(lane.sample)
                row[METADATA_FIELDS] = 5
        return InstantFrame(records.view(np.uint8).reshape(-1)[: program.completion_bytes])

    def close(self):
        pass


def step_times(batch: int) -> list[float]:
    """Seconds per decode step of the host, the time in `submit` excluded."""
    device = InstantDevice(image(MODEL).contract)
    events = []
    engine = Engine(device, events.append)
    for index in range(batch):
        engine.submit(request(f"r{index}", max_tokens=900))
    plan, submit, inside = engine.scheduler.plan, device.submit, [0.0]

    def watched_plan():
        made = plan()
        device.plan = made or device.plan
        return made

    def timed_submit(name, upload):
        begin = time.perf_counter()
        frame = submit(name, upload)
        inside[0] = time.perf_counter() - begin
        return frame

    engine.scheduler.plan, device.submit = watched_plan, timed_submit
    for _ in range(3 * batch):
        engine.step()
    times = []
    for _ in range(600):
        begin = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - begin - inside[0])
        events.clear()
    return times


@pytest.mark.parametrize("batch", [1, 4])
def test_a_decode_step_costs_little_host_time(batch):
    times = step_times(batch)
    print(f"\nplan + pack + complete at batch {batch}: median {median(times) * 1e6:.1f} us")
    assert median(times) < 150e-6
