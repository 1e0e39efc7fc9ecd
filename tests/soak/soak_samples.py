"""What a server holds at one moment: memory, descriptors and threads of its processes (Linux's /proc), its
own count of pages, rows, slots and requests (`/metrics`), and its temporary files."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from flare.bench.gauges import read_gauges

# Of `/metrics`, without the prefix: what must come back when nothing is served.
COUNTS = ("free_pages", "free_rows", "free_slots", "num_requests_running", "num_requests_waiting")
OPEN_REQUESTS = "http_requests_open"  # the request that asks is one


@dataclass(frozen=True)
class ProcessSample:
    """Memory in KiB: `rss` resident, `pss` with shared pages divided, `anonymous` not backed by a file."""

    rss: int
    pss: int
    anonymous: int
    fds: int
    sockets: int
    threads: int


@dataclass(frozen=True)
class Sample:
    """`seconds` since the watch began. `counts` has what the server reports."""

    seconds: float
    processes: dict[str, ProcessSample]
    counts: dict[str, float]
    temporary: int

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def sample_process(pid: int) -> ProcessSample:
    """One process, now. Raises: OSError when it is gone."""
    memory = {
        line.split(":")[0]: int(line.split()[1])
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    }
    links = []
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(entry.path))
        except FileNotFoundError:
            continue  # closed meanwhile
    return ProcessSample(
        rss=memory["Rss"],
        pss=memory["Pss"],
        anonymous=memory["Anonymous"],
        fds=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
        threads=len(os.listdir(f"/proc/{pid}/task")),
    )


class Watch:
    """Takes samples of the processes `pids` behind `url`, whose temporary files are in `temporary`."""

    def __init__(self, url: str, pids: Mapping[str, int], temporary: Path) -> None:
        # A new connection each time, which the server may close a little later than we do.
        self._http = httpx.Client(
            base_url=url, timeout=30, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )
        self._pids = dict(pids)
        self._temporary = temporary
        self._began = time.monotonic()

    def sample(self) -> Sample:
        """Now. Raises: OSError when a process is gone, httpx.HTTPError when the server does not answer."""
        # Before the question: its connection is none of the load's.
        processes = {name: sample_process(pid) for name, pid in self._pids.items()}
        page = self._http.get("/metrics")
        gauges = read_gauges(page.raise_for_status().text)
        counts = {name: gauges[f"flare:{name}"] for name in COUNTS if f"flare:{name}" in gauges}
        if f"flare:{OPEN_REQUESTS}" in gauges:
            counts[OPEN_REQUESTS] = gauges[f"flare:{OPEN_REQUESTS}"] - 1
        return Sample(
            seconds=time.monotonic() - self._began,
            processes=processes,
            counts=counts,
            temporary=sum(1 for _ in self._temporary.rglob("*")),
        )
