"""The CPU as a target: programs are traced into operator lists."""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract import Region
from flare.device.base import Device
from flare.device.cpu_host import instruction_set
from flare.device.sizing import BLOCK_REGIONS
from flare.prepare.definition import ProgramSet
from flare.prepare.progress import Progress
from flare.prepare.target import ExportedPrograms, payload_name, region_bytes
from flare.prepare.trace import trace


class CpuTarget:
    """See `PreparationTarget`."""

    device = "cpu"
    # A packed oneDNN weight is a second copy while both exist; see the CPU device's ledger for what stays.
    weight_copies = 2.0
    table_copies = 0.0
    prefill_chunk = 512

    def __init__(self) -> None:
        self.instruction_set: str | None = instruction_set()

    def versions(self) -> dict[str, str]:
        """None beside the packages: torch brings its libraries along."""
        return {}

    def export(self, programs: ProgramSet, progress: Progress) -> ExportedPrograms:
        """See `PreparationTarget.export`. Raises TraceError."""
        payloads: dict[str, bytes] = {}
        with progress.phase("Trace programs", total_steps=len(programs.programs)) as bar:
            for definition in programs.programs:
                text = trace(definition).model_dump_json(exclude_defaults=True)
                payloads[payload_name(definition.name)] = text.encode()
                bar.advance(1)
        return ExportedPrograms(
            format="oplist",
            payloads=payloads,
            buffers=programs.buffers,
            operator_library=programs.operator_library,
            # Tables that programs read are mapped, and no memory of the process.
            ledger=region_bytes(
                b for b in programs.buffers if b.region not in (*BLOCK_REGIONS, Region.TABLE_ROWS)
            ),
        )

    def examine(
        self, device: Device, programs: ProgramSet, prompt: Sequence[int], progress: Progress
    ) -> None:
        """See `PreparationTarget.examine`: there are no diagnostics."""
