"""Serve a core, load it for some minutes, and see whether everything comes back.

    scripts/soak CORE [--minutes 30] [--seed N] [--threads N] [--output soak.json]

Fills the cache once and plays every kind of request once (warm-up), idles and takes the baseline, loads for
the given time with a sample every few seconds, idles again, compares, and stops the server. Exit status 1,
and a line per finding, when an answer was wrong, memory grew or anything was kept. See `soak_verdict.py` for
the bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import soak_client as client
from soak_load import Load
from soak_requests import Writer
from soak_samples import Sample, Watch
from soak_verdict import Growth, judge_baseline, judge_memory

from flare.bench.launch import Started, started_core
from flare.bench.machine import describe_machine
from flare.bench.settings import BenchSettings
from flare.bench.target import connect, user
from flare.errors import FlareError

MAX_WAITING = 16
SETTLE_SECONDS = 30.0
TOKENIZER_WORDS, PROMPTS_AT_ONCE = 10_000, 128
TOKENIZER_THREADS = 4  # twice those of the server, which share unevenly
PROBES_AT_ONCE = 40  # grows every thread pool of the server to its limit


@dataclass
class Report:
    """A soak's measurements and what was wrong (`findings`)."""

    seed: int
    minutes: float
    played: int = 0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    before: Sample | None = None
    after: Sample | None = None
    growth: list[Growth] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": "flare.soak",
            "version": 1,
            "seed": self.seed,
            "minutes": self.minutes,
            "machine": describe_machine(),
            "played": self.played,
            "outcomes": self.outcomes,
            "before": self.before and self.before.document(),
            "after": self.after and self.after.document(),
            "growth": [growth.document() for growth in self.growth],
            "findings": self.findings,
            "samples": [sample.document() for sample in self.samples],
        }

    def summary(self) -> str:
        """For people."""
        lines = [f"seed {self.seed}: {self.played} clients in {self.minutes:g} minutes"]
        for kind, outcomes in sorted(self.outcomes.items()):
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
            lines.append(f"  {kind}: {counts}")
        for growth in self.growth:
            first, last = (sample.processes[growth.process] for sample in (self.samples[0], self.samples[-1]))
            lines.append(
                f"memory of the {growth.process} process: {growth.slope:+.0f} KiB/min "
                f"(bound {growth.bound:.0f}, {growth.samples} samples); "
                f"resident {first.rss / 1024:.1f} MiB at first, {last.rss / 1024:.1f} MiB at last"
            )
        if self.before is not None and self.after is not None:
            for process, idle in self.before.processes.items():
                end = self.after.processes[process]
                lines.append(
                    f"{process} process before and after: {idle.fds} and {end.fds} descriptors, "
                    f"{idle.sockets} and {end.sockets} sockets, {idle.threads} and {end.threads} threads"
                )
            counts = self.after.counts
            lines.append("afterwards: " + ", ".join(f"{name} {value:g}" for name, value in counts.items()))
        lines += [f"FOUND {finding}" for finding in self.findings] or ["nothing was kept"]
        return "\n".join(lines)


def soak(core: Path, minutes: float, seed: int, *options: str) -> Report:
    """The whole thing; `options` go to `flare run`. Raises: FlareError when the core cannot be served."""
    report = Report(seed, minutes)
    with tempfile.TemporaryDirectory(prefix="flare-soak-") as folder:
        temporary = Path(folder)
        started = started_core(
            core, "--max-waiting", str(MAX_WAITING), *options, environment={"TMPDIR": folder}
        )
        with started as server:
            asyncio.run(_soak(server, temporary, report))
            log = server.log.read_text(errors="replace")
        report.findings += [
            f"in the server's log: {line}" for line in log.splitlines() if "Traceback" in line
        ]
        if server.process.returncode != 0:
            report.findings.append(f"the server ended with {server.process.returncode}:\n{log[-2000:]}")
        report.findings += [f"left behind: {path.name}" for path in temporary.iterdir()]
    return report


