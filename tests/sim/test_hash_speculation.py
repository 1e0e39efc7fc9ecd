"""Speculative programs of the hash model: after every step the state is, to the bit, that of decoding."""

import random

import numpy as np
import pytest
from test_hash_state import PAGES, field_of
from test_sim_device import PROMPT, begin, feed, run

from flare.contract import METADATA_FIELDS, FinishCode, Record
from flare.device.sim import SimDevice
from flare.errors import DeviceError
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import HashShape, oracle

DRAWN = METADATA_FIELDS
LENGTH = 20  # what `begin` asks for
EXPECTED = oracle(PROMPT, 3, LENGTH)


def program(model: HashModel, index: int = 0) -> str:
    return "speculative_" + "_".join(map(str, model.speculative[index]))


class Twin:
    """One request served by speculative steps, and by plain decoding on a device of its own."""

    def __init__(self, model: HashModel):
        self.model = model
        self.devices = SimDevice(model.build()), SimDevice(model.build())
        width = max(shape[2] for shape in model.speculative)
        self.snapshot_row = 1 + model.concurrency * width
        self.pages = PAGES[: -(-model.context // model.page_tokens)]
        self.drawn: list[int] = []
        for device in self.devices:
            begin(device, 0, self.pages, PROMPT)
            first = feed(device, 0, PROMPT)[DRAWN]
        self.drawn.append(int(first))

    def step(self, lengths: list[int], proposals: list[list[int]] | None = None) -> np.ndarray:
        """A speculative step with the request in lane 1; its record."""
        values = {"query_lengths": lengths, "lane_slots": [-1, 0], "live_rows": [-1, 1]}
        if proposals is not None and self.model.speculative[0][1]:
            values["host_proposals"] = proposals
        records = run(self.devices[0], program(self.model), **values).reshape(2, -1)
        assert records[0, Record.STATUS] == 0
        self.drawn += records[1, DRAWN : DRAWN + records[1, Record.TOKENS]].tolist()
        return records[1]

    def compare(self) -> None:
        """Bring the other device to the same count; snapshots and everything in pages must agree."""
        consumed = len(PROMPT) + len(self.drawn) - 1
        plain = self.devices[1]
        while field(plain, "consumed") < consumed:
            run(plain, "decode_2", lane_slots=[0, -1], live_rows=[1, -1])
        contents = []
        for device in self.devices:
            assert field(device, "consumed") == consumed
            assert field(device, "generated") == len(self.drawn)
            assert field(device, "pending") == self.drawn[-1]
            slots = {"lane_slots": [0]} if device.contract.capacities.verification_width > 1 else {}
            rows = {"source_row": [1], "destination_row": [self.snapshot_row]}
            run(device, "snapshot", **slots, **rows, source_page=[-1])
            geometry = device.contract.row.nbytes
            row = device.peek("rows")[self.snapshot_row * geometry :][:geometry]
            entries = field_of(device, device.contract.page, "pages", "entries")[self.pages]
            groups = field_of(device, device.contract.page, "pages", "groups")[self.pages]
            complete = consumed // self.model.shape.group
            contents.append(
                (
                    row.tobytes(),
                    entries.reshape(-1)[:consumed].tolist(),
                    groups.reshape(-1)[:complete].tolist(),
                )
            )
        assert contents[0] == contents[1]

    def close(self) -> None:
        for device in self.devices:
            device.close()


def field(device: SimDevice, name: str) -> int:
    return int(device.peek(name).view(np.int32)[0])


def model(width: int, *, depth: int | None = None, rows: int | None = None, **sizes) -> HashModel:
    depth = width - 1 if depth is None else depth
    return HashModel(
        concurrency=2,
        decode_lanes=(2,),
        context=40,
        **{"page_tokens": 8, **sizes},
        speculative=((2, depth, width, 2 * width if rows is None else rows),),
    )


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("ragged", [False, True])
def test_any_acceptance_leaves_the_state_of_plain_decoding(width, ragged):
    """Proposals right up to a random place, lanes shorter than the width, and all page and group ends."""
    shape = HashShape(group=4, overlap=3, window=3, taps=2)
    right = oracle(PROMPT, 3, LENGTH, shape=shape)
    rows = width + 1 if ragged else None
    for seed in range(2):
        dice = random.Random(seed)
        twin = Twin(model(width, rows=rows, host_proposals=True, shape=shape))
        while len(twin.drawn) < LENGTH:
            length = dice.randint(1, min(width, LENGTH - len(twin.drawn)))
            agreed = dice.randint(0, length - 1)
            drafts = right[len(twin.drawn) :][: length - 1]
            if agreed < length - 1:
                drafts[agreed] = (drafts[agreed] + 1) % 97
            before = len(twin.drawn)
            record = twin.step([0, length], [[-1] * (width - 1), drafts + [-1] * (width - length)])
            assert len(twin.drawn) - before == agreed + 1 == record[Record.TOKENS]
            assert record[Record.CONSUMED] == len(PROMPT) + len(twin.drawn) - 1
            twin.compare()
        assert twin.drawn == right
        twin.close()


@pytest.mark.parametrize(("agreement", "least", "most"), [(0, 19, 19), (160, 6, 18), (256, 5, 5)])
def test_device_proposals_agree_as_often_as_they_are_told(agreement, least, most):
    twin = Twin(model(4, depth=6, agreement=agreement))
    steps = 0
    while len(twin.drawn) < LENGTH:
        twin.step([0, min(4, LENGTH - len(twin.drawn))])
        twin.compare()
        steps += 1
    assert twin.drawn == EXPECTED
    assert least <= steps <= most
    twin.close()


@pytest.mark.parametrize("place", range(1, 6))
def test_a_stop_token_among_accepted_tokens_ends_there(place):
    stop = EXPECTED[place]
    twin = Twin(model(8, agreement=256))
    stops = twin.devices[0].peek("stops").view(np.int32)
    stops[0] = stop
    record = twin.step([0, 8])
    end = EXPECTED.index(stop)
    assert twin.drawn == EXPECTED[: end + 1]
    assert record[Record.FINISHED] == FinishCode.STOP_TOKEN
    twin.devices[1].peek("stops").view(np.int32)[0] = stop
    twin.compare()
    assert twin.step([0, 8])[[Record.TOKENS, Record.FINISHED]].tolist() == [0, FinishCode.STOP_TOKEN]
    twin.compare()
    twin.close()


def test_the_length_among_accepted_tokens_ends_there():
    twin = Twin(model(8, agreement=256))
    for device in twin.devices:
        device.peek("max_tokens").view(np.int32)[0] = 5
    record = twin.step([0, 8])
    assert twin.drawn == EXPECTED[:5]
    assert record[[Record.FINISHED, Record.GENERATED]].tolist() == [FinishCode.LENGTH, 5]
    twin.compare()
    twin.close()


def test_plain_decoding_goes_on_from_any_column():
    twin = Twin(model(8, agreement=256))
    for length in (3, 1, 5, 2):
        twin.step([0, length])
        record = run(twin.devices[0], "decode_2", lane_slots=[0, -1], live_rows=[1, -1])
        twin.drawn.append(int(record[DRAWN]))
        twin.compare()
    assert twin.drawn == EXPECTED[: len(twin.drawn)]
    twin.close()


def test_inputs_that_do_not_fit_fail():
    for lengths, drafts, message in (
        ([0, 5], [[-1] * 3, [1] * 3], "5 inputs at row"),
        ([0, 4], [[-1] * 3, [1, 1, -1]], "slot 0 has 3 inputs of 4"),
    ):
        twin = Twin(model(4, host_proposals=True))
        with pytest.raises(DeviceError, match=message):
            twin.step(lengths, drafts)
        twin.close()
