"""`/metrics`: right numbers, vLLM's names, and no failure whatever the engine does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live import MODEL, TOKENIZER, LiveServer, chatter, raw_post, say
from prometheus_client.parser import text_string_to_metric_families

from flare.engine.messages import Stats, StoreStats
from flare.errors import ExecutionError, RequestError, UnavailableError
from flare.server.choices import Choice
from flare.server.metric_table import METRICS
from flare.server.metrics import Metrics
from flare.testing.scripted_engine import Script, ScriptedEngine

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi"}]
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scraped:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.values: Values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        found = [
            v for (n, have), v in self.values.items() if n == name and labels.items() <= dict(have).items()
        ]
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def has(self, name: str) -> bool:
        return any(n == name for n, _ in self.values)


@pytest.fixture
def fresh() -> Iterator[LiveServer]:
    with LiveServer() as server:
        yield server


def scrape(server: LiveServer) -> Scraped:
    answer = httpx.get(f"{server.url}/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return Scraped(answer.text)


def post(server: LiveServer, path: str = CHAT, **fields: object) -> httpx.Response:
    body = {"messages": USER, **fields} if path == CHAT else fields
    return httpx.post(server.url + path, json=body)


def test_requests_and_tokens_are_counted(fresh: LiveServer) -> None:
    fresh.engine.script = say("hello there", cached=5, delay=0.005, admission_delay=0.02)
    drawn = len(TOKENIZER.encode("hello there")) + 1
    prompt = post(fresh).json()["usage"]["prompt_tokens"]
    post(fresh, n=2, max_tokens=2, stream=True)
    found = scrape(fresh)

    assert found("flare:prompt_tokens_total") == 3 * prompt
    assert found("flare:generation_tokens_total") == drawn + 2 + 2
    assert found("flare:prefix_cache_queries_total") == 3 * prompt
    assert found("flare:prefix_cache_hits_total") == 15
    assert found("flare:request_success_total", finished_reason="stop") == 1
    assert found("flare:request_success_total", finished_reason="length") == 2
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time"):
        assert found(f"flare:{name}_seconds_count") == 3
    assert found("flare:inter_token_latency_seconds_count") == drawn - 1 + 1 + 1
    assert 0.06 <= found("flare:request_queue_time_seconds_sum") < 1
    assert found("flare:request_generation_tokens_sum") == drawn + 4
    assert found("flare:request_params_n_sum") == 3
    assert found("flare:http_requests_total", method="POST", handler=CHAT, status="200") == 2
    assert found("flare:http_requests_open") == 1  # this scrape


def test_refusals_failures_and_disconnects_are_counted(fresh: LiveServer) -> None:
    post(fresh, temperature=-1)
    post(fresh, model="other")
    httpx.get(f"{fresh.url}/nowhere")
    httpx.request("BREW", f"{fresh.url}/health")
    fresh.engine.script = lambda submit: Script(tokens=[5], refusal=UnavailableError("full"))
    post(fresh)
    fresh.engine.script = chatter(fail_after=2)
    post(fresh)
    post(fresh, stream=True)
    fresh.engine.script = chatter(delay=0.01)
    with fresh.connect() as connection:
        connection.sendall(raw_post(TEXT, b'{"prompt": "x", "stream": true}'))
        assert connection.recv(100)
    with fresh.connect() as connection:
        connection.sendall(b"\x00\r\n\r\n")
        assert b"400" in connection.recv(100)
    fresh.wait(lambda: fresh.engine.running == 0)
    found = scrape(fresh)

    assert found("flare:errors_total", code="invalid_request") == 1
    assert found("flare:errors_total", code="model_not_found") == 1
    assert found("flare:errors_total", code="unavailable") == 1
    assert found("flare:errors_total", code="execution_failed") == 2
    assert found("flare:errors_total", code="malformed_http") == 1
    assert found("flare:client_disconnects_total") == 1
    assert found("flare:request_success_total", finished_reason="abort") == 1
    assert found("flare:request_success_total", finished_reason="error") == 2
    assert found("flare:http_requests_total", handler="unknown", status="404") == 1
    assert found("flare:http_requests_total", method="other", status="405") == 1
    assert found("flare:http_requests_total", status="503") == 1


def _store(name: str, value: int) -> StoreStats:
    numbers = {field: value for field in StoreStats.__struct_fields__ if field != "name"}
    return StoreStats(name=name, **numbers)


def test_every_documented_metric_is_exported_and_no_other(fresh: LiveServer) -> None:
    post(fresh, n=1, max_tokens=3)
    post(fresh, model="other")
    full = Stats(
        **{name: 3 for name in Stats.__struct_fields__ if not name.endswith("_ms") and name != "stores"},
        step_period_ms=20.0,
        program_ms=15.0,
        stores=(_store("disk", 5),),
    )

    async def stats() -> Stats:
        return full

    fresh.engine.stats = stats  # type: ignore[method-assign]
    found = scrape(fresh)

    names = {row.name.removesuffix("_total"): row for row in METRICS}
    aliases = {row.alias_name.removesuffix("_total"): row for row in METRICS if row.alias_name}
    assert set(found.families) == {*names, *aliases}
    for name, row in (names | aliases).items():
        family = found.families[name]
        assert family.type == row.kind, name
        assert family.documentation
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(row.labels), sample
            if "model_name" in sample.labels:
                assert sample.labels["model_name"] == MODEL
    assert found("flare:step_period_seconds") == 0.020
    assert found("flare:program_seconds") == 0.015
    assert found("flare:kv_cache_usage_perc") == 0.0
    assert found("flare:disk_cache_bytes") == found("flare:disk_cache_hits_total") == 5
    assert found("flare:host_cache_bytes") == 0
    assert not any(name.endswith("_created") for name, _ in found.values)


def test_vllm_names_have_the_same_values(fresh: LiveServer) -> None:
    post(fresh, max_tokens=3)
    found = scrape(fresh)

    pairs = [(n, labels, v) for (n, labels), v in found.values.items() if n.startswith("vllm:")]
    assert len(pairs) > 100
    for name, labels, value in pairs:
        assert found.values["flare:" + name.partition(":")[2], labels] == value


def test_a_loading_a_silent_and_a_dead_engine(fresh: LiveServer) -> None:
    ready, fresh.engine.ready = fresh.engine.ready, None
    loading = scrape(fresh)
    assert loading("flare:engine_up") == 0
    assert not loading.has("flare:free_pages")
    assert loading("process_resident_memory_bytes") > 1e6
    assert loading("process_open_fds") > 3

    fresh.engine.ready = ready
    assert scrape(fresh)("flare:engine_up") == 1

    async def never() -> Stats:
        await asyncio.sleep(60)
        raise AssertionError

    answering = fresh.engine.stats
    fresh.engine.stats = never  # type: ignore[method-assign]
    started = time.monotonic()
    assert not scrape(fresh).has("flare:free_pages")
    assert time.monotonic() - started < 5

    async def failing() -> Stats:
        raise ExecutionError("the engine died")

    fresh.engine.stats = failing  # type: ignore[method-assign]
    assert not scrape(fresh).has("flare:free_pages")

    fresh.engine.stats = answering  # type: ignore[method-assign]
    fresh.call(fresh.engine.die)
    assert scrape(fresh)("flare:engine_up") == 0


def test_two_apps_share_nothing(fresh: LiveServer) -> None:
    with LiveServer() as other:
        post(fresh)
        assert scrape(other)("flare:generation_tokens_total") == 0


def test_the_page_for_operators_has_the_same_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    rows = [
        f"| `{row.name}` | {row.help} | {row.kind} | {row.unit} | {' '.join(row.labels)} | "
        f"{f'`{row.alias_name}`' if row.alias_name else 'flare only'} |"
        for row in METRICS
        if not row.name.startswith("process_")
    ]
    table = page.split("## Metrics\n")[1].split("\n## ")[0]

    assert [line for line in table.splitlines() if line.startswith("| `flare:")] == rows
    for row in METRICS:
        assert f"`{row.name}`" in table


def test_counting_a_token_takes_microseconds() -> None:
    """Generous bounds: 5 to 10 times what it takes."""
    meter = Metrics(MODEL, ScriptedEngine(say("x")), None).meter

    class Silent:
        def admitted(self, choice: Choice) -> None: ...
        def drew(self, choice: Choice, count: int) -> None: ...

    from flare.engine.messages import Sampling, Submit
    from flare.frontend import PartedOutput, TextOutput

    submit = Submit(request_id="x", prompt=(1,), sampling=Sampling(temperature=1.0, seed=1), max_tokens=5)
    choice = Choice(0, submit, PartedOutput(TextOutput(TOKENIZER)), "", True, Silent())
    meter.drew(choice, 1)
    started = time.thread_time()
    for _ in range(10_000):
        meter.drew(choice, 1)
    assert (time.thread_time() - started) / 10_000 < 30e-6


def test_refusals_of_the_engine_count_by_code(fresh: LiveServer) -> None:
    fresh.engine.script = lambda submit: Script(tokens=[5], refusal=RequestError("never fits"))
    post(fresh)
    found = scrape(fresh)

    assert found("flare:errors_total", code="invalid_request") == 1
    assert found("flare:request_success_total", finished_reason="error") == 0
    assert found("flare:request_queue_time_seconds_count") == 0
