"""From start to ready, and what is held then: startup.py CORE --into FILE

Cold means that the system was asked to forget the core's pages. Beside each start stands the time in which a
fresh process merely reads and verifies the bytes that loading needs, with as many threads.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import result_file

from flare.bench.launch import started_core
from flare.bench.recorder import Recorder
from flare.contract import Initial
from flare.corefile import CoreReader, read_contract
from flare.engine.client import EngineOptions, ProcessEngineClient

_WINDOW = 1 << 30
_MIB = 1 << 20
_HOST_ONLY = "pinned_host"  # the entry of a ledger that is no GPU memory


def main() -> None:
    """Parse and run; with --read only the reading, in seconds on standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", type=Path)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--label", default="")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--read", action="store_true")
    options = parser.parse_args()
    if options.read:
        print(read_and_verify(options.core))
        return
    recorder = Recorder()
    began = time.perf_counter()
    for number in range(1 + options.repeat):
        case = "warm" if number else "cold"
        _one(options.core, case, recorder)
        _http(options.core, case, recorder)
    result_file.add_recorded(options.into, options.label, "start", recorder, time.perf_counter() - began)


def _one(core: Path, case: str, recorder: Recorder) -> None:
    _forget(core, case)
    command = [sys.executable, __file__, str(core), "--read"]
    reading = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    recorder.add(case, "read and verify", reading, "s", "lower")
    _forget(core, case)
    asyncio.run(_engine(core, case, recorder))


def _http(core: Path, case: str, recorder: Recorder) -> None:
    _forget(core, case)
    try:
        with started_core(core, timeout=120) as server:
            recorder.add(case, "start to ready, HTTP", server.seconds, "s", "lower")
    except ImportError as error:
        recorder.note(f"no HTTP server here: {error}")


def _forget(core: Path, case: str) -> None:
    """Ask the system to drop the file's pages when `case` is cold."""
    if case == "cold":
        file = os.open(core, os.O_RDONLY)
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def read_and_verify(core: Path) -> float:
    """Seconds to read and hash what buffers are filled with, through a window of touched memory."""
    with CoreReader(core) as reader:
        contract = read_contract(reader)
        buffers = [b for b in contract.buffers if b.initial is Initial.BYTES and b.nbytes and b.rank == 0]
        window = np.zeros(max(_WINDOW, *(b.nbytes for b in buffers)), np.uint8)
        began = time.perf_counter()
        batch: list[tuple[str, memoryview]] = []
        used = 0
        for buffer in buffers:
            if used + buffer.nbytes > window.nbytes:
                reader.upload(batch)
                batch, used = [], 0
            assert buffer.tensor is not None
            batch.append((buffer.tensor, window[used : used + buffer.nbytes].data))
            used += buffer.nbytes
        reader.upload(batch)
        return time.perf_counter() - began


async def _engine(core: Path, case: str, recorder: Recorder) -> None:
    free = _gpu_memory_used()
    began = time.perf_counter()
    engine = await ProcessEngineClient.start(core, EngineOptions())
    try:
        recorder.add(case, "start to ready, engine", time.perf_counter() - began, "s", "lower")
        used = _gpu_memory_used() - free
        assert engine.ready is not None
        ledger = sum(value for name, value in engine.ready.ledger.items() if name != _HOST_ONLY) / _MIB
        recorder.add("memory", "GPU, by its driver", used, "MiB")
        recorder.add("memory", "GPU, by the ledger", ledger, "MiB")
        recorder.add("memory", "GPU outside the ledger", 100 * (used - ledger) / used, "%", "lower")
        for name, value in sorted(engine.ready.ledger.items()):
            recorder.add("ledger", name, value / _MIB, "MiB")
        for name, (start, end) in engine.ready.load_spans.items():
            recorder.add(f"loading, {case}", f"{name}: from", start, "ms", "lower")
            recorder.add(f"loading, {case}", f"{name}: to", end, "ms", "lower")
        for name, mebibytes in _host_memory(engine.pid).items():
            recorder.add("memory", name, mebibytes, "MiB", "lower")
    finally:
        await engine.shutdown(drain=False)


def _gpu_memory_used() -> float:
    """MiB in use on GPU 0."""
    query = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True).stdout)


def _host_memory(pid: int) -> dict[str, float]:
    """Resident memory of a process in MiB: all, and, where the system tells, what is of its own."""
    names = {"VmRSS": "engine process, resident", "RssAnon": "engine process, resident, anonymous"}
    fields = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {names[key]: int(value.split()[0]) / 1024 for key, _, value in fields if key in names}


if __name__ == "__main__":
    main()
