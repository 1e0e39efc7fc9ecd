"""The measured process: `python preparing.py CHECKPOINT CORE` prepares, and prints a line of JSON.

The baseline is this process after importing everything that preparation imports (torch and transformers,
about half a gigabyte of code that no streaming avoids), before the checkpoint is opened.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
import torch.export
import transformers.models.qwen4_exp.modeling_qwen4_exp  # noqa: F401
from resident import peak_resident

from flare.contract import DType, Region
from flare.prepare import CapacityRequest, Progress
from flare.prepare.session import PreparationRequest, PreparationSession
from flare_recipe_qwen.recipe import RECIPE

CAPACITIES = CapacityRequest(context=256, concurrency=1, prefill_chunk_size=16, image_patches=256)


def main(checkpoint: Path, core: Path) -> None:
    """Prepare, with all that `flare prepare` does: programs are measured, an oracle is recorded."""
    linear = torch.nn.Linear(8, 8, device="meta")
    torch.export.export(linear, (torch.empty(1, 8, device="meta"),), strict=False)  # loads the tracer lazily
    baseline, started = peak_resident(), time.monotonic()
    request = PreparationRequest(
        model=checkpoint.name,
        recipe_name="qwen",
        recipe_version="0",
        checkpoint_uri=checkpoint.name,
        dtype=DType.BF16,
        capacities=CAPACITIES,
    )
    session = PreparationSession(RECIPE, request, Progress())
    contract = session.prepare(RECIPE.loader.open(checkpoint), core)
    weights = sum(buffer.nbytes for buffer in contract.buffers if buffer.region is Region.WEIGHTS)
    result = {
        "weights": weights,
        "programs": [program.name for program in contract.programs],
        "tables": sum(table.rows * table.row_bytes for table in contract.tables),
        "baseline": baseline,
        "peak": peak_resident(),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
