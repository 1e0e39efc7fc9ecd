"""The state of a loaded core as bytes: filled with noise, copied, compared."""

from __future__ import annotations

import torch

from flare.contract import BufferView, Region
from flare.contract.buffers import dense_strides
from flare.device.cpu import CpuDevice

STATE = (Region.PAGES, Region.ROWS, Region.REQUEST_STATE)
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
Bytes = dict[str, torch.Tensor]


def buffers(device: CpuDevice) -> list[str]:
    """Names of everything that lives longer than a program and is not a weight."""
    return [buffer.name for buffer in device.contract.buffers if buffer.region in STATE]


def copy(device: CpuDevice) -> Bytes:
    return {name: device.storage(name).clone() for name in buffers(device)}


def scramble(device: CpuDevice, seed: int = 0) -> None:
    """Noise everywhere, except the null row, which every request starts from."""
    generator = torch.Generator().manual_seed(seed)
    null = device.storage("rows")[: device.contract.row.nbytes].clone()
    for name in buffers(device):
        storage = device.storage(name)
        storage.copy_(torch.randint(1, 255, storage.shape, dtype=torch.uint8, generator=generator))
    device.storage("rows")[: len(null)] = null


def nothing(device: CpuDevice) -> Bytes:
    """An empty mask: marks bytes that may change."""
    return {name: torch.zeros_like(device.storage(name)) for name in buffers(device)}


def window(storage: Bytes, view: BufferView) -> torch.Tensor:
    """`view` over a copy or a mask, as integers of the element's size."""
    words = storage[view.buffer].view(_WORDS[view.dtype.itemsize])
    return words.as_strided(
        view.shape, view.strides or dense_strides(view.shape), view.offset // view.dtype.itemsize
    )


def changed(before: Bytes, after: Bytes) -> Bytes:
    return {name: (before[name] != after[name]).to(torch.uint8) for name in before}


def outside(changes: Bytes, allowed: Bytes) -> dict[str, int]:
    """Buffers with changed bytes that `allowed` does not mark, and the first such byte."""
    stray = {name: (changes[name].bool() & ~allowed[name].bool()) for name in changes}
    return {name: int(mask.nonzero()[0]) for name, mask in stray.items() if mask.any()}


def slot_window(device: CpuDevice, storage: Bytes, name: str) -> torch.Tensor:
    """Bytes of request-state buffer `name` as [slots, bytes per slot]."""
    return storage[f"state/{name}"].view(device.contract.capacities.concurrency, -1)


def allow_tokens(device: CpuDevice, mask: Bytes, pages: list[int], begin: int, end: int) -> None:
    """Mark the page entries of token positions begin..end."""
    contract = device.contract
    for field in contract.page.fields:
        view = window(mask, contract.page.view("pages", field.name, contract.capacities.pages))
        for position in range(begin, end):
            page, entry = divmod(position, contract.page.page_tokens)
            view[pages[page], :, entry] = -1


def allow_row(device: CpuDevice, mask: Bytes, row: int) -> None:
    """Mark every field of a row."""
    contract = device.contract
    for field in contract.row.fields:
        window(mask, contract.row.view("rows", field.name, contract.capacities.rows))[row] = -1
