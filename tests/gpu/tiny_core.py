"""Prepares the recipe's tiny checkpoint on this GPU in every form, and on the CPU, and drives the cores.

usage: tiny_core.py DIRECTORY    writes cuda.core, traced.core, modules.core, cpu.core and driven.json there
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tiny_steps import drive

from flare.contract import DType
from flare.corefile import CoreReader, read_contract
from flare.device import load_device
from flare.prepare import CapacityRequest
from flare.prepare.diagnostics import Diagnostics, Form
from flare.prepare.progress import Progress
from flare.prepare.session import PreparationRequest, PreparationSession
from flare.prepare.targets import choose_target
from flare_recipe_smollm.recipe import RECIPE

# The GPU's targets first: they watch from the start. Fused forms are compared with Python, too.
TARGETS = {
    "cuda": ("cuda", Diagnostics(eager=True)),
    "traced": ("cuda", Diagnostics(form=Form.TRACED, eager=True)),
    "modules": ("cuda", Diagnostics(form=Form.MODULES)),
    "cpu": ("cpu", Diagnostics()),
}
TINY = CapacityRequest(context=256, concurrency=4, prefill_chunk_size=64, page_tokens=16, snapshot_rows=12)


def main(directory: Path) -> None:
    checkpoint = RECIPE.oracle.tiny_checkpoint(directory / "checkpoint")
    found: dict[str, object] = {"seconds": {}}
    for name, (kind, diagnostics) in TARGETS.items():
        began = time.monotonic()
        target = choose_target(kind, "flare-recipe-smollm", diagnostics)
        request = PreparationRequest(
            model="tiny",
            recipe_name="smollm",
            recipe_version="0",
            checkpoint_uri="tiny",
            dtype=DType.BF16,
            capacities=TINY,
        )
        core = directory / f"{name}.core"
        PreparationSession(RECIPE, request, Progress(), target).prepare(RECIPE.loader.open(checkpoint), core)
        found["seconds"][name] = round(time.monotonic() - began, 1)  # type: ignore[index]
        with CoreReader(core) as reader:
            device = load_device(read_contract(reader), reader)
            found[name] = drive(device)
            found[f"{name} ledger"] = device.ledger
            device.close()
    (directory / "driven.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
