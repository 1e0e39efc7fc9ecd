"""The checking process: bounded in time and memory, and nothing that happens to it reaches the server."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from flare.errors import UnavailableError
from flare.grammar import Constraint, GrammarChecker, GrammarError, bounds, choice, json_schema, lark, regex
from flare.grammar.checker import _MOST_WAITING

GOOD = regex("a+", "r")


def run(work) -> None:
    async def main() -> None:
        checker = GrammarChecker()
        try:
            await work(checker)
        finally:
            await checker.close()

    asyncio.run(main())


def slow(number: int) -> Constraint:
    """More than a second of compilation."""
    return json_schema({"type": "object", "properties": {f"p{number}x{i}": {} for i in range(7000)}}, "s")


def test_what_takes_too_long_is_refused_and_the_next_is_served() -> None:
    async def work(checker: GrammarChecker) -> None:
        with pytest.raises(GrammarError, match=r"s: compiling the grammar takes more than 1 s"):
            await checker.check(slow(1))
        assert checker._process is None
        await checker.check(GOOD)

    run(work)


def test_a_process_that_dies_is_a_refusal_and_the_next_is_served() -> None:
    async def work(checker: GrammarChecker) -> None:
        await checker.check(GOOD)
        asking = asyncio.create_task(checker.check(slow(2)))
        await asyncio.sleep(0.05)
        os.kill(checker._process.pid, signal.SIGKILL)
        with pytest.raises(GrammarError, match="MiB of memory"):
            await asking
        await checker.check(regex("b+", "r"))

    run(work)


def test_whoever_goes_away_leaves_no_answer_to_the_next() -> None:
    async def work(checker: GrammarChecker) -> None:
        asking = asyncio.create_task(checker.check(slow(3)))
        await asyncio.sleep(0.2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(GrammarError, match="nothing"):
            await checker.check(lark("start: nothing", "g"))

    run(work)


def test_too_many_at_once_are_told_to_come_again() -> None:
    async def work(checker: GrammarChecker) -> None:
        async with checker._turn:
            waiting = [
                asyncio.create_task(checker.check(regex(f"a{{{i}}}", "r"))) for i in range(_MOST_WAITING)
            ]
            await asyncio.sleep(0)
            with pytest.raises(UnavailableError, match="wait to be compiled"):
                await checker.check(GOOD)
        await asyncio.gather(*waiting)
        await checker.check(GOOD)

    run(work)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: json_schema({"enum": ["x" * 5000]}, "f"), "5000 characters"),
        (lambda: json_schema({"enum": ["x" * 4000] * 40}, "f"), "too large"),
        (lambda: json_schema({"x" * 5000: 1}, "f"), "5000 characters"),
        (lambda: json_schema([], "f"), "must be a JSON schema"),
        (lambda: json_schema({"$schema": "http://json-schema.org/draft-03/schema#"}, "f"), "draft 3"),
        (lambda: choice(["\ud800"], "f"), "surrogate"),
        (lambda: lark("x" * (bounds.MOST_BYTES + 1), "f"), "at most 131072"),
        (lambda: regex("a" * 5000, "f"), "5000 characters"),
    ],
)
def test_sizes_are_bounded_before_anything_is_made(make, said) -> None:
    with pytest.raises(GrammarError, match=said) as caught:
        make()
    assert caught.value.field.startswith("f")


def test_long_prose_and_deep_schemas_within_bounds_are_taken() -> None:
    schema = {
        "type": "object",
        "description": "d" * 20_000,
        "properties": {"description": {"type": "string"}},
    }
    for _ in range(25):
        schema = {"type": "object", "properties": {"inner": schema}}

    async def work(checker: GrammarChecker) -> None:
        await checker.check(json_schema(schema, "s"))

    run(work)