async def _soak(server: Started, temporary: Path, report: Report) -> None:
    front = psutil.Process(server.process.pid)
    engine = next(child for child in front.children() if "flare.engine" in child.cmdline())
    watch = Watch(server.url, {"front": front.pid, "engine": engine.pid}, temporary)
    writer = await _writer(server.url)
    slots = int(watch.sample().counts["free_slots"])
    where = urlsplit(server.url)
    assert where.hostname is not None
    assert where.port is not None
    limits = httpx.Limits(max_connections=None, keepalive_expiry=5)
    timeout = httpx.Timeout(client.PATIENCE)

    @contextlib.asynccontextmanager
    async def load(seed: int) -> Any:
        async with httpx.AsyncClient(
            base_url=server.url, limits=limits, timeout=timeout, trust_env=False
        ) as http:
            yield (
                http,
                Load(
                    http,
                    (where.hostname, where.port),
                    writer,
                    seed=seed,
                    slots=slots,
                    waiting=MAX_WAITING,
                ),
            )

    async with load(report.seed + 1) as (http, warm):
        await _fill_cache(http, writer, slots)
        await _fill_tokenizer(http, writer)
        await asyncio.gather(*(http.get("/metrics") for _ in range(PROBES_AT_ONCE)))
        await warm.run(0)
    report.before = await _settled(watch)
    async with load(report.seed) as (_, main):
        sampling = asyncio.create_task(_sample(watch, report))
        try:
            await main.run(60 * report.minutes)
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling
    report.played, report.outcomes = main.played, main.outcomes
    report.findings += main.failures + warm.failures
    if main.failed > len(main.failures):
        report.findings.append(f"{main.failed} clients failed in all")
    if not main.outcomes["burst"]["some refused"]:
        report.findings.append("no burst filled the queue: the load was too small to show anything")
    report.after = await _settled(watch, report.before)
    report.findings += judge_baseline(report.before, report.after)
    report.growth = judge_memory(report.samples)
    report.findings += [
        f"memory of the {growth.process} process grows by {growth.slope:.0f} KiB/min, not {growth.bound:.0f}"
        for growth in report.growth
        if not growth.flat
    ]


async def _writer(url: str) -> Writer:
    """Learns from the server how long texts are."""
    async with connect(url, BenchSettings()) as target:
        text = "Remember the list of things that were said. " * 2
        tokens = (await target.complete([user(text)], 4)).prompt_tokens - target.lengths.overhead
        assert target.context is not None
        return Writer(target.model, target.context, 0.9 * len(text) / tokens)


async def _fill_cache(http: httpx.AsyncClient, writer: Writer, slots: int) -> None:
    """Every slot to its last token, so that every page of the cache was written once: a page that nobody
    touched costs no memory yet."""
    rng = random.Random(0)
    for _ in range(2):
        bodies = [writer.endless(rng, share=0.85) for _ in range(slots)]
        await asyncio.gather(*(client.answer(http, body) for body in bodies))


async def _fill_tokenizer(http: httpx.AsyncClient, writer: Writer) -> None:
    """As many different words as the tokenizer library remembers: on every thread it keeps the tokens of the
    first 10,000 that it meets there, some KiB each when words are long; until then new prompts cost memory.
    Several clients, so that every thread of the server takes its part. Nothing is drawn for these."""
    rng = random.Random(0)

    async def send(requests: int) -> None:
        for _ in range(requests):
            prompts = [f"{rng.getrandbits(60):x}" for _ in range(PROMPTS_AT_ONCE)]
            body = {"model": writer.model, "prompt": prompts, "max_tokens": 0}
            (await http.post("/v1/completions", json=body)).raise_for_status()

    clients = 4
    requests = TOKENIZER_WORDS * TOKENIZER_THREADS // (PROMPTS_AT_ONCE * clients) + 1
    await asyncio.gather(*(send(requests) for _ in range(clients)))


async def _sample(watch: Watch, report: Report) -> None:
    # Some hundred samples whatever the length: the number of pairs is their square.
    interval = min(5.0, max(0.5, 60 * report.minutes / 120))
    while True:
        report.samples.append(await asyncio.to_thread(watch.sample))
        await asyncio.sleep(interval)


async def _settled(watch: Watch, wanted: Sample | None = None) -> Sample:
    """The idle server: when it holds no more than `wanted`, or when nothing changes any more; as it is after
    half a minute otherwise."""
    deadline = time.monotonic() + SETTLE_SECONDS
    last = await asyncio.to_thread(watch.sample)
    while time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        now = await asyncio.to_thread(watch.sample)
        if wanted is None:
            idle = not now.counts.get("num_requests_running") and not now.counts.get("num_requests_waiting")
            if idle and not judge_baseline(last, now) and not judge_baseline(now, last):
                return now
        elif not judge_baseline(wanted, now):
            return now
        last = now
    return last


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("core", type=Path)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--threads", type=int, help="compute threads of the server")
    parser.add_argument("--output", type=Path, default=Path("soak.json"))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    threads = ["--threads", str(options.threads)] if options.threads else []
    try:
        report = soak(options.core, options.minutes, options.seed, *threads)
    except FlareError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    options.output.write_text(json.dumps(report.document(), indent=1) + "\n")
    print(report.summary())
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
