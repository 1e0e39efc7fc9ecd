"""Replays the small core in this process, without torch, and prints what it found as JSON.

usage: small_replay.py DIRECTORY [relocate]
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from small_steps import steps

from flare.contract import Initial
from flare.corefile import CoreReader, read_contract
from flare.device.cuda.cuda_device import CudaDevice
from flare.device.cuda.driver import CudaDriver
from flare.device.cuda.graph_spec import Edge, decode
from flare.errors import DeviceError

LAUNCHES = 200


class WatchedDriver(CudaDriver):
    """Reads the edges of every graph before it is instantiated: node numbers, ports and kind."""

    def __init__(self) -> None:
        super().__init__()
        self.edges: list[set[Edge]] = []

    def call(self, operation: str, *arguments: Any) -> Any:
        if operation == "cuGraphInstantiate":
            self.edges.append(self._edges(arguments[0]))
        return super().call(operation, *arguments)

    def _edges(self, graph: Any) -> set[Edge]:
        nodes, _ = self.call("cuGraphGetNodes", graph, self.call("cuGraphGetNodes", graph, 0)[1])
        numbers = {int(node): number for number, node in enumerate(nodes)}
        *_, count = self.call("cuGraphGetEdges", graph, 0)
        before, after, data, _ = self.call("cuGraphGetEdges", graph, count) if count else ((), (), (), 0)
        return {
            Edge(numbers[int(a)], numbers[int(b)], d.from_port, d.to_port, bool(int(d.type)))
            for a, b, d in zip(before, after, data, strict=True)
        }


def digest(data: Any) -> str:
    return hashlib.sha256(bytes(data)).hexdigest()


def replay(device: CudaDevice) -> dict[str, Any]:
    """Two frames in flight through all steps."""
    flying: deque[Any] = deque()
    completions, elapsed, submitted = [], [], []

    def collect() -> None:
        frame = flying.popleft()
        frame.wait()
        completions.append(digest(frame.completion))
        elapsed.append(frame.elapsed_us)

    for name, tokens in steps():
        if len(flying) == device.max_frames:
            collect()
        upload = tokens.view(np.uint8)
        began = time.perf_counter()
        flying.append(device.submit(name, upload))
        submitted.append(1e6 * (time.perf_counter() - began))
    while flying:
        collect()
    return {
        "completions": completions,
        "elapsed_us": float(np.median(elapsed)),
        "least_elapsed_us": float(np.min(elapsed)),
        "submit_us": float(np.median(submitted)),
        "state": {name: digest(device.read(name)) for name in ("pages", "state/steps")},
    }


def launch_us(device: CudaDevice) -> float:
    """Host time of one graph launch: the median of bursts that the queue takes without blocking."""
    _, graph = device._programs["prefill"]
    bursts = []
    for _ in range(9):
        began = time.perf_counter()
        for _ in range(LAUNCHES // 10):
            graph.launch(device._stream)
        bursts.append(1e6 * (time.perf_counter() - began) / (LAUNCHES // 10))
        device.read("state/steps")
    return float(np.median(bursts))


def second_device(reader: CoreReader) -> str:
    try:
        CudaDevice(read_contract(reader), reader)
    except DeviceError as error:
        return str(error)
    return "loaded"


def main(directory: Path, relocate: bool) -> None:
    began = time.perf_counter()
    with CoreReader(directory / "core.core.safetensors") as reader:
        contract = read_contract(reader)
        driver = WatchedDriver()
        device = CudaDevice(contract, reader, relocate=relocate, driver=driver)
        ready_ms = 1e3 * (time.perf_counter() - began)
        for buffer in contract.buffers:
            if buffer.initial is Initial.UNDEFINED:
                device.write(buffer.name, np.full(buffer.nbytes, 0xA5, np.uint8))
        result = replay(device)
        specs = [decode(reader.load(p.payloads[0].tensor), p.name) for p in contract.programs]
        result |= {
            "edges": [made == set(spec.edges) for made, spec in zip(driver.edges, specs, strict=True)],
            "growth": device.growth,
            "base": device._book.spans[0].start,
            "launch_us": launch_us(device),
            "load_spans": device.load_spans,
            "ready_ms": ready_ms,
            "ledger": device.ledger,
            "torch": "torch" in sys.modules,
            "second": "" if relocate else second_device(reader),
            "machine": {
                "gpu": device._context.name,
                "architecture": device._context.architecture,
                "memory_bytes": device._context.memory[1],
                "driver_cuda": device._context.driver_version,
                "host": platform.platform(),
                "python": platform.python_version(),
            },
        }
        device.close()
        device.close()
        again = CudaDevice(contract, reader, relocate=relocate)  # everything was given back
        again.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "relocate" in sys.argv[2:])
