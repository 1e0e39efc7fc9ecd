"""The soak test can fail: growth, and everything else that a server may keep, is found; noise is not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from scipy.stats import theilslopes
from soak_samples import ProcessSample, Sample, Watch
from soak_verdict import GROWTH_KIB, Growth, judge_baseline, judge_memory, theil_sen

IDLE = ProcessSample(rss=100_000, pss=90_000, anonymous=60_000, fds=17, sockets=5, threads=14)
COUNTS = {
    "free_pages": 64.0,
    "free_rows": 6.0,
    "free_slots": 4.0,
    "num_requests_running": 0.0,
    "num_requests_waiting": 0.0,
    "http_requests_open": 0.0,
}
BEFORE = Sample(seconds=0.0, processes={"front": IDLE, "engine": IDLE}, counts=COUNTS, temporary=1)
LEAKY = Path(__file__).with_name("soak_leaky_server.py")


def under_load(minutes: float, rss: Callable[[float], float], noise: float = 400) -> list[Sample]:
    """Samples of a server whose resident memory after `x` minutes is `rss(x)` KiB, give or take."""
    rng = random.Random(1)
    seconds = [60 * minutes * step / 120 for step in range(121)]
    return [
        dataclasses.replace(
            BEFORE,
            seconds=at,
            processes={
                "front": dataclasses.replace(IDLE, rss=int(rss(at / 60) + rng.gauss(0, noise))),
                "engine": IDLE,
            },
        )
        for at in seconds
    ]


def front(samples: list[Sample]) -> Growth:
    growth = {growth.process: growth for growth in judge_memory(samples)}
    assert growth["engine"].slope == 0
    return growth["front"]


def test_the_slope_is_that_of_theil_and_sen() -> None:
    rng = random.Random(3)
    points = [(float(x), 3 * x + rng.gauss(0, 5)) for x in range(40)]
    assert theil_sen(points) == pytest.approx(theilslopes(*reversed(list(zip(*points, strict=True)))).slope)


@pytest.mark.parametrize("minutes", [3, 30])
def test_flat_memory_passes(minutes: float) -> None:
    end = 0.4 * minutes
    growth = front(under_load(minutes, lambda at: 100_000 + 20_000 * min(at, end)))
    assert growth.flat, "growth during warm-up counts"
    assert front(under_load(minutes, lambda at: 100_000 + 1024 * (at > 0.8 * minutes))).flat, (
        "one arena counts"
    )
    assert front(under_load(minutes, lambda at: 100_000 - 5000 * at)).flat, "what is given back counts"
    spikes = under_load(minutes, lambda at: 100_000 + 50_000 * (int(at * 40) % 10 == 0))
    assert front(spikes).flat, "a spike counts"


@pytest.mark.parametrize("minutes", [3, 30])
def test_a_leak_is_found(minutes: float) -> None:
    bound = GROWTH_KIB / (minutes / 2)
    growth = front(under_load(minutes, lambda at: 100_000 + 1.5 * bound * at))
    assert not growth.flat
    assert growth.slope == pytest.approx(1.5 * bound, rel=0.1)
    assert growth.bound == pytest.approx(bound, rel=0.02)


def test_too_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge_memory([BEFORE, dataclasses.replace(BEFORE, seconds=60)])


def test_a_server_that_gave_everything_back_passes() -> None:
    fewer = dataclasses.replace(IDLE, fds=15, threads=10, rss=200_000)
    after = dataclasses.replace(BEFORE, processes={"front": fewer, "engine": IDLE}, temporary=0)
    assert judge_baseline(BEFORE, after) == []


@pytest.mark.parametrize("name", sorted(COUNTS))
@pytest.mark.parametrize("change", [-1, 1])
def test_every_count_must_be_what_it_was(name: str, change: int) -> None:
    after = dataclasses.replace(BEFORE, counts={**COUNTS, name: COUNTS[name] + change})
    assert [found.split(":")[0] for found in judge_baseline(BEFORE, after)] == [name]


@pytest.mark.parametrize("name", ["fds", "sockets", "threads"])
@pytest.mark.parametrize("process", ["front", "engine"])
def test_one_more_descriptor_or_thread_is_found(name: str, process: str) -> None:
    more = dataclasses.replace(IDLE, **{name: getattr(IDLE, name) + 1})
    after = dataclasses.replace(BEFORE, processes={**BEFORE.processes, process: more})
    (found,) = judge_baseline(BEFORE, after)
    assert found.startswith(f"{name} of the {process} process")


def test_a_count_that_the_server_does_not_report_is_found() -> None:
    silent = dataclasses.replace(BEFORE, counts={})
    (found,) = judge_baseline(silent, silent)
    assert found.startswith("not reported by the server: free_pages, ")


@contextlib.contextmanager
def leaky(folder: Path, *kept: str) -> Iterator[tuple[Watch, httpx.Client]]:
    temporary = folder / "tmp"
    temporary.mkdir()
    port_file = folder / "port"
    process = subprocess.Popen(
        [sys.executable, LEAKY, port_file, *kept], env={**os.environ, "TMPDIR": str(temporary)}
    )
    try:
        deadline = time.monotonic() + 20
        while not port_file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        url = f"http://127.0.0.1:{port_file.read_text()}"
        with httpx.Client(base_url=url, trust_env=False) as client:
            client.post("/")
            yield Watch(url, {"front": process.pid}, temporary), client
    finally:
        process.kill()
        process.wait()


def settled(watch: Watch) -> Sample:
    """The server when three samples in a row are alike: it closes connections a little later than we do."""
    deadline = time.monotonic() + 20
    alike = [watch.sample()]
    while len(alike) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.03)
        now = watch.sample()
        alike = (
            [*alike, now] if not (judge_baseline(alike[0], now) + judge_baseline(now, alike[0])) else [now]
        )
    return alike[-1]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ("descriptors", "fds of the front process"),
        ("threads", "threads of the front process"),
        ("pages", "free_pages"),
        ("requests", "num_requests_running"),
        ("files", "temporary files"),
    ],
)
def test_a_server_that_keeps_something_is_found(tmp_path: Path, kept: str, message: str) -> None:
    with leaky(tmp_path, kept) as (watch, client):
        before = settled(watch)
        assert judge_baseline(before, settled(watch)) == []
        client.post("/")
        (found,) = judge_baseline(before, settled(watch))
        assert found.startswith(message)


@pytest.mark.parametrize("kept", ["memory", "nothing"])
def test_a_server_that_grows_is_found(tmp_path: Path, kept: str) -> None:
    with leaky(tmp_path, kept) as (watch, client):
        samples = []
        for _ in range(20):
            for _ in range(4):
                client.post("/")
            samples.append(watch.sample())
    (growth,) = judge_memory(samples)
    assert growth.flat == (kept == "nothing"), growth
