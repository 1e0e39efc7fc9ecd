"""A server in front of a real engine process with the hash model: what it draws is random, and yet of the
form that was asked for."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator

import httpx
import jsonschema_rs
import openai
import pydantic
import pytest
from live import MODEL, TOKENIZER, LiveServer

from flare.contract import Mark, OutputFormat, ReasoningFormat
from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.frontend import FrontendAssets
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.sim_loader import LOADER, describe
from flare.testing.tiny_text import tiny_assets, tiny_tokenizer

HASH_MODEL = HashModel(
    context=512, page_tokens=8, vocab_size=TOKENIZER.vocab_size, tokenizer=tiny_tokenizer().to_str()
)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "kind": {"enum": ["a", "b", None]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,5}$"}, "maxItems": 3},
        "inner": {"$ref": "#/$defs/inner"},
    },
    "required": ["name", "count", "kind", "tags", "inner"],
    "additionalProperties": False,
    "$defs": {
        "inner": {
            "type": "object",
            "properties": {"flag": {"type": "boolean"}},
            "required": ["flag"],
            "additionalProperties": False,
        }
    },
}
USER = [{"role": "user", "content": "anything"}]


def reasoning_assets() -> FrontendAssets:
    """The prompt opens the reasoning, which ends with a text that is no token."""
    assets = tiny_assets()
    form = OutputFormat(reasoning=ReasoningFormat(start=Mark(text="<r>"), end=Mark(text="e")))
    frontend = assets.frontend.model_copy(update={"output": form})
    return FrontendAssets(frontend, assets.tokenizer, (assets.template or "") + "{{ '<r>' }}")


def serving(assets: FrontendAssets | None) -> Iterator[LiveServer]:
    clients: list[ProcessEngineClient] = []

    async def start() -> ProcessEngineClient:
        clients.append(await ProcessEngineClient.start(describe(HASH_MODEL), EngineOptions(loader=LOADER)))
        return clients[0]

    with LiveServer(start_engine=start, assets=assets) as server:
        yield server
        shutdown = clients[0].shutdown(drain=False)
        asyncio.run_coroutine_threadsafe(shutdown, server.loop).result(20)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    yield from serving(None)


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("seed", range(6))
def test_answers_are_valid_by_their_schema(client: openai.OpenAI, seed: int) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    response = client.chat.completions.create(
        model=MODEL, messages=USER, seed=seed, response_format=form, max_tokens=400, n=2
    )
    for choice in response.choices:
        assert choice.finish_reason == "stop"
        assert jsonschema_rs.is_valid(SCHEMA, json.loads(choice.message.content))


def test_streamed_answers_are_the_same(client: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    asked = {"model": MODEL, "messages": USER, "seed": 3, "response_format": form, "max_tokens": 400}
    whole = client.chat.completions.create(**asked).choices[0].message.content
    streamed = "".join(
        chunk.choices[0].delta.content or ""
        for chunk in client.chat.completions.create(**asked, stream=True)
        if chunk.choices
    )
    assert streamed == whole


def test_the_client_library_parses_what_it_asked_for(client: openai.OpenAI) -> None:
    class Inner(pydantic.BaseModel):
        flag: bool

    class Answer(pydantic.BaseModel):
        count: int
        inner: Inner

    answer = client.chat.completions.parse(model=MODEL, messages=USER, seed=1, response_format=Answer)
    assert isinstance(answer.choices[0].message.parsed, Answer)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"structured_outputs": {"regex": r"\d{3}-[a-f]{2,8}"}}, r"[0-9]{3}-[a-f]{2,8}"),
        ({"structured_outputs": {"choice": ["positive", "negative"]}}, "positive|negative"),
        ({"guided_grammar": 'start: "(" start? ")" | "é🙂"'}, r"\(*(é🙂)?\)*"),
    ],
)
def test_completions_are_of_their_form(
    client: openai.OpenAI, fields: dict[str, object], pattern: str
) -> None:
    response = client.completions.create(
        model=MODEL, prompt=["one", "two words"], n=2, max_tokens=200, seed=5, extra_body=fields
    )
    for choice in response.choices:
        assert choice.finish_reason == "stop"
        assert re.fullmatch(pattern, choice.text), choice.text


def test_an_answer_that_is_cut_ends_by_length(client: openai.OpenAI) -> None:
    response = client.chat.completions.create(
        model=MODEL, messages=USER, response_format={"type": "json_object"}, max_tokens=2
    )
    (choice,) = response.choices
    assert choice.finish_reason == "length"
    assert choice.message.content.startswith("{")


def test_a_bias_does_not_admit_what_the_grammar_forbids(client: openai.OpenAI) -> None:
    """The sampler of this model has no biases; one that takes them is in tests/ops."""
    (token,) = TOKENIZER.encode("x")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(
            model=MODEL,
            prompt="p",
            logit_bias={str(token): 100},
            extra_body={"guided_choice": ["a"]},
        )


def test_others_beside_a_constrained_request_get_what_they_get_alone(server: LiveServer) -> None:
    expected = TOKENIZER.decode(oracle(TOKENIZER.encode("free"), 7, 60, vocab_size=HASH_MODEL.vocab_size))
    free = {"prompt": "free", "seed": 7, "max_tokens": 60, "ignore_eos": True}
    bound = {"prompt": "bound", "max_tokens": 200, "response_format": {"type": "json_object"}}

    async def both() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            return await asyncio.gather(*(http.post("/v1/completions", json=body) for body in (bound, free)))

    answers = asyncio.run(both())
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1].json()["choices"][0]["text"] == expected


def test_the_answer_behind_free_reasoning_is_of_its_form() -> None:
    """vllm#47027: JSON that switches reasoning off."""
    schema = {
        "type": "object",
        "properties": {"rain": {"type": "boolean"}},
        "required": ["rain"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for server in serving(reasoning_assets()):
        for fields, valid in (
            ({"guided_choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
            ({"response_format": form}, lambda text: jsonschema_rs.is_valid(schema, json.loads(text))),
        ):
            with httpx.Client(base_url=server.url, timeout=60) as http:
                body = {"messages": USER, "max_tokens": 450, "n": 6, "seed": 2, **fields}
                choices = http.post("/v1/chat/completions", json=body).json()["choices"]
            messages = [choice["message"] for choice in choices if choice["finish_reason"] == "stop"]
            assert messages
            assert all(valid(message["content"]) for message in messages)
            assert all("e" not in message.get("reasoning_content", "") for message in messages)
            assert any(len(message.get("reasoning_content", "")) > 3 for message in messages)
