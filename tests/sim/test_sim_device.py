"""The sim device itself: asynchronous order, poison, faults, and the hash model's state transfer programs."""

import json
import threading
import time

import numpy as np
import pytest

from flare.contract import ProgramKind, Record, Region, ValueSource
from flare.device.sim import SimDevice, SimOptions
from flare.device.sim_ops import mix, mix_array, signed
from flare.engine.views import array_over
from flare.errors import CoreError, DeviceError
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.image import CoreImage

MODEL = HashModel(context=32, page_tokens=4)
IMAGE = MODEL.build()
V = ValueSource


def upload(device: SimDevice, name: str, **values) -> np.ndarray:
    """Upload bytes by value name; everything else is zero, and no page is appended."""
    program = next(p for p in device.contract.programs if p.name == name)
    storage = np.zeros(program.upload_bytes, dtype=np.uint8)
    views = {binding.source.value: array_over(storage, binding.view) for binding in program.bindings}
    if "page_updates" in views:
        views["page_updates"].fill(-1)
    for source, value in values.items():
        views[source][: len(value)] = value
    return storage


def run(device: SimDevice, name: str, **values) -> np.ndarray | None:
    """Run a program; its first record."""
    frame = device.submit(name, upload(device, name, **values))
    assert frame.wait(5)
    return frame.completion.view(np.int32) if len(frame.completion) else None


def begin(device: SimDevice, slot: int, pages: list[int], prompt: list[int], seed: int = 3) -> None:
    run(
        device,
        "start",
        lane_slots=[slot],
        live_rows=[1 + slot],
        epochs=[8],
        seed=[seed],
        max_tokens=[20],
        page_table_row=pages,
        stop_token_ids=[-1] * 4,
        prompt_tokens=prompt,
        prompt_length=[len(prompt)],
    )


def feed(device: SimDevice, slot: int, tokens: list[int], sample: int = 1) -> np.ndarray:
    return run(
        device,
        "prefill_8",
        lane_slots=[slot],
        live_rows=[1 + slot],
        token_ids=tokens,
        query_start=[0, len(tokens)],
        sample_lanes=[sample],
    )


@pytest.fixture
def device():
    device = SimDevice(IMAGE)
    yield device
    device.close()


PROMPT = [4, 8, 15, 16, 23, 42]


@pytest.mark.parametrize("cut", range(1, 6))
def test_any_cut_of_the_prompt_gives_the_same_tokens(device, cut):
    begin(device, 0, [3, 7, 2], PROMPT)
    assert feed(device, 0, PROMPT[:cut], sample=0)[Record.TOKENS] == 0
    tokens = [feed(device, 0, PROMPT[cut:])[16]]
    while len(tokens) < 5:
        tokens.append(run(device, "decode_1", lane_slots=[0], live_rows=[1])[16])
    assert tokens == oracle(PROMPT, 3, 5)


