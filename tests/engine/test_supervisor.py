"""An engine that is killed again and again: what is open ends, and the next one serves."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.engine.messages import Finished, Sampling, Submit, Tokens
from flare.engine.supervisor import EngineSupervisor, RestartPolicy
from flare.errors import CoreError, ExecutionError, UnavailableError
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.sim_loader import LOADER, describe

pytestmark = pytest.mark.alone

MODEL = HashModel(context=256, page_tokens=8)
QUICK = RestartPolicy(delay_s=0.01)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's sockets lie, and no others."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def starts(*cores: str) -> Callable[[], ProcessEngineClient]:
    """Starts engines of `cores` in turn; the last one again and again."""
    left = list(cores)
    return lambda: ProcessEngineClient(left.pop(0) if left[1:] else left[0], EngineOptions(loader=LOADER))


@asynccontextmanager
async def supervised(*cores: str, policy: RestartPolicy = QUICK) -> AsyncIterator[EngineSupervisor]:
    client = EngineSupervisor(starts(*cores or (describe(MODEL, delay_ms=5),)), policy)
    try:
        await client.wait_ready()
        yield client
    finally:
        await client.shutdown(drain=False)


def request(name: str, max_tokens: int = 20) -> Submit:
    sampling = Sampling(temperature=1.0, seed=11)
    return Submit(request_id=name, prompt=(5, 6, 7), sampling=sampling, max_tokens=max_tokens)


async def collect(client: EngineSupervisor, submit: Submit) -> list[int]:
    tokens: list[int] = []
    async for event in await client.submit(submit):
        if isinstance(event, Tokens):
            tokens.extend(event.tokens)
    assert isinstance(event, Finished)
    return tokens


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def kill(client: EngineSupervisor) -> None:
    os.kill(client.pid, signal.SIGKILL)
    await until(lambda: not client.alive)


def test_five_kills_under_load_leave_nothing_behind(directory: Path) -> None:
    async def main() -> None:
        async with supervised() as client:
            assert await collect(client, request("first")) == oracle((5, 6, 7), 11, 20)
            me = psutil.Process()
            before = (
                me.num_fds(),
                threading.active_count(),
                len(me.children()),
                len(list(directory.iterdir())),
            )
            for cycle in range(5):
                open_ones = [
                    asyncio.create_task(collect(client, request(f"{cycle}.{i}", max_tokens=240)))
                    for i in range(7)  # three more than slots
                ]
                await asyncio.sleep(0.05)
                await kill(client)
                ends = await asyncio.gather(*open_ones, return_exceptions=True)
                # Admitted ones had an answer under way; the others were never taken and may be sent again.
                assert [type(end) for end in ends] == [ExecutionError] * 4 + [UnavailableError] * 3
                with pytest.raises(UnavailableError, match="started again"):
                    await client.submit(request("too early"))
                await until(lambda: client.alive)
                assert client.ready is not None
                assert await collect(client, request(f"{cycle}")) == oracle((5, 6, 7), 11, 20)
            after = me.num_fds(), threading.active_count(), len(me.children()), len(list(directory.iterdir()))
            assert after == before

    asyncio.run(main())
    assert list(directory.iterdir()) == []


def test_it_gives_up_after_too_many_deaths() -> None:
    async def main() -> None:
        async with supervised(policy=RestartPolicy(deaths=2, delay_s=0.01)) as client:
            await kill(client)
            await until(lambda: client.alive)
            await kill(client)
            async with asyncio.timeout(20):
                reason = await client.wait_abandoned()
            assert "killed by signal 9: death 2 within 300 s" in str(reason)
            assert not client.alive
            with pytest.raises(ExecutionError, match="not started again"):
                await client.submit(request("late"))

    asyncio.run(main())


def test_a_core_that_cannot_be_loaded_again_is_a_death_like_others() -> None:
    async def main() -> None:
        cores = (describe(MODEL), describe(MODEL, load_error="tensor x is damaged"), describe(MODEL))
        async with supervised(*cores) as client:
            await kill(client)
            await until(lambda: client.alive)  # the third engine
            assert await collect(client, request("again")) == oracle((5, 6, 7), 11, 20)
        broken = describe(MODEL, load_error="tensor x is damaged")
        async with supervised(
            describe(MODEL), broken, policy=RestartPolicy(deaths=3, delay_s=0.01)
        ) as client:
            await kill(client)
            async with asyncio.timeout(20):
                assert "tensor x is damaged" in str(await client.wait_abandoned())

    asyncio.run(main())


def test_the_first_engine_must_load() -> None:
    async def main() -> None:
        with pytest.raises(CoreError, match="tensor x is damaged"):
            async with supervised(describe(MODEL, load_error="tensor x is damaged")):
                pass

    asyncio.run(main())


def test_shutdown_while_the_next_engine_loads_does_not_wait() -> None:
    async def main() -> None:
        async with supervised(describe(MODEL), describe(MODEL, load_s=30)) as client:
            first = client.pid
            await kill(client)
            await until(lambda: client.pid != first)
            assert not client.alive
        assert not psutil.pid_exists(client.pid)

    async def bounded() -> None:
        async with asyncio.timeout(10):
            await main()

    asyncio.run(bounded())


def test_pauses_double_up_to_a_limit() -> None:
    policy = RestartPolicy()
    assert [policy.delay(deaths) for deaths in range(1, 10)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
