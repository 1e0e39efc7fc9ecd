"""Structured output over HTTP: what is asked for reaches the engine, what cannot be served is named."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pydantic
import pytest
from hostile_grammars import SCHEMAS
from live import MODEL, LiveServer

from flare.contract import CallFormat, CallSyntax, Mark, OutputFormat, ReasoningFormat
from flare.frontend import FrontendAssets
from flare.testing.tiny_text import tiny_assets

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def post(http: httpx.Client, fields: dict[str, Any], path: str = CHAT) -> httpx.Response:
    prompt = {"messages": USER} if path == CHAT else {"prompt": "hi"}
    body = json.dumps({"model": MODEL, **prompt, **fields})
    return http.post(path, content=body, headers={"content-type": "application/json"})


def formatted(schema: Any, **more: Any) -> dict[str, Any]:
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **more}}
    }


def grammar_of(server: LiveServer) -> list[dict[str, Any]]:
    (submit,) = server.engine.counters.submissions
    grammars: list[dict[str, Any]] = json.loads(submit.grammar)["grammars"]
    return grammars


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"response_format": {"type": "json_object"}}, "json_schema", '"object"'),
        (formatted(POINT), "json_schema", '"x"'),
        (formatted(POINT, strict=True, description="a point"), "json_schema", '"x"'),
        ({"structured_outputs": {"json": POINT}}, "json_schema", '"x"'),
        ({"structured_outputs": {"json": json.dumps(POINT)}}, "json_schema", '"x"'),
        ({"structured_outputs": {"json_object": True}}, "json_schema", '"object"'),
        ({"structured_outputs": {"regex": r"\d+/b"}}, "lark_grammar", r"[0-9]+\\/b"),
        ({"structured_outputs": {"choice": ["yes", 'n"o']}}, "lark_grammar", r"n\\\"o"),
        ({"structured_outputs": {"grammar": 'start: "a" | "b"'}}, "lark_grammar", "start"),
        ({"guided_json": POINT}, "json_schema", '"x"'),
        ({"guided_regex": "a+"}, "lark_grammar", "a+"),
        ({"guided_choice": ["a", "b"]}, "lark_grammar", "a"),
        ({"guided_grammar": 'start: "a"'}, "lark_grammar", "a"),
    ],
)
def test_a_constraint_reaches_the_engine(
    server: LiveServer, http: httpx.Client, path: str, fields: dict[str, Any], kind: str, text: str
) -> None:
    response = post(http, fields, path)

    assert response.status_code == 200, response.text
    output, answer = grammar_of(server)
    assert output == {"lark_grammar": "start: @answer"}
    assert answer["name"] == "answer"
    assert text in json.dumps(answer[kind])


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        (formatted({"not": {}}), "response_format.json_schema.schema", '"not"'),
        (
            formatted({"type": "array", "uniqueItems": True}),
            "response_format.json_schema.schema",
            "uniqueItems",
        ),
        (formatted({"if": {}, "then": {}}), "response_format.json_schema.schema", '"if"'),
        (formatted({"oneOf": [{"type": "integer"}, {"type": "number"}]}), None, "oneOf"),
        (formatted({"type": "string", "format": "nope"}), None, "nope"),
        (formatted({"x-guidance": {"lenient": True}, "not": {}}), None, '"not"'),
        (formatted(5), "response_format.json_schema.schema", "must be a JSON schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "schema is missing"),
        ({"response_format": {}}, "response_format.type", "required"),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex", "unclosed group"),
        ({"structured_outputs": {"regex": r"(a)\1"}}, "structured_outputs.regex", "backreferences"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "1 to"),
        ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice[1]", "empty"),
        ({"structured_outputs": {"grammar": "start: x"}}, "structured_outputs.grammar", "x"),
        ({"structured_outputs": {"grammar": "start: <|im_end|>"}}, None, "special token"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "not valid JSON"),
        (
            {"structured_outputs": {"structural_tag": "x"}},
            "structured_outputs.structural_tag",
            "not supported",
        ),
        ({"guided_choice": [5]}, None, "string"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "guided_regex"),
        ({**formatted(POINT), "guided_regex": "a"}, "guided_regex", "response_format"),
        ({**formatted(POINT), "ignore_eos": True}, "ignore_eos", "contradict"),
        ({**formatted(POINT), "min_tokens": 3}, "min_tokens", "contradict"),
    ],
)
def test_what_cannot_be_served_is_named(
    server: LiveServer, http: httpx.Client, fields: dict[str, Any], param: str | None, said: str
) -> None:
    response = post(http, fields)

    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert said.lower() in error["message"].lower()
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    assert server.engine.counters.submissions == []


def test_after_a_bad_grammar_good_ones_are_served(server: LiveServer, http: httpx.Client) -> None:
    for _ in range(2):  # the second answer is remembered
        assert post(http, formatted({"not": {}})).status_code == 400
        assert post(http, formatted(POINT)).status_code == 200


def test_hostile_constraints_hold_up_nobody(server: LiveServer, http: httpx.Client) -> None:
    """All at once, beside a client who wants something simple again and again: the loop is not blocked (the
    guard of every test here measures it), each is answered, and the checking process is never the server."""
    assert len(SCHEMAS) >= 30
    slowest = 0.0
    with ThreadPoolExecutor(4) as pool, httpx.Client(base_url=server.url, timeout=120) as patient:
        answers = {name: pool.submit(post, patient, formatted(schema)) for name, schema in SCHEMAS.items()}
        while not all(answer.done() for answer in answers.values()):
            began = time.perf_counter()
            assert post(http, {}).status_code == 200
            slowest = max(slowest, time.perf_counter() - began)
            time.sleep(0.02)
    refused = {}
    for name, answer in answers.items():
        response = answer.result()
        assert response.status_code in (200, 400), (name, response.text)
        if response.status_code == 400:
            error = refused[name] = response.json()["error"]
            assert error["code"] in ("invalid_grammar", "invalid_request"), (name, error)
            assert len(error["message"]) < 600
    assert slowest < 10, f"another request took {slowest:.1f} s"  # a machine may be busy with other tests
    assert {
        "a value of a megabyte",
        "another server",
        "a file",
        "arrays, 400 deep",
        "itself",
        "look-around",
        "options of the compiler",
        "half a surrogate pair",
    } <= refused.keys()
    assert "http://127.0.0.1:9" in refused["another server"]["message"]


def reasoning_assets(opened: bool) -> FrontendAssets:
    assets = tiny_assets()
    form = OutputFormat(reasoning=ReasoningFormat(start=Mark(text="<think>"), end=Mark(text="</think>")))
    frontend = assets.frontend.model_copy(update={"output": form})
    template = (assets.template or "") + ("{{ '<think>' }}" if opened else "")
    return FrontendAssets(frontend, assets.tokenizer, template)


@pytest.mark.parametrize("opened", [False, True])
def test_the_constraint_applies_to_the_answer_behind_the_reasoning(opened: bool) -> None:
    with LiveServer(assets=reasoning_assets(opened)) as server, httpx.Client(base_url=server.url) as http:
        assert post(http, {"guided_choice": ["a"]}).status_code == 200
        output, answer = grammar_of(server)
        assert "reasoned" in output["lark_grammar"]
        assert output["lark_grammar"].startswith(
            "start: reasoned" if opened else 'start: ("<think>") reasoned'
        )
        assert answer["name"] == "answer"
        # Of a completion all is answer.
        server.reset()
        assert post(http, {"guided_choice": ["a"]}, TEXT).status_code == 200
        assert grammar_of(server)[0] == {"lark_grammar": "start: @answer"}


def test_beside_tools_an_output_is_an_answer_or_calls() -> None:
    assets = tiny_assets()
    calls = CallFormat(syntax=CallSyntax.JSON, start=Mark(text="<call>"), end=Mark(text="</call>"))
    frontend = assets.frontend.model_copy(update={"output": OutputFormat(calls=calls)})
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    named = {"type": "function", "function": {"name": "g"}}
    with (
        LiveServer(assets=FrontendAssets(frontend, assets.tokenizer, assets.template)) as server,
        httpx.Client(base_url=server.url) as http,
    ):
        for options, names in (({}, ["f", "g"]), ({"tool_choice": named}, ["g"])):
            server.reset()
            response = post(http, {**formatted(POINT), "tools": tools, **options})
            assert response.status_code == 200 or options, response.text
            output, answer, called = grammar_of(server)
            assert '(@answer | ("<call>") calls_rest)' in output["lark_grammar"]
            assert "x" in answer["json_schema"]["properties"]
            assert called["json_schema"]["properties"]["name"] == {"enum": names}
        server.reset()
        assert post(http, {**formatted(POINT), "tools": tools, "tool_choice": "none"}).status_code == 200
        assert len(grammar_of(server)) == 2


def test_types_of_the_client_library_make_schemas_that_are_served(
    server: LiveServer, openai_client: openai.OpenAI
) -> None:
    class Place(pydantic.BaseModel):
        name: str
        population: int | None
        tags: list[str]

    from live import say

    server.call(lambda: setattr(server.engine, "script", say('{"name":"x","population":null,"tags":["a"]}')))
    answer = openai_client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "a place"}], response_format=Place
    )
    assert answer.choices[0].message.parsed == Place(name="x", population=None, tags=["a"])
    assert '"population"' in json.dumps(grammar_of(server))
