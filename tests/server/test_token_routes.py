"""`/tokenize`, `/detokenize`, `/version`, `/` and HEAD."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx
import pytest
from live import CONTEXT, MODEL, TOKENIZER, LiveServer

from flare import __version__
from flare.server import CoreIdentity, ServerSettings, create_app
from flare.testing.scripted_engine import Script, ScriptedEngine
from flare.testing.tiny_text import START, tiny_assets

USER = [{"role": "user", "content": "Hi"}]
RENDERED = "<|im_start|>user\nHi<|im_end|>\n"


@pytest.mark.parametrize("text", ["", "hello", "été 🙂", "<|im_end|>", "\u0000"])
def test_a_prompt_there_and_back(server: LiveServer, http: httpx.Client, text: str) -> None:
    found = http.post("/tokenize", json={"model": MODEL, "prompt": text}).json()

    tokens = TOKENIZER.encode(text)
    assert found == {
        "count": len(tokens),
        "max_model_len": CONTEXT,
        "tokens": tokens,
        "token_strs": None,
    }
    back = http.post("/detokenize", json={"model": MODEL, "tokens": tokens}).json()
    assert back == {"prompt": text}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, RENDERED + "<|im_start|>assistant\n"),
        ({"add_generation_prompt": True}, RENDERED + "<|im_start|>assistant\n"),
        ({"add_generation_prompt": False}, RENDERED),
    ],
)
def test_messages_become_what_a_chat_request_makes(
    server: LiveServer, http: httpx.Client, fields: dict[str, Any], text: str
) -> None:
    found = http.post("/tokenize", json={"messages": USER, **fields}).json()

    assert found["tokens"] == TOKENIZER.encode(text)
    if "add_generation_prompt" not in fields:
        http.post("/v1/chat/completions", json={"messages": USER})
        assert list(server.engine.counters.submissions[0].prompt) == found["tokens"]


def test_tools_and_variables_reach_the_template() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"messages": USER, "tools": tools, "chat_template_kwargs": {"loud": "!"}}
    template = "{{ messages[0].content }}{{ tools[0].function.name }}{{ loud }}"
    with LiveServer(assets=tiny_assets(template=template)) as server:
        url = f"{server.url}/tokenize"
        found = httpx.post(url, json=body).json()
        refused = httpx.post(url, json={**body, "tools": [{"type": "function"}]})
    assert TOKENIZER.decode(found["tokens"]) == "Hif!"
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools[0].function")


def test_vocabulary_entries(http: httpx.Client) -> None:
    found = http.post("/tokenize", json={"prompt": "a b", "return_token_strs": True}).json()

    assert found["token_strs"] == [TOKENIZER.piece(token) for token in found["tokens"]]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": "x", "messages": USER}, "prompt"),
        ("tokenize", {"prompt": ["x"]}, "prompt"),
        ("tokenize", {"messages": []}, "messages"),
        ("tokenize", {"messages": USER, "chat_template": "{{ 1 }}"}, "chat_template"),
        ("tokenize", {"messages": USER, "continue_final_message": True}, "continue_final_message"),
        ("tokenize", {"prompt": "x", "add_special_tokens": 1}, "add_special_tokens"),
        ("detokenize", {}, "tokens"),
        ("detokenize", {"tokens": "x"}, "tokens"),
        ("detokenize", {"tokens": [1.5]}, "tokens[0]"),
        ("detokenize", {"tokens": [-1]}, "tokens"),
        ("detokenize", {"tokens": [10**9]}, "tokens"),
        ("detokenize", {"tokens": [10**40]}, "tokens"),
    ],
)
def test_refusals(http: httpx.Client, path: str, fields: dict[str, Any], param: str) -> None:
    answer = http.post(f"/{path}", json=fields)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_another_model(http: httpx.Client) -> None:
    assert http.post("/tokenize", json={"model": "x", "prompt": "x"}).status_code == 404


def test_the_leading_token_of_a_model_that_wants_one() -> None:
    assets = tiny_assets()
    assets = dataclasses.replace(assets, frontend=assets.frontend.model_copy(update={"add_bos": True}))
    (start,) = TOKENIZER.encode(START)
    with LiveServer(assets=assets) as server, httpx.Client(base_url=server.url) as http:

        def tokens(**fields: Any) -> list[int]:
            return list(http.post("/tokenize", json=fields).json()["tokens"])

        assert tokens(prompt="x") == [start, *tokens(prompt="x", add_special_tokens=False)]
        assert tokens(messages=USER, add_special_tokens=True) == [start, *tokens(messages=USER)]


def test_tokenization_while_the_engine_loads() -> None:
    with LiveServer() as server:
        server.engine.ready = None
        found = httpx.post(f"{server.url}/tokenize", json={"prompt": "x"}).json()

    assert found["max_model_len"] is None


def test_the_version() -> None:
    core = CoreIdentity(digest="ab" * 32, format=3)
    with LiveServer(core=core) as server:
        found = httpx.get(f"{server.url}/version").json()

    assert found == {"version": __version__, "core": {"digest": "ab" * 32, "format": 3}}


def test_the_root_answers(http: httpx.Client) -> None:
    assert http.get("/").json()["server"] == "flare"


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/metrics", "/version", "/openapi.json"])
def test_head_is_get_without_a_body(server: LiveServer, http: httpx.Client, path: str) -> None:
    answer = http.head(path)

    assert answer.status_code == 200
    assert answer.content == b""
    assert answer.headers["content-type"] == http.get(path).headers["content-type"]


def test_head_where_only_post_is_served(http: httpx.Client) -> None:
    assert http.head("/v1/chat/completions").status_code == 405
    assert http.head("/nowhere").status_code == 404


def test_head_in_front_of_any_server() -> None:
    app = create_app(
        model_name=MODEL,
        assets=tiny_assets(),
        engine=ScriptedEngine(lambda submit: Script(tokens=[5])),
        settings=ServerSettings(),
    )

    async def head() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.head("/health")

    import asyncio

    assert asyncio.run(head()).content == b""
