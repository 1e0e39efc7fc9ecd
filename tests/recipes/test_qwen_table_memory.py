"""A large table is prepared a piece at a time and served from the file: it is never in memory.

The checkpoint's table is a sparse file of zeros. Measured is resident memory beyond what the process had
before, mapped pages of files included. With `--complete` the table has two gibibytes, and programs read it
themselves as well.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from flare.testing.plugin import TinyCheckpoints
from flare_components.modules import hash_constants
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny import TEXT

TABLE = "model.language_model.layers.1.ple.ple_embedding"
ROW_BYTES = 9  # sixteen NVFP4 elements and their scale
SHARDS = 16
INDEX = "model.safetensors.index.json"

PREPARE = """
import sys
from pathlib import Path
import torch, torch.export, transformers.models.qwen4_exp.modeling_qwen4_exp
from flare.contract import DType
from flare.prepare import CapacityRequest, Progress, TableDelivery
from flare.prepare.session import PreparationRequest, PreparationSession
from flare_recipe_qwen.recipe import RECIPE
linear = torch.nn.Linear(8, 8, device="meta")
torch.export.export(linear, (torch.empty(1, 8, device="meta"),), strict=False)
status = Path("/proc/self/status")
peak = lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
sizes = CapacityRequest(context=256, concurrency=1, prefill_chunk_size=32, page_tokens=16, snapshot_rows=1,
    tables=TableDelivery(sys.argv[3]))
request = PreparationRequest(model="t", recipe_name="t", recipe_version="0", checkpoint_uri="t",
    dtype=DType.F32, capacities=sizes, calibrate=False)
checkpoint = RECIPE.loader.open(Path(sys.argv[1]))
before = peak()
PreparationSession(RECIPE, request, Progress()).prepare(checkpoint, Path(sys.argv[2]))
print(peak() - before)
"""
SERVE = """
import random, sys
from pathlib import Path
from flare.device import LoadOptions
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Finished, Sampling, Submit
status = Path("/proc/self/status")
resident = lambda: int(status.read_text().split("VmRSS:")[1].split()[0]) * 1024
events = []
engine = Engine(load_core(sys.argv[1], LoadOptions()), events.append)
numbers = random.Random(1)
def serve(count, tokens):
    for number in range(count):
        prompt = tuple(numbers.randrange(1, 288) for _ in range(tokens))
        sampling = Sampling(temperature=1.0, seed=number)
        engine.submit(Submit(request_id=str(number), prompt=prompt, sampling=sampling, max_tokens=8))
        while engine.step():
            pass
serve(1, 4)
before = resident()
serve(int(sys.argv[2]), 240)
assert sum(isinstance(event, Finished) for event in events) == int(sys.argv[2]) + 1
print(resident() - before)
engine.close()
"""


def with_table(source: Path, target: Path, nbytes: int) -> Path:
    """The tiny checkpoint with a table of about `nbytes`, all zero."""
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    text: dict[str, Any] = config["text_config"]
    text["ngram_vocab_size_base"] = nbytes // (8 * ROW_BYTES)
    text["ple_embedding_dtype"] = "nvfp4"
    text["split_ngram_parts"] = SHARDS
    (target / "config.json").write_text(json.dumps(config))
    rows = hash_constants(
        order=TEXT["ngram_size"],
        heads=TEXT["heads_per_ngram"],
        vocabulary=TEXT["vocab_size"],
        smallest_modulus=text["ngram_vocab_size_base"],
        seed=1234,
        table=0,
    ).rows
    padded = -(-rows // 16) * 16
    assert padded % SHARDS == 0
    tensors = {name: t for name, t in load_file(source / "model.safetensors").items() if TABLE not in name}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    shards = [f"{TABLE}.ngram_embedding.shard_{shard}" for shard in range(SHARDS)]
    count = padded // SHARDS
    entries = [(f"{name}.weight_scale_2", "F32", [1]) for name in shards]  # first: they must be aligned
    for name in shards:
        entries += [(f"{name}.weight", "U8", [count, 8]), (f"{name}.weight_scale", "F8_E4M3", [count, 1])]
    headers: dict[str, Any] = {}
    cursor = 0
    for name, dtype, shape in entries:
        end = cursor + math.prod(shape) * (4 if dtype == "F32" else 1)
        headers[name] = {"dtype": dtype, "shape": shape, "data_offsets": [cursor, end]}
        cursor = end
    encoded = json.dumps(headers).encode()
    with (target / "table.safetensors").open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        file.truncate(8 + len(encoded) + cursor)
    files = dict.fromkeys(tensors, "model.safetensors") | dict.fromkeys(headers, "table.safetensors")
    (target / INDEX).write_text(json.dumps({"weight_map": files}))
    return target


@pytest.mark.parametrize("tables", ["host", "device"])
def test_neither_preparing_nor_serving_holds_the_table(
    flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path, tables: str, complete: bool
) -> None:
    if tables == "device" and not complete:
        pytest.skip("with --complete")
    size = 2 << 30 if complete else 256 << 20
    checkpoint = with_table(flare_tiny_checkpoint(RECIPE), tmp_path / "large", size)
    core = tmp_path / "core.safetensors"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(script: str, *arguments: object) -> int:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[-1])

    preparing = run(PREPARE, checkpoint, core, tables)
    assert core.stat().st_size > size
    serving = run(SERVE, core, 40 if complete else 4)
    print(f"table {size >> 20} MiB; beyond: preparing {preparing >> 20} MiB, serving {serving >> 20} MiB")
    assert 0 < preparing < size / SHARDS + (150 << 20)
    assert serving < 200 << 20
