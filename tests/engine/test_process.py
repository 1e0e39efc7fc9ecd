"""The engine process through its client: streams, ends, deaths, and what it costs to do nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flare.engine.client import EngineOptions, ProcessEngineClient
from flare.engine.messages import Finished, Sampling, Stats, Submit, Tokens
from flare.errors import CoreError, ExecutionError, RequestError, UnavailableError
from flare.scheduler import Settings
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.sim_loader import LOADER, describe

pytestmark = pytest.mark.alone

MODEL = HashModel(context=256, page_tokens=8)


@asynccontextmanager
async def running(
    settings: Settings | None = None, **behaviour: object
) -> AsyncIterator[ProcessEngineClient]:
    options = EngineOptions(loader=LOADER, settings=settings or Settings())
    client = await ProcessEngineClient.start(describe(MODEL, **behaviour), options)
    try:
        yield client
    finally:
        await client.shutdown(drain=False)


def request(name: str, max_tokens: int = 20, prompt: tuple[int, ...] = (5, 6, 7)) -> Submit:
    return Submit(
        request_id=name,
        prompt=prompt,
        sampling=Sampling(temperature=1.0, seed=11),
        max_tokens=max_tokens,
        stop_token_ids=(),
    )


async def collect(generation) -> tuple[list[int], Finished]:
    tokens: list[int] = []
    async for event in generation:
        if isinstance(event, Tokens):
            tokens.extend(event.tokens)
    return tokens, event


async def baseline(client: ProcessEngineClient) -> Stats:
    """Stats once nothing is live and fences have passed."""
    while (stats := await client.stats()).running or stats.waiting or stats.free_pages != stats.total_pages:
        await asyncio.sleep(0.005)
    return stats


def test_concurrent_streams_match_the_oracle():
    async def main():
        async with running() as client:
            assert client.ready.context == 256
            assert client.ready.concurrency == 4
            assert client.ready.ledger["pages"] > 0
            assert 0 < client.ready.ready_seconds < 30
            prompts = {f"r{i}": tuple(range(i, i + 3 + 9 * i)) for i in range(7)}
            submits = [asyncio.create_task(client.submit(request(n, prompt=p))) for n, p in prompts.items()]
            generations = await asyncio.gather(*submits)
            results = await asyncio.gather(*(collect(generation) for generation in generations))
            for prompt, (tokens, end) in zip(prompts.values(), results, strict=True):
                assert tokens == oracle(prompt, 11, 20)
                assert (end.reason, end.prompt_tokens, end.output_tokens) == ("length", len(prompt), 20)
            stats = await baseline(client)
            assert stats.generated_tokens == 140
            assert stats.free_slots == 4
            assert stats.step_period_ms >= stats.program_ms > 0

    asyncio.run(main())


def test_tokens_arrive_while_the_request_runs_and_unread_ones_merge():
    async def main():
        async with running(delay_ms=5) as client:
            generation = await client.submit(request("a", max_tokens=40))
            events = aiter(generation)
            first = await anext(events)
            assert len(first.tokens) < 40
            await asyncio.sleep(0.12)
            merged = await anext(events)
            assert len(merged.tokens) > 5  # one event for everything that came meanwhile
            rest = [event async for event in events]
            tokens = [t for event in [first, merged, *rest[:-1]] for t in event.tokens]
            assert tokens == oracle((5, 6, 7), 11, 40)

    asyncio.run(main())


def test_cancel_ends_the_stream_and_frees_everything():
    async def main():
        async with running(delay_ms=2) as client:
            generation = await client.submit(request("a", max_tokens=200))
            events = aiter(generation)
            seen = len((await anext(events)).tokens)
            generation.cancel()
            generation.cancel()
            tokens, end = await collect(events)
            assert end.reason == "cancelled"
            assert seen + len(tokens) == end.output_tokens < 200
            stats = await baseline(client)
            assert stats.free_slots == 4

    asyncio.run(main())


def test_fifty_disconnects_leave_everything_free():
    async def main():
        async with running(delay_ms=1) as client:
            before = await client.stats()

            async def disconnect(index: int) -> None:
                task = asyncio.create_task(client.submit(request(f"r{index}", max_tokens=150)))
                await asyncio.sleep(0.002 * (index % 7))
                if index % 2 and task.done():
                    await anext(aiter(task.result()))
                    task.result().cancel()
                elif task.done():
                    task.result().cancel()
                else:
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task

            await asyncio.gather(*(disconnect(index) for index in range(50)))
            after = await baseline(client)
            assert (after.free_slots, after.free_pages, after.free_rows) == (
                before.free_slots,
                before.free_pages,
                before.free_rows,
            )
            tokens, _ = await collect(await client.submit(request("last")))
            assert tokens == oracle((5, 6, 7), 11, 20)

    asyncio.run(main())


def test_refusals_are_typed():
    async def main():
        async with running(Settings(max_waiting=1), delay_ms=5) as client:
            with pytest.raises(RequestError, match="context"):
                await client.submit(request("long", prompt=(1,) * 256))
            running_ones = [await client.submit(request(f"r{i}", max_tokens=200)) for i in range(4)]
            queued = asyncio.create_task(client.submit(request("queued")))
            await asyncio.sleep(0.05)
            with pytest.raises(UnavailableError, match="waiting"):
                await client.submit(request("one too many"))
            with pytest.raises(RequestError, match="in use"):
                await client.submit(request("r0"))
            assert not queued.done()
            running_ones[0].cancel()
            tokens, _ = await collect(await queued)
            assert tokens == oracle((5, 6, 7), 11, 20)

    asyncio.run(main())


def test_death_of_the_engine_ends_open_streams_at_once():
    async def main():
        async with running(delay_ms=5) as client:
            generations = [await client.submit(request(f"r{i}", max_tokens=200)) for i in range(4)]
            waiting = asyncio.create_task(client.submit(request("queued")))
            await asyncio.sleep(0.05)
            os.kill(client.pid, signal.SIGKILL)
            begin = time.perf_counter()
            for generation in generations:
                with pytest.raises(ExecutionError, match="killed by signal 9"):
                    await collect(generation)
            with pytest.raises(ExecutionError):
                await waiting
            assert time.perf_counter() - begin < 0.2
            assert not client.alive
            with pytest.raises(ExecutionError):
                await client.submit(request("late"))
            with pytest.raises(ExecutionError):
                await client.stats()

    asyncio.run(main())


def test_a_failing_program_is_reported_before_the_process_ends():
    async def main():
        async with running(fail_at=6) as client:
            with pytest.raises(ExecutionError, match="injected fault"):
                await collect(await client.submit(request("a")))
            while client.alive:
                await asyncio.sleep(0.005)

    asyncio.run(main())


def test_drain_finishes_what_runs_and_refuses_what_comes():
    async def main():
        async with running(delay_ms=2) as client:
            generation = await client.submit(request("a", max_tokens=50))
            shutdown = asyncio.create_task(client.shutdown(drain=True))
            await asyncio.sleep(0)
            with pytest.raises(UnavailableError, match="shutting down"):
                await client.submit(request("b"))
            tokens, end = await collect(generation)
            assert tokens == oracle((5, 6, 7), 11, 50)
            assert end.reason == "length"
            await shutdown
            assert not client.alive

    asyncio.run(main())


def test_shutdown_without_drain_cancels():
    async def main():
        async with running(delay_ms=2) as client:
            generation = await client.submit(request("a", max_tokens=200))
            begin = time.perf_counter()
            await client.shutdown(drain=False)
            _, end = await collect(generation)
            assert end.reason == "cancelled"
            assert time.perf_counter() - begin < 1.5

    asyncio.run(main())


def test_a_drain_that_takes_too_long_is_cut_off():
    async def main():
        async with running(delay_ms=20) as client:
            generation = await client.submit(request("a", max_tokens=200))
            begin = time.perf_counter()
            await client.shutdown(drain=True, drain_timeout_s=0.1)
            _, end = await collect(generation)
            assert end.reason == "cancelled"
            assert time.perf_counter() - begin < 2.0

    asyncio.run(main())


def test_load_failures_keep_their_class_message_and_field():
    async def main():
        core = describe(MODEL, load_error="tensor headers are truncated")
        with pytest.raises(CoreError, match="headers are truncated") as caught:
            await ProcessEngineClient.start(core, EngineOptions(loader=LOADER))
        assert caught.value.field == "identity"
        with pytest.raises(ExecutionError, match="no_such_function"):
            await ProcessEngineClient.start(
                core, EngineOptions(loader="flare.testing.sim_loader:no_such_function")
            )

    asyncio.run(main())


def test_shutdown_while_loading_does_not_wait():
    async def main():
        client = ProcessEngineClient(describe(MODEL, load_s=30), EngineOptions(loader=LOADER))
        with pytest.raises(UnavailableError, match="not ready"):
            await client.submit(request("a"))
        begin = time.perf_counter()
        await client.shutdown()
        assert time.perf_counter() - begin < 2.0
        with pytest.raises(ExecutionError):
            await client.wait_ready()

    asyncio.run(main())


def test_signals_leave_the_decision_to_the_front():
    async def main():
        async with running(delay_ms=2) as client:
            generation = await client.submit(request("a", max_tokens=30))
            os.kill(client.pid, signal.SIGINT)
            tokens, _ = await collect(generation)
            assert tokens == oracle((5, 6, 7), 11, 30)
            generation = await client.submit(request("b", max_tokens=30))
            os.kill(client.pid, signal.SIGTERM)  # what runs is finished, then the process ends
            tokens, _ = await collect(generation)
            assert tokens == oracle((5, 6, 7), 11, 30)
            while client.alive:
                await asyncio.sleep(0.005)

    asyncio.run(main())


def test_idle_costs_nothing():
    async def main():
        async with running() as client:
            await collect(await client.submit(request("a")))
            await baseline(client)

            def cpu_s() -> float:
                fields = Path(f"/proc/{client.pid}/stat").read_text().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

            own, engine = time.process_time(), cpu_s()
            await asyncio.sleep(1.0)
            assert cpu_s() - engine <= 0.02
            assert time.process_time() - own < 0.02

    asyncio.run(main())


def test_the_engine_does_not_outlive_its_front(tmp_path):
    script = tmp_path / "front.py"
    script.write_text(
        "import asyncio, os, sys\n"
        "from flare.engine.client import EngineOptions, ProcessEngineClient\n"
        "async def main():\n"
        "    client = await ProcessEngineClient.start(sys.argv[1], EngineOptions(loader=sys.argv[2]))\n"
        "    print(client.pid, flush=True)\n"
        "    os._exit(9)\n"
        "asyncio.run(main())\n"
    )
    result = subprocess.run(
        [sys.executable, script, describe(MODEL), LOADER], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 9, result.stderr
    deadline = time.monotonic() + 5.0
    while Path(f"/proc/{int(result.stdout)}").exists():
        stat = Path(f"/proc/{int(result.stdout)}/stat")
        if stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            break  # ended; whoever adopted it has not collected it yet
        assert time.monotonic() < deadline, "the engine survived its front"
        time.sleep(0.01)


def test_the_time_of_every_step_is_told():
    async def main():
        async with running(delay_ms=2.0) as client:
            await collect(await client.submit(request("a", 12)))
            await baseline(client)
            first = await client.timeline()
            await collect(await client.submit(request("b", 5)))
            stats = await baseline(client)
            return first, await client.timeline(first.newest), stats

    first, second, stats = asyncio.run(main())
    steps = first.steps + second.steps
    assert [step.number for step in steps] == list(range(1, stats.steps + 1))
    decodes = [step for step in steps if step.kind == "decode"]
    assert len(decodes) == 11 + 4
    assert all(step.requests == 1 for step in decodes)
    assert all(step.device_us >= 2000 for step in steps)
    # What follows a rest has no pause: the device did not wait for the host before it.
    assert {1, second.steps[0].number} <= {step.number for step in steps if step.gap_us is None}
    gaps = [step.gap_us for step in decodes if step.gap_us is not None]
    assert len(gaps) >= len(decodes) - 2
    assert 0 <= min(gaps) < 100_000
    for part in ("plan_us", "pack_us", "submit_us", "wait_us", "complete_us", "deliver_us"):
        assert any(getattr(step, part) > 0 for step in steps), part
        assert all(getattr(step, part) >= 0 for step in steps), part
    assert max(step.wait_us for step in steps) > 1000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"GOMP_SPINCOUNT": "20000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_WAIT_POLICY": "PASSIVE"}),
    ],
)
def test_compute_threads_give_way_unless_told_otherwise(monkeypatch, given, expected):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    async def main():
        async with running() as client:
            return Path(f"/proc/{client.pid}/environ").read_bytes().decode().split("\0")

    environment = dict(entry.split("=", 1) for entry in asyncio.run(main()) if entry)
    assert {name: environment[name] for name in names if name in environment} == expected
