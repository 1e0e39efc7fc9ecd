"""Tiers of a real engine process: what it kept is there after a restart, a kill, and an unclean end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flare.cache.store_options import StoreOptions
from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.engine.messages import Finished, Sampling, Submit, Tokens
from flare.errors import CacheError, ExecutionError
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.sim_loader import LOADER, describe

pytestmark = pytest.mark.alone

MODEL = HashModel(context=256, page_tokens=8, snapshot_rows=16)
PROMPT = tuple(range(3, 50))


@asynccontextmanager
async def running(stores: StoreOptions, *, drain: bool = True, model: HashModel = MODEL):
    options = EngineOptions(loader=LOADER, stores=stores)
    client = await ProcessEngineClient.start(describe(model), options)
    try:
        yield client
    finally:
        await client.shutdown(drain=drain)


async def serve(client: ProcessEngineClient, name: str, prompt: tuple[int, ...]) -> tuple[list[int], int]:
    """Output and cached tokens, after comparing the output with the oracle."""
    sampling = Sampling(temperature=1.0, seed=11)
    tokens: list[int] = []
    generation = await client.submit(Submit(request_id=name, prompt=prompt, sampling=sampling, max_tokens=9))
    async for event in generation:
        if isinstance(event, Tokens):
            tokens.extend(event.tokens)
    assert isinstance(event, Finished)
    assert tokens == oracle(prompt, 11, 9)
    return tokens, event.cached_tokens


async def stored(client: ProcessEngineClient, count: int) -> None:
    """Wait until the farthest store has `count` entries. Nothing else wakes the engine meanwhile but this."""
    while (await client.stats()).stores[-1].entries < count:
        await asyncio.sleep(0.01)


def turn_two(first: list[int]) -> tuple[int, ...]:
    return (*PROMPT, *first, 1, 2, 3)


@pytest.mark.parametrize("host_bytes", [0, 1 << 20])
def test_turn_two_after_a_restart_continues_from_turn_one(tmp_path, host_bytes):
    stores = StoreOptions(host_bytes, tmp_path)

    async def main():
        async with running(stores) as client:
            first, cached = await serve(client, "one", PROMPT)
            assert cached == 0
            # No waiting: an engine that drains keeps what it published.
        async with running(stores) as client:
            _, cached = await serve(client, "two", turn_two(first))
            assert cached == len(PROMPT) + len(first) - 1
            stats = await client.stats()
            assert (stats.restores, stats.restored_tokens) == (1, cached)
            assert [store.name for store in stats.stores] == (["host", "disk"] if host_bytes else ["disk"])

    asyncio.run(main())


def test_a_killed_engine_leaves_what_it_had_written(tmp_path):
    stores = StoreOptions(0, tmp_path)

    async def main():
        async with running(stores) as client:
            first, _ = await serve(client, "one", PROMPT)
            await stored(client, 2)
            os.kill(client.pid, signal.SIGKILL)
            await client.wait_ended()
        async with running(stores) as client:
            _, cached = await serve(client, "two", turn_two(first))
            assert cached == len(PROMPT) + len(first) - 1

    asyncio.run(main())


def test_kills_at_any_moment_never_make_wrong_output(tmp_path):
    stores = StoreOptions(0, tmp_path, 300_000)

    async def main():
        history = PROMPT
        for turn in range(4):
            client = await ProcessEngineClient.start(
                describe(MODEL), EngineOptions(loader=LOADER, stores=stores)
            )
            first, _ = await serve(client, "one", history)
            history = (*history, *first, turn)
            other = asyncio.create_task(serve(client, "two", (turn, *history)))
            await asyncio.sleep(0.003 * turn)
            os.kill(client.pid, signal.SIGKILL)
            with contextlib.suppress(ExecutionError):  # it died in the middle
                await other
            await client.shutdown()

    asyncio.run(main())


def test_an_idle_engine_with_tiers_sleeps(tmp_path):
    async def main():
        async with running(StoreOptions(1 << 20, tmp_path)) as client:
            await serve(client, "one", PROMPT)
            await stored(client, 2)
            before = cpu_seconds(client.pid)
            await asyncio.sleep(0.5)
            assert cpu_seconds(client.pid) - before < 0.1

    asyncio.run(main())


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_two_engines_do_not_share_a_directory(tmp_path):
    async def main():
        async with running(StoreOptions(0, tmp_path)):
            with pytest.raises(CacheError, match="in use by another process") as caught:
                async with running(StoreOptions(0, tmp_path)):
                    pass
            assert caught.value.field == "disk_cache"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("stores", "field"),
    [
        (StoreOptions(100), "host_cache"),
        (StoreOptions(0, Path("/proc/nowhere")), "disk_cache"),
        (StoreOptions(0, Path("/tmp"), 100), "disk_cache_size"),
    ],
)
def test_what_cannot_be_set_up_is_said_before_anything_is_served(stores, field):
    async def main():
        with pytest.raises(CacheError) as caught:
            async with running(stores):
                pass
        assert caught.value.field == field

    asyncio.run(main())


def test_a_core_without_snapshot_rows_says_that_nothing_is_kept(capfd, tmp_path):
    async def main():
        model = HashModel(context=256, page_tokens=8, snapshot_rows=0)
        async with running(StoreOptions(1 << 20, tmp_path), model=model) as client:
            await serve(client, "one", PROMPT)
            assert (await client.stats()).stores == ()

    asyncio.run(main())
    assert "host and disk cache are not used" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "field"),
    [((-1,), "host_cache"), ((0, None, 5), "disk_cache_size"), ((0, Path("x"), 0), "disk_cache_size")],
)
def test_options_that_make_no_sense_are_typed_errors(arguments, field):
    with pytest.raises(CacheError) as caught:
        StoreOptions(*arguments)
    assert caught.value.field == field
