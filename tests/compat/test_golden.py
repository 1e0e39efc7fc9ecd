"""Every golden core is served by this engine: loaded by its process, asked over HTTP, answering as it did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rewritten_core import rewrite

from flare.contract import FORMAT_VERSION, PreparedContract
from flare.corefile import CoreReader, read_contract
from flare.device import LoadOptions
from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.errors import CoreError
from flare.frontend import FrontendAssets, Tokenizer
from flare.server import ServerSettings, create_app
from flare.verify import Outcome, Report, Verification

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
CORES = sorted(GOLDEN.glob("*.core.safetensors"))
RECORDED_LOGPROBS = 5e-4  # nats between tokens of the text itself, of float32 cores


def name_of(core: Path) -> str:
    return core.name.removesuffix(".core.safetensors")


@pytest.fixture(params=CORES, ids=name_of)
def core(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def expected(core: Path) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = json.loads((GOLDEN / f"{name_of(core)}.json").read_text())["requests"]
    return requests


def verified(core: Path) -> tuple[Report, bool]:
    """The report, and whether tokens were compared exactly."""
    verification = Verification(core, options=LoadOptions(threads=1))
    report = verification.run()
    verification.close()
    facts = report.checks[-1].facts
    assert facts is not None, report
    return report, facts["comparison"] == "exact"


def ask(core: Path, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each request through a real engine process and the HTTP application, all at once."""

    async def main() -> list[dict[str, Any]]:
        client = await ProcessEngineClient.start(core, EngineOptions(load=LoadOptions(threads=1)))
        try:
            app = create_app(
                model_name="golden", assets=assets_of(core), engine=client, settings=ServerSettings()
            )
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
                answers = await asyncio.gather(*(http.post("/v1/completions", json=r) for r in requests))
        finally:
            await client.shutdown(drain=False)
        assert [answer.status_code for answer in answers] == [200] * len(requests), answers[0].text
        return [answer.json()["choices"][0] for answer in answers]

    return asyncio.run(main())


def assets_of(core: Path) -> FrontendAssets:
    with CoreReader(core) as reader:
        frontend = read_contract(reader).frontend
        template = frontend.template_asset
        return FrontendAssets(
            frontend,
            bytes(reader.load(frontend.tokenizer_asset)),
            None if template is None else bytes(reader.load(template)).decode(),
        )


def body(request: dict[str, Any]) -> dict[str, Any]:
    wanted = {"logprobs": 0} if "logprobs" in request else {}
    asked = {name: request[name] for name in ("prompt", "seed", "max_tokens")}
    return {**asked, **wanted, "ignore_eos": True}


def check_answers(core: Path, golden: Path, exact: bool) -> None:
    """What `core` answers is what was recorded for `golden`; elsewhere up to a token that fell otherwise."""
    requests = expected(golden)
    assert len(requests) >= 3
    tokenizer = Tokenizer(assets_of(core).tokenizer)
    alike = 0
    for request, choice in zip(requests, ask(core, [body(r) for r in requests]), strict=True):
        shared = len(request["tokens"])
        if "logprobs" in request:
            pairs = zip(request["logprobs"], choice["logprobs"]["token_logprobs"], strict=True)
            near = [abs(want - have) <= RECORDED_LOGPROBS for want, have in pairs]
            shared = near.index(False) if False in near else len(near)
        if exact:
            assert shared == len(request["tokens"])
            assert choice["text"] == tokenizer.decode(request["tokens"])
        alike += shared
    assert alike >= 0.5 * sum(len(request["tokens"]) for request in requests)


def test_there_is_a_core_of_each_device_kind() -> None:
    kinds = {read_contract(CoreReader(core)).identity.device for core in CORES}
    assert kinds == {"cpu", "sim"}
    assert sum(core.stat().st_size for core in CORES if core.name.startswith("0.1.0-")) < 1 << 20


def test_a_golden_core_verifies_and_answers(core: Path) -> None:
    report, exact = verified(core)
    assert report.passed, report
    assert {check.outcome for check in report.checks} == {Outcome.PASSED}
    check_answers(core, core, exact)


def fields(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object of a document."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from fields(item)


# Objects whose keys are names of the core's own, not fields.
MAPS = ("versions", "special_tokens", "replaced_modules", "memory_ledger", "conditions")


def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    golden = next(core for core in CORES if "sim" in core.name)

    def extend(document: dict[str, Any]) -> None:
        maps = [part[name] for part in fields(document) for name in MAPS if name in part]
        for part in list(fields(document)):
            if not any(part is mapping for mapping in maps):
                part["a_later_field"] = {"x": [1]}

    later = rewrite(golden, tmp_path / "later.core.safetensors", contract=extend)
    with CoreReader(golden) as old, CoreReader(later) as new:
        assert new.contract_json.count("a_later_field") > 100
        assert read_contract(new) == read_contract(old)
    check_answers(later, golden, exact=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["identity"].update(format_version=FORMAT_VERSION + 1),
            rf"core format {FORMAT_VERSION + 1} is newer than this engine reads \({FORMAT_VERSION}\)",
        ),
        (lambda d: d["capacities"].pop("stop_token_ids"), r"capacities\.stop_token_ids: Field required"),
        (lambda d: d["schemes"][0].update(kind="telepathic"), "schemes"),
        (lambda d: d["programs"][0].update(kind="meditate"), r"programs\.0\.kind"),
        (lambda d: d["buffers"][0].update(region="cupboard"), r"buffers\.0\.region"),
        (
            lambda d: d["page"].update(page_tokens=d["page"]["page_tokens"] * 2),
            "page geometry does not follow",
        ),
        (lambda d: d["capacities"].update(pages=2), "cannot hold a context"),
    ],
    ids=["newer", "required", "scheme", "program kind", "region", "geometry", "pages"],
)
def test_what_this_engine_cannot_know_is_refused(
    core: Path, tmp_path: Path, change: Any, message: str
) -> None:
    bad = rewrite(core, tmp_path / "bad.core.safetensors", contract=change)
    with CoreReader(bad) as reader, pytest.raises(CoreError, match=message):
        read_contract(reader)


def test_the_refusal_of_a_newer_core_reaches_the_user(tmp_path: Path) -> None:
    newer = rewrite(
        CORES[0],
        tmp_path / "newer.core.safetensors",
        contract=lambda d: d["identity"].update(format_version=FORMAT_VERSION + 1),
    )
    with pytest.raises(CoreError, match=rf"format {FORMAT_VERSION + 1} is newer .* \({FORMAT_VERSION}\)"):
        asyncio.run(ProcessEngineClient.start(newer))


def test_an_older_format_is_served(core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flare.contract.prepared.FORMAT_VERSION", FORMAT_VERSION + 1)
    report, _ = verified(core)
    assert report.passed
    with CoreReader(core) as reader:
        document = read_contract(reader).model_dump(mode="json")
    document["identity"]["format_version"] = FORMAT_VERSION + 1
    PreparedContract.model_validate(document)  # an engine of that version reads its own
