"""Loads a core for this GPU and says what that took: time by part, host memory, GPU memory.

usage: load_report.py CORE [OPTIONS]    OPTIONS are LoadOptions as JSON; prints JSON
The memory of the GPU is read through nvidia-smi, before this process touches it and after programs ran;
nobody else may use it meanwhile.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flare.contract import ProgramKind
from flare.corefile import CoreReader, read_contract
from flare.device import LoadOptions, load_device
from flare.device.direct import DirectRunner
from flare.engine.process_usage import resident_bytes

CHUNK = 1 << 24


def gpu_bytes() -> int:
    """Memory in use on GPU 0."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) << 20


def high_water() -> int:
    """Most host memory that this process ever had, in bytes."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) << 10


def run_programs(device: Any) -> int:
    """Every decode program once, and the largest prefill; returns the tokens drawn."""
    runner = DirectRunner(device)
    capacities = device.contract.capacities
    affordable = (capacities.pages - 1) // device.contract.pages_per_request
    requests = [runner.start(slot, [7, 8, 9]) for slot in range(min(capacities.concurrency, affordable))]
    for request in requests:
        runner.prefill_all(request, [7, 8, 9])
    largest = runner.contract.of_kind(ProgramKind.PREFILL)[-1].name
    runner.prefill(requests[0], [5] * min(capacities.prefill_tokens[-1], 100), sample=True, name=largest)
    for program in runner.contract.of_kind(ProgramKind.DECODE):
        lanes = requests[: program.lanes]
        runner.decode([*lanes, *[None] * (program.lanes - len(lanes))], program.name)
    return sum(len(request.draws) for request in requests)


def main(core: str, options: LoadOptions) -> dict[str, Any]:
    before = gpu_bytes()
    started_with = resident_bytes()
    with CoreReader(core) as reader:
        began = time.perf_counter()
        device = load_device(read_contract(reader), reader, options)
        seconds = time.perf_counter() - began
        resident, most = resident_bytes(), high_water()
        ready = gpu_bytes()
        drawn = run_programs(device)
        used = gpu_bytes()
        found = {
            "seconds": seconds,
            "load_spans": device.load_spans,
            "resident_before_bytes": started_with,
            "resident_bytes": resident,
            "resident_most_bytes": most,
            "gpu_ready_bytes": ready - before,
            "gpu_used_bytes": used - before,
            "ledger": device.ledger,
            "ledger_bytes": sum(n for name, n in device.ledger.items() if name != "pinned_host"),
            "pages": device.contract.capacities.pages,
            "snapshot_rows": device.contract.capacities.snapshot_rows,
            "cache_tokens": (device.contract.capacities.pages - 1) * device.contract.page.page_tokens,
            "drawn": drawn,
            "growth": device.growth,
            "torch": "torch" in sys.modules,
        }
        device.close()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], LoadOptions(**json.loads(sys.argv[2] if sys.argv[2:] else "{}")))))
