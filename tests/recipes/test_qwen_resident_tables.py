"""Rows of n-gram tables that programs find and read themselves.

The same bits as with rows from the host, for texts however divided and for requests however served; and a
step is submitted before the one ahead has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from prepared_cores import HYBRID, tiny_request
from qwen_pictures import message, prompts
from tiny_service import Service

from flare.contract import DType, PendingTokens, PreparedContract, ProgramKind, Region, ValueSource
from flare.corefile import CoreReader, read_contract
from flare.device import LoadOptions
from flare.device.cpu import CpuDevice
from flare.device.direct import DirectRequest, DirectRunner
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Event, Finished, Sampling, Submit, Tokens
from flare.prepare import Progress, TableDelivery
from flare.prepare.session import PreparationSession
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare.testing.teacher_forcing import partition
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny_text import TOKENS

END = TOKENS["<|endoftext|>"]
LENGTH = 100
BOUND = 1e-4  # nats, where steps have other numbers of lanes


class Cores(NamedTuple):
    """One for each delivery."""

    host: Path
    device: Path


@pytest.fixture(scope="module")
def cores(
    qwen_core: Path, flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory
) -> Cores:
    path = tmp_path_factory.mktemp("resident") / "core.safetensors"
    sizes = replace(HYBRID, tables=TableDelivery.DEVICE)
    session = PreparationSession(RECIPE, replace(tiny_request(DType.F32, sizes), calibrate=False), Progress())
    session.prepare(RECIPE.loader.open(flare_tiny_checkpoint(RECIPE)), path)
    return Cores(qwen_core, path)


class Text:
    """A text with ends of text where n-grams begin, twice in a row, and just before a page ends."""

    def __init__(self, core: Path) -> None:
        reader = CoreReader(core)
        self.device = CpuDevice(read_contract(reader), reader)
        self.runner = DirectRunner(self.device)
        self.ids = torch.randint(1, 288, (LENGTH,), generator=torch.Generator().manual_seed(3)).tolist()
        for place in (0, 21, 22, 62, 63):
            self.ids[place] = END

    def start(self) -> DirectRequest:
        """The only request, on slot 1."""
        self.runner.reuse_pages()
        return self.runner.start(1, self.ids, extra={ValueSource.MIN_TOKENS: [2 * LENGTH]})

    def logits(self, cuts: list[int], end: int) -> list[torch.Tensor]:
        """Behind every piece up to the last cut, and behind each of the tokens up to `end`, one a step."""
        request = self.start()
        pieces = zip((0, *cuts), cuts, strict=False)
        found = [self.chunk(request, stop - begin) for begin, stop in pieces]
        return found + [self.decoded(request, token) for token in self.ids[cuts[-1] : end]]

    def chunk(self, request: DirectRequest, length: int) -> torch.Tensor:
        """The logits behind the next `length` tokens."""
        size = next(one for one in self.device.contract.capacities.prefill_tokens if one >= length)
        ids = self.ids[request.consumed : request.consumed + length]
        values = self.runner.prefill_values(request, ids, sample=False)
        request.consumed += length
        return self._probe(f"prefill.{size}", values)

    def decoded(self, request: DirectRequest, token: int) -> torch.Tensor:
        """The logits behind `token`, on the second of two lanes."""
        pending = self.device.storage("state/pending").view(torch.int32)
        generated = self.device.storage("state/generated").view(torch.int32)
        pending[1], generated[1] = token, 0
        values = self.runner.decode_values([None, request], [-1, token])
        request.consumed += 1
        return self._probe("decode.2", values)[1]

    def _probe(self, name: str, values: dict[ValueSource, object]) -> torch.Tensor:
        upload = self.runner.staging(self.runner.programs[name], values)
        return torch.as_tensor(self.device.probe(name, upload)["logits"])


@pytest.fixture(scope="module")
def texts(cores: Cores) -> Iterator[tuple[Text, Text]]:
    both = Text(cores.host), Text(cores.device)
    yield both
    for text in both:
        text.device.close()


def contract_of(core: Path) -> PreparedContract:
    with CoreReader(core) as reader:
        return read_contract(reader)


def test_logits_are_the_same_bits_however_a_text_is_divided(texts: tuple[Text, Text], complete: bool) -> None:
    divisions = [[1], [2, 3, 21], [22, 23, 63], *(partition(LENGTH, s) for s in range(20 if complete else 2))]
    for cuts in divisions:
        end = LENGTH if complete else min(cuts[-1] + 5, LENGTH)
        host, device = (text.logits(cuts, end) for text in texts)
        assert len(host) > 2
        assert all(map(torch.equal, host, device)), cuts


def test_the_history_of_tokens_is_what_decides(texts: tuple[Text, Text]) -> None:
    """Another token before a step, in the state alone, is another row of the table behind it."""
    text = texts[1]
    contract = text.device.contract
    (field,) = (one for one in contract.row.fields if one.name == "tokens")
    rows = text.device.storage("rows").view(contract.capacities.rows, -1)
    row = rows[contract.capacities.live_row(1)]
    stored = row[field.offset : field.offset + 8].view(torch.int32)
    found = []
    for change in (0, 1):
        request = text.start()
        text.chunk(request, 10)
        assert stored.tolist() == text.ids[8:10]
        stored[0] += change
        found.append(text.decoded(request, text.ids[10]))
    assert not torch.equal(*found)


def test_the_contract_says_who_reads(cores: Cores) -> None:
    host, device = map(contract_of, cores)
    assert host.tables == device.tables
    for contract, pending, delivery in (
        (host, PendingTokens.HOST, "host_rows"),
        (device, PendingTokens.DEVICE, "resident"),
    ):
        (table,) = contract.tables
        placed = [buffer for buffer in contract.buffers if buffer.region is Region.TABLE_ROWS]
        assert [buffer.tensor for buffer in placed] == [table.tensor] * (delivery == "resident")
        for program in contract.programs:
            consumes = program.kind in (ProgramKind.PREFILL, ProgramKind.DECODE)
            assert [use.delivery for use in program.tables] == [delivery] * consumes
            uploaded = any(binding.source is ValueSource.TABLE_ROWS for binding in program.bindings)
            assert uploaded == (consumes and delivery == "host_rows")
            if program.kind is ProgramKind.DECODE:
                assert program.pending is pending


def test_a_table_that_programs_read_is_mapped_and_not_counted(texts: tuple[Text, Text]) -> None:
    host, device = (text.device for text in texts)
    (table,) = device.contract.tables
    assert (set(host.tables), set(device.tables)) == ({table.name}, set())
    assert "table_rows" not in device.ledger
    counted = [sum(one.ledger.values()) for one in (host, device)]
    assert counted[1] < counted[0] + 1024  # the numbers of the hash


def test_random_service_draws_the_same_bits(
    cores: Cores, flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path, complete: bool
) -> None:
    """Branched, restored from every tier, cancelled, put back, and behind images."""
    frontend = prompts(flare_tiny_checkpoint(RECIPE))
    pictures = [
        frontend.from_messages([message(picture(*size, 1))]).images[0].image for size in ((64, 64), (100, 90))
    ]
    profile = contract_of(cores.host).frontend.images
    assert profile is not None
    services = []
    for number, core in enumerate(cores):
        service = Service(core, 3, profile, (), pictures, tmp_path / str(number))
        service.run(2000 if complete else 200)
        services.append(service)
    host, device = services
    assert host.drawn == device.drawn
    assert host.logprobs == device.logprobs
    assert host.counts == device.counts
    assert sum(map(len, device.drawn.values())) > 60
    print(dict(device.counts))
    assert min(device.counts[name] for name in ("cached", "restored", "images")) > 0


class Ahead:
    """An engine on a device that takes two programs at once; `ahead` are the most programs that were
    submitted behind one that ran."""

    def __init__(self, core: Path) -> None:
        device = load_core(str(core), LoadOptions(threads=1))
        device.max_frames = 2
        self.engine = Engine(device, self._note)
        self.drawn: dict[str, list[tuple[int, float]]] = {}
        self.ahead = self.cached = 0

    def _note(self, event: Event) -> None:
        if isinstance(event, Tokens):
            pairs = zip(event.tokens, (one.logprob for one in event.logprobs), strict=True)
            self.drawn.setdefault(event.request_id, []).extend(pairs)
        elif isinstance(event, Finished):
            self.cached += event.cached_tokens

    def serve(self, texts: list[list[int]]) -> None:
        """A request for each, seven steps apart; the last is cancelled."""
        for number, prompt in enumerate(texts):
            sampling = Sampling(temperature=1.0, seed=number)
            submit = Submit(
                request_id=str(number), prompt=tuple(prompt), sampling=sampling, max_tokens=12, logprobs=0
            )
            self.engine.submit(submit)
            for _ in range(7):
                self._step()
        self.engine.cancel(str(len(texts) - 1))
        while self._step():
            pass
        self.engine.close()

    def _step(self) -> bool:
        going_on = self.engine.step()
        self.ahead = max(self.ahead, self.engine.scheduler.in_flight)
        return going_on


def test_a_step_is_submitted_before_the_one_ahead_has_ended(cores: Cores) -> None:
    base = torch.randint(1, 287, (20,), generator=torch.Generator().manual_seed(1)).tolist()
    engines = Ahead(cores.host), Ahead(cores.device)
    for engine in engines:
        engine.serve([base[:1], [*base, 20], [*base, 20, 21, 22], [*base[:13], 5], base])
    host, device = engines
    assert (host.ahead, device.ahead) == (0, 1)
    assert device.cached > 0
    for name in "0123":
        both = list(zip(host.drawn[name], device.drawn[name], strict=True))
        assert both
        for (token, logprob), (other, found) in both:
            assert token == other
            assert abs(logprob - found) < BOUND
