"""The detector of blocked event loops finds planted ones, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

import pytest
from loop_guard import LoopGuard


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def found_by(guard: LoopGuard, work: Callable[[], object]) -> list[str]:
    async def main() -> None:
        guard.watch(asyncio.get_running_loop())
        await asyncio.sleep(0)
        work()
        await asyncio.sleep(0)

    with guard.installed():
        asyncio.run(main())
    return guard.take()


def test_burning_the_cpu_is_found() -> None:
    (found,) = found_by(LoopGuard(), lambda: burn(0.025))

    assert "held the loop: 25" in found


def test_a_blocking_call_is_found() -> None:
    assert len(found_by(LoopGuard(wall_seconds=0.05), lambda: time.sleep(0.06))) == 1


@pytest.mark.parametrize("work", [lambda: burn(0.005), lambda: time.sleep(0.05), lambda: None])
def test_what_is_short_or_waits_for_the_machine_is_not(work: Callable[[], object]) -> None:
    assert found_by(LoopGuard(), work) == []


def test_garbage_collection_does_not_count() -> None:
    keep = [[] for _ in range(300_000)]  # type: ignore[var-annotated]
    started = time.thread_time()
    gc.collect()
    guard = LoopGuard(cpu_seconds=(time.thread_time() - started) / 2)

    assert found_by(guard, gc.collect) == []
    assert keep


def test_other_loops_are_not_watched() -> None:
    guard = LoopGuard()

    async def main() -> None:
        burn(0.03)

    with guard.installed():
        asyncio.run(main())
    assert guard.take() == []
