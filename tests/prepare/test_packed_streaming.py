"""Streaming packed weights holds one model tensor and one source at a time, whatever the checkpoint's size.

The checkpoint is a sparse file: tensors of zeros that take no room. Measured is the high-water mark of
resident memory, mapped pages included, of a process that makes every model tensor and drops it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS, EXPERTS, HIDDEN, INNER = 6, 64, 1024, 512
SIZES = {"U8": 1, "F8_E4M3": 1, "F32": 4, "U32": 4}
Header = dict[str, tuple[str, tuple[int, ...]]]

MAKE = """
import sys
from pathlib import Path
import torch
from flare.prepare import SafetensorsCheckpoint, TensorMap, expert_rules, read_weight_formats
status = Path("/proc/self/status")
peak = lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
torch.empty(1 << 20).zero_()
checkpoint = SafetensorsCheckpoint(Path(sys.argv[1]))
formats = read_weight_formats(checkpoint)
rules = {}
for layer in range(int(sys.argv[2])):
    rules |= expert_rules(formats, f"{layer}", f"layers.{layer}.experts", int(sys.argv[3]))
mapping = TensorMap(rules)
mapping.check(checkpoint)
baseline, largest, total = peak(), 0, 0
for name in rules:
    made = mapping.assemble(name, checkpoint)
    largest, total = max(largest, made.nbytes), total + made.nbytes
    del made
print(peak() - baseline, largest, total)
"""


def module(name: str, algorithm: str, rows: int, columns: int) -> Header:
    """Headers of a weight [rows, columns] as ModelOpt stores it."""
    if algorithm == "MXFP8":
        parts: Header = {
            "weight": ("F8_E4M3", (rows, columns)),
            "weight_scale": ("U8", (rows, columns // 32)),
        }
    elif algorithm == "FP8_PB_WO":
        grid = rows // 128, columns // 128
        parts = {"weight": ("F8_E4M3", (rows, columns)), "weight_scale_inv": ("F32", grid)}
    else:
        parts = {"weight": ("U8", (rows, columns // 2)), "weight_scale_2": ("F32", ())}
        if algorithm == "W4A16_NVFP4":
            parts["weight_scale"] = ("F8_E4M3", (rows, columns // 16))
        else:
            parts["weight_scale.nvfp4_csf_fixed"] = ("U8", (rows // 16, 16 + columns // 2))
            parts["weight_scale.nvfp4_csf_exceptions"] = ("U32", (0,))
            parts["input_scale"] = ("F32", ())
    return {f"{name}.{part}": header for part, header in parts.items()}


def write_sparse(directory: Path, headers: Header) -> int:
    """A safetensors file of zeros; its bytes."""
    entries, cursor = {}, 0
    for name, (dtype, shape) in headers.items():
        end = cursor + math.prod(shape) * SIZES[dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [cursor, end]}
        cursor = end
    text = json.dumps(entries).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + cursor)
    return cursor


@pytest.mark.parametrize("algorithm", ["W4A16_NVFP4", "NVFP4", "MXFP8", "FP8_PB_WO"])
def test_the_peak_is_one_tensor_of_one_layer(tmp_path: Path, algorithm: str) -> None:
    headers: Header = {}
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            name = f"layers.{layer}.experts.{expert}"
            headers |= module(f"{name}.gate_proj", algorithm, INNER, HIDDEN)
            headers |= module(f"{name}.up_proj", algorithm, INNER, HIDDEN)
            headers |= module(f"{name}.down_proj", algorithm, HIDDEN, INNER)
    size = write_sparse(tmp_path, headers)
    quantized = {"quant_algo": algorithm}
    if algorithm == "NVFP4":
        quantized["weight_scale_encoding"] = "csf"
    layers = {f"layers.{layer}.experts": quantized for layer in range(LAYERS)}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    command = [sys.executable, "-c", MAKE, str(tmp_path), str(LAYERS), str(EXPERTS)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, largest, total = map(int, result.stdout.split())
    assert total > 0.95 * size > 250 << 20
    print(f"checkpoint {size >> 20} MiB, largest tensor {largest >> 20} MiB, peak {peak >> 20} MiB")
    assert 0.9 * largest < peak < 1.1 * largest + (24 << 20) < size / 3
