"""The hash model reads back all of its state: every element that a token depends on, and no other."""

import numpy as np
import pytest
from test_sim_device import PROMPT, begin, feed, run

from flare.contract.geometry import BlockGeometry
from flare.device.sim import SimDevice
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import HashShape, History

PAGES = [3, 7, 2, 5, 9, 8, 4, 6, 1]  # of slot 0, whose row is 1
STATE = ("pages", "rows", "consumed", "columns", "generated", "pending", "finished", "prompt_hashes")


def live_elements(shape: HashShape, page_tokens: int, count: int) -> dict[str, set[tuple[int, ...]]]:
    """By field, the elements (block first) that the hidden of token number `count` depends on."""
    page = [(PAGES[place // page_tokens], place % page_tokens) for place in range(count)]
    groups = range(count // shape.group)
    per_page = page_tokens // shape.group
    start = max(count - count % shape.group - shape.overlap, 0)
    extent = shape.group + shape.overlap
    return {
        "entries": set(page),
        "groups": {(PAGES[group // per_page], group % per_page) for group in groups},
        "window": {(1, place % shape.window) for place in range(max(count + 1 - shape.window, 0), count)},
        "groups.open": {(1, place % extent) for place in range(start, count)},
        "history": {(1, place) for place in range(1, shape.history)},
        "conv": {(1, channel, tap) for channel in range(2) for tap in range(1, shape.taps)},
        "recurrent": {(1,)},
        "counter": {(1, 0), (1, 1)},
        "hidden": set(),
    }


def field_of(device: SimDevice, geometry: BlockGeometry, buffer: str, name: str) -> np.ndarray:
    blocks = len(device.peek(buffer)) // geometry.nbytes
    return device._memory.array(geometry.view(buffer, name, blocks, layer=0))


@pytest.mark.parametrize(
    ("page_tokens", "shape"),
    [
        (4, HashShape()),
        (2, HashShape(group=1, overlap=1, window=1, taps=1, history=1)),
        (6, HashShape(group=3, overlap=4, window=4, taps=2, history=5)),
        (16, HashShape(group=2, overlap=0, window=7)),
    ],
)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8, 11])
def test_every_element_that_counts_is_read_and_no_other(page_tokens, shape, count):
    device = SimDevice(HashModel(context=32, page_tokens=page_tokens, shape=shape).build())
    tokens = [*PROMPT, *PROMPT]
    begin(device, 0, PAGES[: -(-32 // page_tokens)], tokens)
    for place in range(0, count, 4):
        feed(device, 0, tokens[place : min(place + 4, count)], sample=0)
    kept = {name: device.peek(name).copy() for name in STATE}
    contract, history = device.contract, History(shape)
    for token in tokens[: count + 1]:
        history.append(token)
    right = history.hidden()
    hidden = field_of(device, contract.row, "rows", "hidden")
    live = live_elements(shape, page_tokens, count)
    for buffer, geometry in (("pages", contract.page), ("rows", contract.row)):
        for name in (field.name for field in geometry.fields):
            array = field_of(device, geometry, buffer, name)
            for block in {element[0] for element in live[name]} | {3 if buffer == "pages" else 1}:
                for inner in np.ndindex(array.shape[1:]):
                    element = (block, *inner)
                    array[element] += array.dtype.type(1 << 20)
                    feed(device, 0, tokens[count : count + 1], sample=0)
                    wrong = int(hidden[1]) != right & (1 << 64) - 1
                    assert wrong == (element in live[name]), (name, element)
                    for stored, content in kept.items():
                        device.peek(stored)[:] = content
    device.close()


def test_resume_reads_the_saved_hidden():
    model = HashModel(context=32, page_tokens=4)
    device = SimDevice(model.build())
    begin(device, 0, PAGES[:8], PROMPT)
    feed(device, 0, PROMPT, sample=0)
    hidden = field_of(device, device.contract.row, "rows", "hidden")
    kept = {name: device.peek(name).copy() for name in STATE}
    drawn = set()
    for change in range(8):
        hidden[1] += np.uint64(change)
        drawn.add(int(run(device, "resume", lane_slots=[0], live_rows=[1])[16]))
        for stored, content in kept.items():
            device.peek(stored)[:] = content
    assert len(drawn) > 1
    device.close()
