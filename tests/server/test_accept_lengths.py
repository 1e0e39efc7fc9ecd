"""A verified draft gives one to eight tokens a step: the same is shown whatever steps accept (vllm#41967)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from agent_model import WEATHER, agent_assets, call
from hypothesis import given, settings
from hypothesis import strategies as st
from live import END, TOKENIZER

from flare.engine.messages import Finished, Submit, Tokens
from flare.frontend.output_machine import Answer, Arguments, CallEnd, CallStart, OutputEvent, Reasoning
from flare.server import ServerSettings
from flare.server.choices import Choice
from flare.server.jobs import JobFactory

TEXT = (
    "<think>I look.</think>\n\nA moment.\n"
    + call("weather", city="Zürich 🏔", days="2")
    + call("now")
    + "Well."
)
OUTPUT = [*TOKENIZER.encode(TEXT), END]
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
EVENTS = [
    Reasoning("I look."),
    Answer("A moment."),
    CallStart(0, "weather"),
    Arguments(0, '{"city": "Zürich 🏔", "days": 2}'),
    CallEnd(0),
    CallStart(1, "now"),
    Arguments(1, "{}"),
    CallEnd(1),
    Answer("Well."),
]


class Unmetered:
    """Counts nothing."""

    def admitted(self, choice: Choice) -> None: ...
    def drew(self, choice: Choice, count: int) -> None: ...


class Steps:
    """An engine whose steps accept `lengths` tokens of OUTPUT, one step after the other, and a generation of
    it."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    async def submit(self, request: Submit) -> Any:
        return self

    def cancel(self) -> None:
        raise AssertionError("nobody asked for less")

    async def __aiter__(self) -> AsyncIterator[Tokens | Finished]:
        at = step = 0
        while at < len(OUTPUT):
            accepted = tuple(OUTPUT[at : at + self._lengths[step % len(self._lengths)]])
            yield Tokens(request_id="", tokens=accepted)
            at, step = at + len(accepted), step + 1
        yield Finished(
            request_id="",
            reason="stop",
            stop_token=END,
            prompt_tokens=1,
            output_tokens=len(OUTPUT),
            cached_tokens=0,
        )


JOBS = JobFactory("tiny/chat", agent_assets(), ServerSettings(), Unmetered())
BODY = json.dumps({"messages": [{"role": "user", "content": "Weather?"}], "tools": TOOLS}).encode()


def shown(lengths: Sequence[int]) -> tuple[list[OutputEvent], int, int]:
    """Events, neighbours of a kind as one; tokens of the output, and of its reasoning."""
    (choice,) = JOBS.chat(BODY, 4096, {}).choices
    events: list[Any] = []

    async def run() -> None:
        await choice.admit(Steps(lengths))  # type: ignore[arg-type]
        async for delta in choice.deltas():
            for event in delta.events:
                last = events[-1] if events else None
                if type(event) is type(last) and isinstance(event, Answer | Reasoning):
                    events[-1] = type(event)(last.text + event.text)
                elif isinstance(event, Arguments) and isinstance(last, Arguments):
                    events[-1] = Arguments(event.index, last.text + event.text)
                else:
                    events.append(event)

    asyncio.run(run())
    assert (choice.finish_reason, choice.called) == ("stop", ["weather", "now"])
    return events, choice.output_tokens, choice.reasoning_tokens


ONE_BY_ONE = shown([1])


def test_one_token_a_step() -> None:
    assert ONE_BY_ONE[0] == EVENTS
    assert ONE_BY_ONE[1] == len(OUTPUT)
    assert 0 < ONE_BY_ONE[2] < len(OUTPUT)


@pytest.mark.parametrize("length", [*range(2, 9), 1000])
def test_steps_of_one_length(length: int) -> None:
    assert shown([length]) == ONE_BY_ONE


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=200))
def test_steps_of_any_lengths(lengths: list[int]) -> None:
    assert shown(lengths) == ONE_BY_ONE
