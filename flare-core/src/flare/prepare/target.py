"""What preparation needs of the device a core is for: how programs become payloads that run there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from flare.contract import BufferSpec, OperatorLibrary, Region
from flare.contract.identity import TunedOperator
from flare.device.sizing import BLOCK_REGIONS
from flare.prepare.progress import Progress

if TYPE_CHECKING:
    from flare.device.base import Device
    from flare.prepare.definition import ProgramSet


@dataclass(frozen=True, kw_only=True)
class ExportedPrograms:
    """Every program as bytes of one `format` (`Payload.format`), by core tensor name `program/NAME`.

    `documents` are further core tensors that programs or buffers name, `buffers` all storage including what
    the target added, `operator_library` what serving must import (None: payloads are complete), `ledger`
    bytes by purpose, without pages and rows, of which there are as many as whoever loads the core chooses,
    `tuned` what was chosen by measurement.
    """

    format: str
    payloads: Mapping[str, bytes]
    buffers: tuple[BufferSpec, ...]
    operator_library: OperatorLibrary | None
    ledger: Mapping[str, int]
    documents: Mapping[str, bytes] = field(default_factory=dict)
    tuned: tuple[TunedOperator, ...] = ()


class PreparationTarget(Protocol):
    """A device kind during preparation."""

    device: str
    """`Identity.device` of the core."""
    instruction_set: str | None
    weight_copies: float
    """How often a loaded device holds the weights."""
    table_copies: float
    """The same of tables that programs read themselves: 0 where they stay in the core's file."""
    prefill_chunk: int
    """Tokens of the largest prefill program that pays here: with more, a token costs no less."""

    def versions(self) -> dict[str, str]:
        """Versions that decide what is exported, beside those of the Python packages."""

    def export(self, programs: ProgramSet, progress: Progress) -> ExportedPrograms:
        """Make payloads of all programs, whose tensors are on the meta device before and after. Weights are
        not needed. Raises what the target cannot do."""

    def examine(
        self, device: Device, programs: ProgramSet, prompt: Sequence[int], progress: Progress
    ) -> None:
        """Look at the loaded core, for the diagnostics that the target was made with. Raises DeviceError."""


def payload_name(program: str) -> str:
    """Name of the core tensor that holds a program."""
    return f"program/{program}"


def other_bytes(buffers: Iterable[BufferSpec], table_copies: float) -> int:
    """Bytes of buffers beside weights, pages and rows: request state, windows, image features, and tables as
    often as the device holds them."""
    totals = region_bytes(buffers)
    for region in (Region.WEIGHTS, *BLOCK_REGIONS):
        totals.pop(region.value, None)
    tables = totals.pop(Region.TABLE_ROWS.value, 0)
    return sum(totals.values()) + int(tables * table_copies)


def region_bytes(buffers: Iterable[BufferSpec]) -> dict[str, int]:
    """Bytes of buffers by region."""
    totals: dict[str, int] = {}
    for buffer in buffers:
        totals[buffer.region.value] = totals.get(buffer.region.value, 0) + buffer.nbytes
    return totals