@pytest.mark.parametrize("count", [3, 4, 6])
def test_snapshot_restore_and_resume_continue_exactly(device, count):
    """A snapshot of `count` tokens goes on in another slot, on other pages, whatever the first one does."""
    begin(device, 0, [3, 7, 2], PROMPT)
    feed(device, 0, PROMPT[:count], sample=0)
    snapshot_row = MODEL.concurrency + 1
    tail = [3, 7][(count - 1) // 4] if count % 4 else -1
    run(
        device,
        "snapshot",
        source_row=[1],
        destination_row=[snapshot_row],
        source_page=[tail],
        destination_page=[9],
    )
    feed(device, 0, [1, 1, 1], sample=0)  # the first slot goes somewhere else
    begin(device, 2, [3, 10, 11] if count >= 4 else [10, 11, 12], PROMPT)
    own_tail = 10
    run(
        device,
        "restore",
        source_row=[snapshot_row],
        destination_row=[3],
        source_page=[9 if tail >= 0 else -1],
        destination_page=[own_tail],
        lane_slots=[2],
        consumed_counts=[count],
    )
    if count == len(PROMPT):
        record = run(device, "resume", lane_slots=[2], live_rows=[3])
    else:
        record = feed(device, 2, PROMPT[count:])
    tokens = [record[16], run(device, "decode_1", lane_slots=[2], live_rows=[3])[16]]
    assert tokens == oracle(PROMPT, 3, 2)


@pytest.mark.parametrize("victim", ["page", "row"])
def test_poisoned_storage_changes_the_output(device, victim):
    begin(device, 0, [3, 7, 2], PROMPT)
    feed(device, 0, PROMPT)
    if victim == "page":
        device.poison(Region.PAGES, device.contract.page.nbytes, [3])
    else:
        device.poison(Region.ROWS, device.contract.row.nbytes, [1])
    assert run(device, "decode_1", lane_slots=[0], live_rows=[1])[16] != oracle(PROMPT, 3, 2)[1]


def test_padding_lanes_touch_nothing_and_report_padding(device):
    begin(device, 0, [3, 7, 2], PROMPT)
    feed(device, 0, PROMPT)
    before = device.peek("rows").copy()
    records = run(device, "decode_4", lane_slots=[-1, 0, -1, -1], live_rows=[-1, 1, -1, -1])
    lanes = records.reshape(4, -1)
    assert lanes[:, Record.STATUS].tolist() == [0, 1, 0, 0]
    nbytes = device.contract.row.nbytes
    changed = np.flatnonzero(before != device.peek("rows")) // nbytes
    assert set(changed.tolist()) == {1}


def test_a_finished_slot_reports_no_token_and_stays(device):
    begin(device, 0, [3, 7, 2], PROMPT)
    run(device, "start", **{**_start_values(), "max_tokens": [1]})
    assert feed(device, 0, PROMPT)[Record.FINISHED] == 2
    record = run(device, "decode_1", lane_slots=[0], live_rows=[1])
    assert record[[Record.STATUS, Record.TOKENS, Record.FINISHED]].tolist() == [1, 0, 2]
    assert record[Record.CONSUMED] == len(PROMPT)


def _start_values() -> dict:
    return {
        "lane_slots": [0],
        "live_rows": [1],
        "page_table_row": [3, 7, 2],
        "stop_token_ids": [-1] * 4,
        "prompt_tokens": PROMPT,
        "prompt_length": [len(PROMPT)],
    }


def test_uploads_are_read_when_the_program_runs():
    gate = threading.Event()
    device = SimDevice(IMAGE, SimOptions(delay_s=lambda frame, program: float(not gate.wait(5))))
    data = upload(device, "start", lane_slots=[0], live_rows=[1], epochs=[1])
    frame = device.submit("start", data)
    assert not frame.done()
    assert not frame.wait(0.01)
    data[:] = upload(device, "start", lane_slots=[0], live_rows=[1], epochs=[77])
    gate.set()
    assert frame.wait(5)
    assert device.peek("epochs").view(np.int32)[0] == 77
    device.close()


def test_frames_are_bounded_and_delayed():
    device = SimDevice(IMAGE, SimOptions(max_frames=2, delay_s=lambda frame, program: 0.02))
    data = upload(device, "decode_1", lane_slots=[-1], live_rows=[-1])
    frames = [device.submit("decode_1", data) for _ in range(2)]
    with pytest.raises(AssertionError, match="too many frames"):
        device.submit("decode_1", data)
    begin = time.perf_counter()
    assert frames[1].wait(5)
    assert time.perf_counter() - begin > 0.02
    assert frames[0].done()
    assert frames[0].elapsed_us > 20_000
    device.close()
    device.close()


def test_injected_faults():
    device = SimDevice(IMAGE, SimOptions(fail_at=1, corrupt={2: {Record.EPOCH: 5, Record.STATUS: 2}}))
    data = upload(device, "decode_1", lane_slots=[-1], live_rows=[-1])
    failed, corrupted = device.submit("decode_1", data), device.submit("decode_1", data)
    with pytest.raises(DeviceError, match="decode_1 failed: injected fault"):
        failed.wait(5)
    assert corrupted.wait(5)
    assert corrupted.completion.view(np.int32)[[Record.EPOCH, Record.STATUS]].tolist() == [5, 2]
    device.close()


def test_a_write_to_the_null_page_fails(device):
    begin(device, 0, [3], PROMPT)
    with pytest.raises(DeviceError, match="number 0 is for padding"):
        feed(device, 0, PROMPT)


def altered(change) -> CoreImage:
    tensors = dict(IMAGE.tensors)
    listing = json.loads(tensors["programs.decode_1"])
    change(listing)
    tensors["programs.decode_1"] = json.dumps(listing).encode()
    return CoreImage(IMAGE.contract, tensors)


def test_operators_are_compared_with_what_the_core_recorded():
    def other_schema(listing):
        listing["operators"][0]["schema_text"] += " "

    def unknown(listing):
        listing["operators"][0]["name"] = "sim::reboot"

    with pytest.raises(CoreError, match="has schema") as caught:
        SimDevice(altered(other_schema))
    assert "decode_1" in caught.value.field
    with pytest.raises(CoreError, match="unknown operator 'sim::reboot'"):
        SimDevice(altered(unknown))


def test_views_outside_their_buffer_and_other_devices_are_refused():
    def beyond(listing):
        listing["views"][0]["offset"] = 10**6

    with pytest.raises(CoreError, match="outside"):
        SimDevice(altered(beyond))
    identity = IMAGE.contract.identity.model_copy(update={"device": "cpu"})
    with pytest.raises(CoreError, match="not 'sim'"):
        SimDevice(CoreImage(IMAGE.contract.model_copy(update={"identity": identity}), IMAGE.tensors))


def test_undefined_storage_is_poisoned_and_counted(device):
    assert set(device.peek("pages").tolist()) == {0xA5}
    assert device.ledger["pages"] == device.contract.page.nbytes * device.contract.capacities.pages
    assert {p.kind for p in device.contract.programs} >= {ProgramKind.RESUME, ProgramKind.SNAPSHOT}


def test_hashes_agree_in_scalar_and_array_form():
    values = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    assert mix_array(values).tolist() == [mix(value) for value in values.tolist()]
    assert signed(2**64 - 1) == -1
    assert signed(5) == 5
