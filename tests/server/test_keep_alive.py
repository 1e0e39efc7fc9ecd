"""Silent streams show that they live, and the parsers of client libraries take it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest
from agent_model import agent_server
from live import LiveServer, say

from flare.errors import FlareError
from flare.server import ServerSettings
from flare.server.pulse import Pulse

USER: Any = [{"role": "user", "content": "Hi"}]
COMMENT, PING = b": keep-alive\n\n", b'event: ping\ndata: {"type":"ping"}\n\n'
STREAMS: dict[str, tuple[dict[str, Any], bytes, int]] = {
    "/v1/chat/completions": ({"messages": USER}, COMMENT, 0),
    "/v1/completions": ({"prompt": "Hi"}, COMMENT, 0),
    "/v1/responses": ({"input": "Hi"}, COMMENT, 0),
    "/v1/messages": ({"messages": USER, "max_tokens": 50}, PING, 1),  # one at the beginning
}


@pytest.fixture(scope="module")
def silent() -> Iterator[LiveServer]:
    """Two tokens, each after a silence of several beats."""
    settings = ServerSettings(stream_keep_alive=0.05)
    with agent_server("he", settings=settings, batch=2, delay=0.3) as server:
        yield server


@pytest.mark.parametrize("path", STREAMS)
def test_a_silent_stream_has_signs_of_life(silent: LiveServer, path: str) -> None:
    body, beat, _ = STREAMS[path]
    answer = httpx.post(silent.url + path, json={**body, "stream": True}, timeout=20)
    assert answer.status_code == 200
    assert answer.content.count(beat) >= 3
    events = [event for event in answer.content.replace(beat, b"").split(b"\n\n") if event]
    assert all(event.startswith((b"data: ", b"event: ")) for event in events)
    assert b"ping" not in events[-1]


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_that_flows_has_none(server: LiveServer, path: str) -> None:
    body, beat, beginning = STREAMS[path]
    answer = httpx.post(server.url + path, json={**body, "stream": True}, timeout=20)
    assert answer.status_code == 200
    assert answer.content.count(beat) == beginning


def test_client_libraries_read_over_them(silent: LiveServer) -> None:
    with openai.OpenAI(base_url=f"{silent.url}/v1", api_key="none", max_retries=0) as client:
        with client.chat.completions.stream(model="tiny/chat", messages=USER) as stream:
            assert stream.get_final_completion().choices[0].message.content == "he"
        with client.responses.stream(model="tiny/chat", input="Hi") as events:
            assert events.get_final_response().output_text == "he"
        chunks = client.completions.create(model="tiny/chat", prompt="Hi", stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == "he"
    with (
        anthropic.Anthropic(base_url=silent.url, api_key="none", max_retries=0) as client,
        client.messages.stream(model="tiny/chat", max_tokens=50, messages=USER) as stream,
    ):
        assert stream.get_final_text() == "he"


def test_there_is_no_beat_while_a_write_waits_and_none_afterwards() -> None:
    beats: list[float] = []

    async def beat() -> None:
        beats.append(asyncio.get_running_loop().time())

    async def main() -> None:
        async with Pulse(beat, 0.02) as pulse:
            pulse.writing()
            await asyncio.sleep(0.1)
            assert not beats
            pulse.wrote()
            while len(beats) < 2:
                await asyncio.sleep(0.005)
        count = len(beats)
        await asyncio.sleep(0.06)
        assert len(beats) == count
        assert beats[1] - beats[0] > 0.015

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_beat_that_hangs_is_given_up_with_the_stream() -> None:
    async def main() -> None:
        began = asyncio.Event()

        async def beat() -> None:
            began.set()
            await asyncio.Event().wait()

        async with Pulse(beat, 0.01):
            await began.wait()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_never_is_no_interval() -> None:
    with pytest.raises(FlareError, match="stream_keep_alive must be above 0"):
        ServerSettings(stream_keep_alive=0)


def test_a_silence_before_admission_is_no_stream(silent: LiveServer) -> None:
    """Until then the status may still be an error."""
    before = silent.engine.script
    silent.engine.script = say("he", admission_delay=0.2, refusal=None, delay=0.01)
    try:
        answer = httpx.post(
            silent.url + "/v1/chat/completions", json={"messages": USER, "stream": True}, timeout=20
        )
    finally:
        silent.engine.script = before
    assert answer.status_code == 200
    assert answer.content.startswith(b"data: ")
