"""Large requests and answers hold up nobody: neither on the event loop (the guard of every test here), nor by
keeping the interpreter's lock on a thread."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from gil_hold import longest_hold
from live import MODEL, LiveServer, chatter, raw_post, say

from flare.engine.messages import Ready
from flare.errors import RequestError
from flare.frontend import FrontendAssets
from flare.frontend.json_size import json_weight
from flare.server import ServerSettings
from flare.server.body import parse_body
from flare.server.jobs import JobFactory
from flare.server.metrics import Metrics
from flare.server.requests import ChatRequest
from flare.server.tokens import TokenRoutes
from flare.server.workers import Workers
from flare.testing.scripted_engine import ScriptedEngine
from flare.testing.tiny_text import tiny_assets

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
CONTEXT = 60_000
HELD_SECONDS = 0.040  # by one call into a library; see docs/operations.md


@pytest.fixture(scope="module")
def large() -> Iterator[LiveServer]:
    with LiveServer() as server:
        server.engine.ready = Ready(context=CONTEXT, concurrency=4, ledger={}, ready_seconds=0.0)
        yield server


@pytest.fixture
def client(large: LiveServer) -> Iterator[httpx.Client]:
    large.reset()
    with httpx.Client(base_url=large.url, timeout=60) as client:
        yield client


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_prompt_of_ten_megabytes(client: httpx.Client) -> None:
    answer = client.post(CHAT, json={"messages": user("word " * 1_500_000)})

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_a_prompt_of_thirty_thousand_tokens(large: LiveServer, client: httpx.Client) -> None:
    answer = client.post(TEXT, json={"prompt": "zq" * 15_000, "max_tokens": 4})

    assert answer.json()["usage"]["prompt_tokens"] == 30_000


def test_many_messages(large: LiveServer, client: httpx.Client) -> None:
    answer = client.post(CHAT, json={"messages": user("") * 5_000, "max_tokens": 4})

    assert answer.status_code == 200, answer.text


def test_more_values_than_a_request_can_need(client: httpx.Client) -> None:
    answer = client.post(CHAT, json={"messages": user("hi") * 100_000})

    assert answer.status_code == 400
    assert "too many values" in answer.json()["error"]["message"]


def test_token_ids_for_many_prompts(client: httpx.Client) -> None:
    prompts = [list(range(300)) * 10] * 100
    answer = client.post(TEXT, json={"prompt": prompts, "max_tokens": 1})

    assert answer.json()["usage"]["prompt_tokens"] == 300_000


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_of_a_long_output(
    large: LiveServer, client: httpx.Client, path: str, stream: bool
) -> None:
    large.engine.script = chatter(batch=2_000, top=tuple((token, -1.0) for token in range(3, 23)))
    body: dict[str, Any] = {"max_tokens": 2_000, "ignore_eos": True, "stream": stream, "n": 2}
    body |= {"messages": user("x"), "logprobs": True, "top_logprobs": 20} if path == CHAT else {}
    body |= {"prompt": "x", "logprobs": 20} if path == TEXT else {}
    answer = client.post(path, json=body)

    assert answer.status_code == 200
    assert answer.text.count("logprobs") > 2
    if not stream:
        scored = answer.json()["choices"][1]["logprobs"]
        assert len(scored["content"] if path == CHAT else scored["tokens"]) == 2_000


def test_a_reader_that_fell_behind(large: LiveServer, client: httpx.Client) -> None:
    large.engine.script = chatter(batch=50_000)
    body = {"prompt": "x", "max_tokens": 50_000, "stream": True, "stream_options": {"include_usage": True}}
    answer = client.post(TEXT, json=body)

    assert '"completion_tokens":50000' in answer.text


def test_chunks_of_one_byte(large: LiveServer) -> None:
    body = json.dumps({"prompt": "a" * 60_000, "max_tokens": 1}).encode()
    head = f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with large.connect() as connection:
        connection.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
        assert connection.recv(15) in (b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Ba")


def test_many_headers(client: httpx.Client) -> None:
    answer = client.get("/v1/models", headers={f"x-{number}": "y" for number in range(2_000)})

    assert answer.status_code == 200


@pytest.mark.parametrize("text", ["word " * 400_000, "été🙂 " * 100_000])
def test_tokenization_there_and_back(client: httpx.Client, text: str) -> None:
    found = client.post("/tokenize", json={"prompt": text}).json()
    assert found["count"] == len(found["tokens"]) > 400_000

    part = found["tokens"][:400_000]
    assert text.startswith(client.post("/detokenize", json={"tokens": part}).json()["prompt"][:-1])


def test_small_requests_pass_large_ones(large: LiveServer, client: httpx.Client) -> None:
    large.engine.script = say("hello")
    with large.connect() as slow:
        body = json.dumps({"prompt": "word " * 1_000_000}).encode()
        slow.sendall(raw_post("/tokenize", body))
        time.sleep(0.3)
        assert client.post(CHAT, json={"messages": user("hi")}).status_code == 200
        slow.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow.recv(1)


def test_metrics_and_the_schema(client: httpx.Client) -> None:
    for path in ("/metrics", "/openapi.json", "/v1/models", "/health", "/version"):
        assert client.get(path).status_code == 200


# On a thread: what one call into a library may keep from the others.


@pytest.fixture(scope="module")
def jobs() -> JobFactory:
    assets: FrontendAssets = tiny_assets()
    engine = ScriptedEngine(say("x"))
    return JobFactory(MODEL, assets, ServerSettings(), Metrics(MODEL, engine, None).meter)


BODIES: dict[str, Callable[[], bytes]] = {
    "lists in lists": lambda: b'{"messages":[' + b"[]," * 3_000_000 + b"[]]}",
    "as many lists as pass": lambda: b'{"messages":[' + b"[]," * 55_000 + b"[]]}",
    "as many messages as pass": lambda: json.dumps({"messages": user("hi") * 18_000}).encode(),
    "as many stops as pass": lambda: b'{"messages":[],"stop":[' + b"1," * 490_000 + b"1]}",
    "as many biases as pass": lambda: json.dumps(
        {"messages": user("x"), "logit_bias": {str(number): "x" for number in range(55_000)}}
    ).encode(),
    "as many unknown fields as pass": lambda: json.dumps(
        {"messages": user("x"), **{f"field{number}": 1 for number in range(55_000)}}
    ).encode(),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_keeps_other_threads_waiting_for_moments_only(jobs: JobFactory, name: str) -> None:
    body = BODIES[name]()

    def work() -> None:
        with suppress(RequestError):
            jobs.chat(body, 2048, {})

    assert longest_hold(work, HELD_SECONDS) < HELD_SECONDS


@pytest.mark.parametrize("text", ["word " * 2_000_000, 'x["y"] = {1, 2}\n' * 500_000, "été " * 1_000_000])
def test_a_long_text_keeps_other_threads_waiting_for_moments_only(text: str) -> None:
    body = json.dumps({"messages": user(text)}, ensure_ascii=False).encode()

    assert longest_hold(lambda: parse_body(ChatRequest, body), HELD_SECONDS) < HELD_SECONDS


@pytest.mark.parametrize(
    ("path", "fields"),
    [("tokenize", {"prompt": "word " * 200_000}), ("detokenize", {"tokens": [300] * 480_000})],
)
def test_tokenization_keeps_other_threads_waiting_for_moments_only(
    jobs: JobFactory, path: str, fields: dict[str, Any]
) -> None:
    routes = TokenRoutes(jobs)
    body = json.dumps(fields).encode()

    assert longest_hold(lambda: getattr(routes, path)(body, None), HELD_SECONDS) < HELD_SECONDS


# The estimate itself.


def weight(document: bytes) -> int:
    return json_weight(document, enough=10**9)


def test_weights_of_values() -> None:
    assert weight(b"5") == 0
    assert weight(b"[1,2,3]") == 8 + 2
    assert weight(b'{"a":1,"b":[{}]}') == 8 + 8 + 1 + 8 + 8 + 8


def test_punctuation_in_strings_weighs_nothing_once_it_matters() -> None:
    text = json.dumps([',,,[[[{{{:::"\\"\\\\', 'a"', "\\"] * 1000).encode()

    assert json_weight(text, enough=8 + 2999) == 8 + 2999


def test_the_careful_count_equals_a_parse() -> None:
    draw = random.Random(7)

    def value(depth: int) -> Any:
        kind = draw.randrange(5 if depth else 3)
        if kind == 3:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        if kind == 4:
            return {f'k"{index}\\': value(depth - 1) for index in range(draw.randrange(4))}
        return draw.choice([1, "x", '",[{:', "\\", '\\"', "é", None])

    def expected(item: Any) -> int:
        if isinstance(item, list):
            return 8 + max(len(item) - 1, 0) + sum(map(expected, item))
        if isinstance(item, dict):
            return 8 + 8 * len(item) + max(len(item) - 1, 0) + sum(map(expected, item.values()))
        return 0

    for _ in range(300):
        document = value(5)
        right = expected(document)
        assert json_weight(json.dumps(document).encode(), enough=right) == right


def test_an_unfinished_string_ends_the_count() -> None:
    assert json_weight(b'["[[[[', enough=8) == 8


def test_what_a_refused_request_made_is_freed_on_the_thread() -> None:
    freed: list[str] = []

    class Made:
        def __del__(self) -> None:
            freed.append(threading.current_thread().name)

    def work() -> None:
        made = Made()
        try:
            raise KeyError(made)
        except KeyError as error:
            raise RequestError("no") from error

    async def main() -> None:
        with pytest.raises(RequestError):
            await Workers(ServerSettings()).run(1, work)

    asyncio.run(main())
    assert [name.startswith("flare-prepare") for name in freed] == [True]
