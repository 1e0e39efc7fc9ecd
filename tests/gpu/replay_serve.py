"""Replays a prepared core in this process, without torch, and prints what it found as JSON.

usage: replay_serve.py CORE [relocate]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from replay_steps import OPTIONS, replay, replay_queued

from flare.corefile import CoreReader, read_contract
from flare.device.cuda.cuda_device import CudaDevice


def main(core: Path, relocate: bool) -> None:
    with CoreReader(core) as reader:
        device = CudaDevice(read_contract(reader), reader, OPTIONS, relocate=relocate)
        found, steps = replay(device)
        found["queued"] = replay_queued(device, steps)
        found["base"] = min(device.book.span(buffer.name).start for buffer in device.contract.buffers)
        found["growth"] = device.growth
        found["torch"] = "torch" in sys.modules
        found["load_spans"] = device.load_spans
        device.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "relocate" in sys.argv[2:])
