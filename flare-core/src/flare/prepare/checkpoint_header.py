"""Reading one safetensors file: its header, and tensors mapped from it.

Format: https://huggingface.co/docs/safetensors/index#format. Read here rather than with the library because
a mapping per tensor is released with the tensor, so that streaming a checkpoint never holds more than one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flare.errors import CheckpointError
from flare.prepare.checkpoint import TensorInfo

if TYPE_CHECKING:
    import torch

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""

# Safetensors code -> name of the torch type.
TORCH_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "I32": "int32",
    "U32": "uint32",
    "I64": "int64",
    "U64": "uint64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


@dataclass(frozen=True)
class Slice:
    """Where a tensor lies: bytes `start` to `end` of `file`."""

    info: TensorInfo
    file: Path
    start: int
    end: int


def read_header(file: Path) -> dict[str, Slice]:
    """Headers of every tensor in `file`, in storage order.

    Raises: CheckpointError when the file is missing, truncated or not in the format.
    """
    if not file.is_file():
        raise CheckpointError(f"{file} does not exist", field="checkpoint")
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
            raise CheckpointError(f"{file} is not a safetensors file, or is truncated", field="checkpoint")
        text = stream.read(length)
    try:
        entries = json.loads(text)
        slices = [
            _slice(file, name, entry, 8 + length) for name, entry in entries.items() if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{file} has an unreadable header: {error!r}", field="checkpoint") from error
    slices.sort(key=lambda slice_: slice_.start)
    end = 8 + length
    for slice_ in slices:
        if slice_.start != end:
            raise CheckpointError(
                f"{file}: {slice_.info.name} does not follow the tensor before it", field="checkpoint"
            )
        end = slice_.end
    if end != size:
        raise CheckpointError(f"{file} has {size} bytes, its header describes {end}", field="checkpoint")
    return {slice_.info.name: slice_ for slice_ in slices}


def map_tensor(slice_: Slice) -> torch.Tensor:
    """The tensor as a private mapping of its file: writes stay in memory, pages go with the tensor.

    Raises: CheckpointError for an element type torch does not have.
    """
    import torch

    info = slice_.info
    dtype = getattr(torch, TORCH_NAMES.get(info.dtype, ""), None)
    if dtype is None:
        raise CheckpointError(f"{info.name} is stored as {info.dtype}, which cannot be read", field=info.name)
    if slice_.start == slice_.end:
        return torch.empty(info.shape, dtype=dtype)
    length = slice_.end - slice_.start
    mapped = np.memmap(slice_.file, dtype=np.uint8, mode="c", offset=slice_.start, shape=(length,))
    flat = torch.from_numpy(mapped)
    if flat.data_ptr() % dtype.itemsize:
        flat = flat.clone()  # the format does not promise alignment, kernels want it
    return flat.view(dtype).reshape(info.shape)


def _slice(file: Path, name: str, entry: Any, data: int) -> Slice:
    start, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    code = entry["dtype"]
    if not all(isinstance(number, int) and number >= 0 for number in (start, end, *shape)) or end < start:
        raise ValueError(f"{name} has impossible offsets or shape")
    if code in TORCH_NAMES and end - start != math.prod(shape) * _itemsize(code):
        raise ValueError(f"{name} has {end - start} bytes for {code} {shape}")
    return Slice(TensorInfo(name, shape, code), file, data + start, data + end)


def _itemsize(code: str) -> int:
    digits = "".join(character for character in code.partition("_")[0] if character.isdigit())
    return int(digits) // 8 if digits else 1
