"""Peak host memory of preparing large checkpoints, in every number format: `scripts/preparation-memory`.

Each checkpoint is written into a temporary folder, prepared by a process of its own, and removed. What the
process held at most, beyond what its imports had brought, must stay under 1.3 times the weights and a
gibibyte.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from large_checkpoint import write_large
from large_entries import FORMATS, GIB
from resident import Sampler

from flare.bench.machine import describe_machine

PREPARING = Path(__file__).with_name("preparing.py")


def bound(weights: int, fixed: int = GIB) -> int:
    """Bytes beyond the baseline that preparing may take, `fixed` of them whatever is prepared."""
    return int(1.3 * weights) + fixed


def measure(name: str, size: int, table: int, folder: Path | None = None) -> dict[str, Any]:
    """Prepare a checkpoint of `size` bytes in format `name`, and a table of `table` bytes; all in bytes.
    Nothing of it stays in `folder`, by default that of temporary files.

    Raises RuntimeError with its errors when preparing fails.
    """
    with tempfile.TemporaryDirectory(dir=folder) as own:
        checkpoint = write_large(Path(own) / name, name, size, table)
        found, proportional = _prepare(checkpoint, Path(own) / "core.safetensors")
    beyond = found["peak"] - found["baseline"]
    return {
        "format": name,
        **found,
        "peak_proportional": proportional,
        "beyond": beyond,
        "bound": bound(found["weights"]),
        "within": beyond < bound(found["weights"]),
    }


def _prepare(checkpoint: Path, core: Path) -> tuple[dict[str, Any], int]:
    """What the process says of itself, and the largest sample of its proportional memory."""
    command = [sys.executable, str(PREPARING), str(checkpoint), str(core)]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        sampler = Sampler(process)
        sampler.start()
        out, errors = process.communicate()
        sampler.join()
    if process.returncode:
        raise RuntimeError(f"preparing {checkpoint.name} failed:\n{errors}")
    return json.loads(out.splitlines()[-1]), sampler.peak


def main() -> int:
    """Measure the formats asked for, one after the other. 1 when one is not within its bound."""
    parser = argparse.ArgumentParser(description="Peak host memory of preparing large checkpoints.")
    parser.add_argument("--format", choices=FORMATS, action="append", help="of all when not given")
    parser.add_argument("--gib", type=float, default=4.0, help="size of everything but the table")
    parser.add_argument("--table-gib", type=float, default=0.5, help="size of the n-gram table")
    parser.add_argument("--folder", type=Path, help="where to write checkpoint and core")
    parser.add_argument("--json", type=Path, help="write the results there")
    chosen = parser.parse_args()
    size, table = int(chosen.gib * GIB), int(chosen.table_gib * GIB)
    results = {"benchmark": "preparation memory, bytes", "machine": describe_machine(), "results": []}
    for name in chosen.format or FORMATS:
        found = measure(name, size, table, chosen.folder)
        print(json.dumps(found), flush=True)
        results["results"].append(found)
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(not all(found["within"] for found in results["results"]))


if __name__ == "__main__":
    sys.exit(main())
