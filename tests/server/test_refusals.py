"""Everything a client can get wrong, and what it is told."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from live import CONTEXT, MODEL, LiveServer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi"}]


def post(http: httpx.Client, path: str, body: bytes | dict[str, Any], **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http.post(path, content=content, headers={"content-type": "application/json", **headers})


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return dict(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b"[]",
        b'"text"',
        b"null",
        b"{'messages': []}",
        b'{"messages": [],}',
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"messages": NaN}',
        b"[" * 100_000,
        b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
        json.dumps({"messages": USER}).encode("utf-16"),
        b'{"messages": [{"role": "user", "content": "x\x00"}]}',
    ],
)
def test_bodies_that_are_no_request(server: LiveServer, http: httpx.Client, body: bytes) -> None:
    error = error_of(post(http, CHAT, body), 400)

    assert error["code"] == "invalid_request"
    assert server.engine.counters.submissions == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"model": 5}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 10**40}, "max_tokens"),
        ({"max_completion_tokens": CONTEXT + 1}, "max_tokens"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"min_tokens": 10**40}, "min_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": 10**400}, "top_k"),
        ({"top_k": -7}, "top_k"),
        ({"min_p": -1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": [1]}, "frequency_penalty"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"stop": 5}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"stop": [str(i) for i in range(17)]}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": [10**40]}, "stop_token_ids"),
        ({"stop_token_ids": [True]}, "stop_token_ids[0]"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"5": 10**400}}, "logit_bias.5"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logprobs": 5}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ],
)
def test_chat_parameters(server: LiveServer, http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    error = error_of(post(http, CHAT, {"model": MODEL, "messages": USER, **fields}), 400)

    assert error["param"] == param
    assert server.engine.counters.submissions == []


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_none(server: LiveServer, http: httpx.Client, literal: str) -> None:
    body = f'{{"messages": [{{"role": "user", "content": "x"}}], "temperature": {literal}}}'

    error_of(post(http, CHAT, body.encode()), 400)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [1, "a"]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [1.0]}, "prompt[0]"),
        ({"prompt": [[1], ["a"]]}, "prompt[1]"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": [[1], [-1]]}, "prompt[1]"),
        ({"prompt": ["a"] * 65, "n": 2}, "n"),
        ({"prompt": "word " * 400}, "prompt"),
        ({"prompt": "word " * 400, "max_tokens": 1}, "prompt"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "logprobs": 0, "echo": True}, "echo"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
    ],
)
def test_completion_parameters(
    server: LiveServer, http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    error = error_of(post(http, TEXT, {"model": MODEL, **fields}), 400)

    assert error["param"] == param
    assert server.engine.counters.submissions == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("response_format", {"type": "structural_tag", "format": {}}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {"search_context_size": "low"}),
        ("add_generation_prompt", False),
        ("continue_final_message", True),
        ("chat_template", "{{ 1 }}"),
        ("prompt_logprobs", 1),
        ("best_of", 2),
        ("use_beam_search", True),
        ("skip_special_tokens", False),
    ],
)
def test_unserved_features_are_never_silent(
    server: LiveServer, http: httpx.Client, name: str, value: Any
) -> None:
    error = error_of(post(http, CHAT, {"model": MODEL, "messages": USER, name: value}), 400)

    assert (error["code"], error["param"]) == ("unsupported", name)
    assert server.engine.counters.submissions == []


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": "auto"},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"},
        {"tools": None, "functions": None, "response_format": {"type": "text"}},
        {"structured_outputs": {"json_object": False, "structural_tag": None}, "guided_regex": None},
        {"modalities": ["text"], "audio": None, "best_of": 1, "suffix": None, "prediction": None},
        {"n": 2, "best_of": 2},
        {"use_beam_search": False, "skip_special_tokens": True, "add_generation_prompt": True},
        {"user": "me", "metadata": {"a": "b"}, "store": False, "no_such_field": [1, {}]},
        {"stop": None, "stream": None, "logit_bias": None, "stream_options": None, "n": None},
        {"model": None},
    ],
)
def test_neutral_and_unknown_fields_are_accepted(
    server: LiveServer, http: httpx.Client, fields: dict[str, Any]
) -> None:
    response = post(http, CHAT, {"model": MODEL, "messages": USER, **fields})

    assert response.status_code == 200, response.text


def test_unknown_paths_and_methods(server: LiveServer, http: httpx.Client) -> None:
    assert error_of(http.get("/v1/nothing"), 404)["code"] == "not_found"
    response = http.get(CHAT)
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_taken(server: LiveServer, http: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    response = http.post(CHAT, content=json.dumps({"messages": USER}).encode(), headers=headers)

    assert error_of(response, 415)["code"] == "unsupported_media_type"


def test_image_parts_are_refused_as_unsupported(server: LiveServer, http: httpx.Client) -> None:
    content = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    error = error_of(post(http, CHAT, {"messages": [{"role": "user", "content": content}]}), 400)

    assert (error["code"], error["param"]) == ("unsupported", "messages[0].content[1]")


def test_the_openapi_document_describes_the_bodies(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]

    schema = paths[CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "messages" in schema["required"]
    assert "$ref" not in json.dumps(schema)
