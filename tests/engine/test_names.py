"""Names decide nothing: the same work gives the same plans whatever model, recipe and API name it goes by."""

from __future__ import annotations

import asyncio
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from rewritten_core import rewrite
from sealed_provenance import Sealed

from flare.contract import PreparedContract
from flare.corefile import CoreReader, CoreWriter, Role, TensorSpec, read_contract
from flare.device import LoadOptions
from flare.device.base import Bytes, Device, Frame
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Submit, Tokens
from flare.frontend import FrontendAssets
from flare.scheduler import Plan, Settings
from flare.server import ServerSettings, create_app
from flare.testing.hash_model import HashModel
from flare.testing.scripted_engine import Script, ScriptedEngine
from flare.testing.tiny_text import tiny_assets, tiny_tokenizer

Trace = list[Any]
REQUESTS = 16


class SteadyFrame:
    """A frame that always took the same time: measured costs choose prefill chunks."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.elapsed_us, self.gap_us = 100.0, 0.0

    def done(self) -> bool:
        return self._frame.done()

    def wait(self, timeout: float | None = None) -> bool:
        return self._frame.wait(timeout)

    @property
    def completion(self) -> Bytes:
        return self._frame.completion


class SteadyDevice:
    """`device` without its clock, showing `contract`."""

    def __init__(self, device: Device, contract: PreparedContract) -> None:
        self._device = device
        self.contract = contract
        self.max_frames = device.max_frames
        self.ledger = device.ledger
        self.tables = device.tables
        self.tokenizer = device.tokenizer

    def submit(self, program: str, upload: Bytes) -> SteadyFrame:
        return SteadyFrame(self._device.submit(program, upload))

    def close(self) -> None:
        self._device.close()


def submissions(assets: FrontendAssets, name: str) -> list[Submit]:
    """What random HTTP requests become behind a server of this model name."""
    engine = ScriptedEngine(lambda submit: Script(tokens=[5]), context=200)
    app = create_app(model_name=name, assets=assets, engine=engine, settings=ServerSettings())
    numbers = random.Random(7)

    async def main() -> None:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            for _ in range(REQUESTS):
                text = "".join(numbers.choices(string.ascii_letters + " ", k=numbers.randint(1, 120)))
                body: dict[str, Any] = {"model": name, "seed": numbers.getrandbits(32), "prompt": text}
                body["max_tokens"] = numbers.randint(1, 20)
                body["ignore_eos"] = numbers.random() < 0.5
                response = await http.post("/v1/completions", json=body)
                assert response.status_code == 200, response.text

    asyncio.run(main())
    assert len(engine.counters.submissions) == REQUESTS
    return [
        msgspec.structs.replace(submit, request_id=f"r{number}")
        for number, submit in enumerate(engine.counters.submissions)
    ]


def serve(device: Device, contract: PreparedContract, submits: list[Submit]) -> Trace:
    """Every plan and every event of a random service of `submits`, in order."""
    trace: Trace = []
    engine = Engine(SteadyDevice(device, contract), trace.append, Settings(max_waiting=REQUESTS))
    plan = engine.scheduler.plan

    def recorded() -> Plan | None:
        planned = plan()
        if planned is not None:
            lanes = [
                (
                    lane.request.id,
                    lane.request.slot,
                    lane.request.pages,
                    lane.consumed,
                    lane.length,
                    lane.sample,
                )
                for lane in planned.lanes
            ]
            trace.append((planned.frame, planned.program.name, lanes))
        return planned

    engine.scheduler.plan = recorded  # type: ignore[method-assign]
    numbers = random.Random(8)
    for submit in submits:
        engine.submit(submit)
        if numbers.random() < 0.3:
            engine.cancel(f"r{numbers.randrange(REQUESTS)}")
        for _ in range(numbers.randrange(6)):
            engine.step()
    while engine.step():
        pass
    engine.close()
    return trace


def other_names(document: dict[str, Any]) -> None:
    """Names exchanged for each other and for noise, everything else of the origin for something else."""
    origin = document["provenance"]
    numbers = random.Random(9)
    origin["model"], origin["recipe"] = origin["recipe"], origin["model"]
    for field in ("recipe_version", "checkpoint", "created"):
        origin[field] = "".join(numbers.choices(string.printable, k=40))
    origin["retained_modules"] = ["no.such.Module"]
    origin["replaced_modules"] = {"A": "B"}
    origin["memory_ledger"] = {"weights": 1}
    origin["oracle"] = None


@pytest.fixture
def sim_core(tmp_path: Path) -> Path:
    image = HashModel(
        context=200, page_tokens=8, pages=60, vocab_size=tiny_tokenizer().get_vocab_size()
    ).build()
    specs = [TensorSpec.document(name, len(data), Role.PROGRAM) for name, data in image.tensors.items()]
    with CoreWriter(tmp_path / "hash.core.safetensors", specs) as writer:
        for name, data in image.tensors.items():
            writer.write(name, data)
        return writer.seal(image.contract_json)


def assets_of(core: Path) -> FrontendAssets:
    with CoreReader(core) as reader:
        frontend = read_contract(reader).frontend
        if frontend.template_asset is None:
            return tiny_assets()
        return FrontendAssets(
            frontend,
            bytes(reader.load(frontend.tokenizer_asset)),
            bytes(reader.load(frontend.template_asset)).decode(),
        )


@pytest.mark.parametrize("core", ["sim_core", "tiny_core"])
def test_other_names_give_the_same_trace(core: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path: Path = request.getfixturevalue(core)
    assets = assets_of(path)
    renamed = rewrite(path, tmp_path / "another name.core.safetensors", contract=other_names)
    submits = submissions(assets, "one/name")
    assert submissions(assets, "\N{SNOWMAN} another") == submits

    first, other = (
        serve(device, device.contract, submits)
        for device in (load_core(str(p), LoadOptions(threads=1)) for p in (path, renamed))
    )
    device = load_core(str(path), LoadOptions(threads=1))
    sealed = serve(
        device, device.contract.model_copy(update={"provenance": Sealed.model_construct()}), submits
    )

    programs = {entry[1] for entry in first if isinstance(entry, tuple)}
    assert len(programs) >= 5  # several chunk sizes and batch sizes took part
    assert sum(len(event.tokens) for event in first if isinstance(event, Tokens)) > 60
    assert other == first
    assert sealed == first


def test_a_scheduler_that_looked_would_be_seen(sim_core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: plans that follow a name differ, and reading a sealed name raises."""
    from flare.scheduler import scheduler as module

    submits = submissions(tiny_assets(), "name")
    device = load_core(str(sim_core), LoadOptions(threads=1))
    want = serve(device, device.contract, submits)
    init: Callable[..., None] = module.Scheduler.__init__

    def curious(self: Any, contract: PreparedContract, *arguments: Any) -> None:
        init(self, contract, *arguments)
        if "hash" in contract.provenance.model:
            self._prefill_due = False
            self._steps._inter_token_ms = 1e-3

    monkeypatch.setattr(module.Scheduler, "__init__", curious)
    device = load_core(str(sim_core), LoadOptions(threads=1))
    assert serve(device, device.contract, submits) != want
    device = load_core(str(sim_core), LoadOptions(threads=1))
    contract = device.contract.model_copy(update={"provenance": Sealed.model_construct()})
    with pytest.raises(AssertionError, match=r"read provenance\.model"):
        serve(device, contract, submits)
    device.close()
