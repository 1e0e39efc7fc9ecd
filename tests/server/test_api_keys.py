"""API keys guard `/v1` and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from live import MODEL, LiveServer

from flare.errors import FlareError
from flare.server import ApiKeys, ServerSettings, read_key_file

KEYS = ("first-key", "second/key+=")
GUARDED = ["/v1/models", "/v1/models/x", "/v1", "/v1/nothing", "/v1/chat/completions", "//v1/models"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[LiveServer]:
    with LiveServer(ServerSettings(api_keys=ApiKeys(KEYS), cors_origins=("https://a.example",))) as server:
        yield server


@pytest.mark.parametrize("key", KEYS)
def test_every_key_opens(guarded: LiveServer, key: str) -> None:
    with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=key, max_retries=0) as client:
        assert client.models.list().data[0].id == MODEL
    assert httpx.get(f"{guarded.url}/v1/models", headers={"x-api-key": key}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer"},
        {"authorization": KEYS[0]},
        {"authorization": f"Basic {KEYS[0]}"},
        {"authorization": f"Bearer {KEYS[0]}x"},
        {"authorization": f"Bearer {KEYS[0]} {KEYS[1]}"},
        {"authorization": f"Bearer {KEYS[0].upper()}"},
        {"x-api-key": ""},
        {"x-api-key": f"{KEYS[0]},{KEYS[1]}"},
        {"api-key": KEYS[0]},
    ],
)
def test_everything_else_does_not(guarded: LiveServer, headers: dict[str, str]) -> None:
    answer = httpx.get(f"{guarded.url}/v1/models", headers=headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    assert answer.headers["x-request-id"]


def test_the_client_library_knows_the_error(guarded: LiveServer) -> None:
    with (
        openai.OpenAI(base_url=f"{guarded.url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="not one of this server's"),
    ):
        client.models.list()


@pytest.mark.parametrize("path", GUARDED)
def test_a_path_tells_nothing_without_a_key(guarded: LiveServer, path: str) -> None:
    status = httpx.post(guarded.url + path, content=b"x").status_code

    assert status == (404 if path.startswith("//") else 401)


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/metrics", "/version", "/openapi.json", "/", "/page/main.js"]
)
def test_what_watches_over_the_server_needs_none(guarded: LiveServer, path: str) -> None:
    assert httpx.get(guarded.url + path).status_code == 200


def test_a_preflight_needs_none(guarded: LiveServer) -> None:
    headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
    answer = httpx.options(f"{guarded.url}/v1/chat/completions", headers=headers)

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://a.example"


def test_other_origins_get_no_permission(guarded: LiveServer, http: httpx.Client) -> None:
    headers = {"origin": "https://b.example", "access-control-request-method": "POST"}
    answer = httpx.options(f"{guarded.url}/v1/chat/completions", headers=headers)
    assert "access-control-allow-origin" not in answer.headers

    off = http.options("/v1/chat/completions", headers=headers)
    assert off.status_code == 405
    assert "access-control-allow-origin" not in http.get("/health", headers=headers).headers


def test_a_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# for the agents\nfirst\n\n  second  \n")

    assert read_key_file(path) == ["first", "second"]


@pytest.mark.parametrize("content", [b"", b"\n# nothing\n", b"\xff\xfe"])
def test_a_key_file_without_keys(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)

    with pytest.raises(FlareError, match="keys"):
        read_key_file(path)


@pytest.mark.parametrize("key", ["", "two words", "tab\t", "é"])
def test_keys_that_no_header_carries(key: str) -> None:
    with pytest.raises(FlareError, match="printable"):
        ApiKeys([key])


def test_keys_are_not_shown() -> None:
    assert KEYS[0] not in repr(ServerSettings(api_keys=ApiKeys(KEYS)))
