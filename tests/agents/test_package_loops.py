"""A task of two tools through the clients' packages: parallel calls, an error, and a prompt that goes on from
the last one token for token, whose rest alone is computed."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "server"))

from agent_model import with_context
from drawn_pictures import PROFILE, data_url
from live import LiveServer
from loop_model import ANSWER, HASH_MODEL, PLACES, PrescribedEngine, Transcript, loop_assets
from package_loops import (
    LOOPS,
    Loop,
    messages,
    messages_runner,
    messages_streamed,
    responses,
    responses_streamed,
)
from task_tools import Tools

from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.testing.sim_loader import LOADER, describe

CALLS = [
    ("weather", {"city": PLACES[0], "days": 1}),
    ("weather", {"city": PLACES[1], "days": 2}),
    ("draw", {"place": "Nowhere"}),
    ("draw", {"place": "Bern"}),
]


@pytest.fixture(scope="module")
def engine_server() -> Iterator[tuple[LiveServer, Transcript]]:
    """A server in front of an engine process with a cache."""
    engines: list[PrescribedEngine] = []

    async def start() -> Any:
        options = EngineOptions(loader=LOADER)
        engines.append(PrescribedEngine(await ProcessEngineClient.start(describe(HASH_MODEL), options)))
        return engines[0]

    with LiveServer(start_engine=start, assets=loop_assets()) as server:
        yield server, engines[0].transcript
        asyncio.run_coroutine_threadsafe(engines[0].shutdown(), server.loop).result(20)


@pytest.fixture(scope="module")
def picture_server() -> Iterator[LiveServer]:
    """A scripted engine, whose model takes images."""
    with LiveServer(assets=loop_assets(PROFILE)) as server:
        with_context(server, 4096)
        yield server


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_task(engine_server: tuple[LiveServer, Transcript], loop: Loop) -> None:
    server, transcript = engine_server
    check(server, transcript, loop, Tools())


def check(server: LiveServer, transcript: Transcript, loop: Loop, tools: Tools) -> None:
    """A run of `loop`."""
    transcript.turns.clear()

    answer, cached = loop(server.url, f"A task for {loop.__name__}.", tools)

    assert answer == ANSWER
    assert tools.calls == CALLS
    assert len(transcript.turns) == len(cached) == 4
    for ((prompt, output), (longer, _)), reused in zip(
        itertools.pairwise(transcript.turns), cached[1:], strict=True
    ):
        before = [*prompt, *output]
        assert longer[: len(before)] == before, "the history is not what was there"
        assert len(longer) > len(before)
        assert reused == len(before) - 1  # all that was read: the last token was drawn only


PICTURE = data_url(32, 32)
BLOCK = {"type": "base64", "media_type": "image/png", "data": PICTURE.partition(",")[2]}


@pytest.mark.parametrize(
    ("loop", "text", "image"),
    [
        (responses, "input_text", {"type": "input_image", "image_url": PICTURE}),
        (responses_streamed, "input_text", {"type": "input_image", "image_url": PICTURE}),
        (messages, "text", {"type": "image", "source": BLOCK}),
        (messages_streamed, "text", {"type": "image", "source": BLOCK}),
        (messages_runner, "text", {"type": "image", "source": BLOCK}),
    ],
)
def test_a_picture_in_a_result(picture_server: LiveServer, loop: Loop, text: str, image: Any) -> None:
    """Chats have text only in results of tools."""
    transcript = Transcript()
    picture_server.engine.script = transcript
    tools = Tools(draw=lambda title: [{"type": text, "text": title}, image])

    check(picture_server, transcript, loop, tools)

    *before, last = picture_server.engine.counters.submissions[-4:]
    assert [len(submission.images) for submission in before] == [0, 0, 0]
    (shown,) = last.images
    assert shown.tokens == 16
    assert last.prompt[shown.start :][:16] == (0,) * 16
