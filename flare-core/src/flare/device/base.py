"""The device interface: a loaded core whose programs can be submitted, in order, with bounded frames.

Programs of one device run in submission order on one stream. `submit` enqueues the copy of the host's
upload bytes, the program, and the copy of its completion bytes to the host; the returned `Frame` owns both
host buffers until it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flare.contract import PreparedContract, Region

Bytes = NDArray[np.uint8]


class Frame(Protocol):
    """One submitted program."""

    def done(self) -> bool:
        """Whether the completion bytes are valid. Raises DeviceError when the program failed."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block (without spinning) until done or `timeout` seconds passed; returns `done()`."""

    @property
    def completion(self) -> Bytes:
        """The program's completion bytes, u8[program.completion_bytes]; only after `done()`."""

    @property
    def elapsed_us(self) -> float:
        """Device time of the program in microseconds; only after `done()`."""

    @property
    def gap_us(self) -> float:
        """Microseconds from the end of the program before to the begin of this one, as the device saw them;
        0 for the first. Only after `done()`."""


class Device(Protocol):
    """A core loaded onto a device. Nothing is allocated per step except on the host."""

    contract: PreparedContract
    max_frames: int  # programs that may be in flight: 1 when submission is synchronous
    ledger: dict[str, int]  # bytes by purpose, everything the device holds
    load_spans: dict[str, tuple[float, float]]  # parts of loading, which overlap: begin and end in ms
    tables: dict[str, Bytes]  # the core's tables, of which the host uploads rows
    tokenizer: Bytes  # the core's `tokenizer.json`, where grammars find the bytes of tokens

    @property
    def growth(self) -> int | None:
        """How often this device took memory, loaded kernels or built programs after it was ready; None where
        that is not counted. Anything but 0 is a bug: a step must cost its program and nothing else."""

    def submit(self, program: str, upload: Bytes) -> Frame:
        """Run `program` after everything submitted before. `upload` holds its bindings' bytes
        (u8[program.upload_bytes]) and must not change until the frame is done."""

    def read_blocks(self, region: Region, blocks: Sequence[int]) -> Bytes:
        """A copy of pages or rows, u8[len(blocks), block bytes], in memory that the caller owns.

        This and `write_blocks` may be called from another thread than the one that submits, beside programs
        that run: the caller knows that none of those, running or submitted, writes blocks that are read or
        touches blocks that are written. They return when the copy is complete, and programs submitted
        afterwards see it.
        """

    def write_blocks(self, region: Region, blocks: Sequence[int], data: Bytes) -> None:
        """Fill pages or rows from `data`, u8[len(blocks), block bytes]. See `read_blocks`."""

    def close(self) -> None:
        """Wait for submitted work and release all storage. Idempotent."""
