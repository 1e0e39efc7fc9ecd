"""The CPU device: runs operator lists over torch storage, synchronously.

The reference device, and the one the embedded default serves on. Imports torch and, by the name written in
the core, one operator library; never model code.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from pydantic import ValidationError

from flare.contract import OperatorList, PreparedContract, Program, Region
from flare.device.base import Bytes
from flare.device.blocks import block_view
from flare.device.cpu_memory import CpuMemory, TensorSource
from flare.device.cpu_operators import OperatorTable, load_library
from flare.device.cpu_program import CpuProgram
from flare.device.load_times import LoadTimes
from flare.device.mapped_tables import MappedTables
from flare.device.options import LoadOptions
from flare.device.sizing import chosen_counts, sized
from flare.device.tables import host_tables
from flare.errors import CoreError, DeviceError


class CpuFrame:
    """A program that already ran: submission on this device is synchronous."""

    def __init__(self, completion: Bytes, elapsed_us: float, gap_us: float) -> None:
        self.completion = completion
        self.elapsed_us = elapsed_us
        self.gap_us = gap_us

    def done(self) -> bool:
        """Always True."""
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Always True."""
        return True


class CpuDevice:
    """A core loaded for the CPU. `ledger` counts plain weights, packed weights, state, pages and rows.

    Raises CoreError when the core needs operators that are not here or mean something else, CapacityError
    for options that it was not prepared for, and DeviceError when a program fails.
    """

    max_frames = 1
    growth: int | None = None

    def __init__(
        self, contract: PreparedContract, source: TensorSource, options: LoadOptions | None = None
    ) -> None:
        options = options or LoadOptions()
        if contract.identity.world_size != 1:
            raise CoreError("the CPU device runs one rank", field="identity.world_size")
        options.refuse_gpu_choices(contract.identity.device)
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self.contract = sized(contract, chosen_counts(contract, options))
        library = load_library(contract.identity.operator_library)
        table = OperatorTable(library)
        times = LoadTimes()
        self.load_spans = times.spans
        with times.part("contents"):
            self._memory = CpuMemory(contract.buffers, source, self.contract.buffers)
        self._programs: dict[str, tuple[Program, CpuProgram]] = {}
        with torch.inference_mode(), times.part("programs"):
            for program in contract.programs:
                listing = _read_payload(program, source)
                compiled = CpuProgram(program.name, listing, self._memory, table)
                self._programs[program.name] = (program, compiled)
        self._memory.release(
            {name for _, program in self._programs.values() for name in program.live_buffers}
        )
        self.tables = host_tables(contract, source.bytes)
        self.tokenizer = np.frombuffer(source.bytes(contract.frontend.tokenizer_asset), np.uint8)
        self._mapped = MappedTables(contract, self._memory.tables, source.bytes)
        self.ledger = {**self._memory.ledger, "packed_weights": table.packed_bytes}
        self._ended = 0  # the program before, in nanoseconds
        self._upload = self._bytes_of(Region.UPLOAD)
        self._completion = self._bytes_of(Region.COMPLETION)

    def _bytes_of(self, region: Region) -> Bytes:
        names = [buffer.name for buffer in self.contract.buffers if buffer.region is region]
        if len(names) != 1:
            raise CoreError(f"{len(names)} {region.value} buffers, expected one", field="buffers")
        return self._memory.bytes(names[0])

    def submit(self, program: str, upload: Bytes) -> CpuFrame:
        """Run now; the returned frame is done."""
        spec, compiled = self._programs[program]
        extent = spec.upload_bytes
        self._upload[:extent] = upload[:extent]
        started = time.perf_counter_ns()
        try:
            with torch.inference_mode():
                compiled.run()
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            raise DeviceError(f"program {program} failed: {error}") from error
        self._mapped.ran(spec)
        before, self._ended = self._ended or started, time.perf_counter_ns()
        elapsed, gap = (self._ended - started) / 1000, (started - before) / 1000
        return CpuFrame(self._completion[: spec.completion_bytes].copy(), elapsed, gap)

    def read_blocks(self, region: Region, blocks: Sequence[int]) -> Bytes:
        """See `flare.device.base.Device`."""
        return block_view(self.contract, region, self._memory.bytes)[list(blocks)]

    def write_blocks(self, region: Region, blocks: Sequence[int], data: Bytes) -> None:
        """See `flare.device.base.Device`."""
        block_view(self.contract, region, self._memory.bytes)[list(blocks)] = data

    def probe(self, program: str, upload: Bytes) -> Mapping[str, torch.Tensor]:
        """Run `program` like `submit` and return copies of its named probes, for diagnostics and tests."""
        spec, compiled = self._programs[program]
        self._upload[: spec.upload_bytes] = upload[: spec.upload_bytes]
        with torch.inference_mode():
            return compiled.run_probed()

    def storage(self, buffer: str) -> torch.Tensor:
        """The live bytes of a contract buffer as u8, for diagnostics and tests."""
        return torch.from_numpy(self._memory.bytes(buffer))

    def close(self) -> None:
        """Drop all storage."""
        self._programs.clear()
        self._memory.clear()
        self._upload = self._completion = np.empty(0, np.uint8)


def _read_payload(program: Program, source: TensorSource) -> OperatorList:
    payload = program.payloads[0]
    if payload.format != "oplist":
        raise CoreError(
            f"program {program.name}: payload format {payload.format} is not for the CPU",
            field=f"programs.{program.name}.payloads",
        )
    try:
        return OperatorList.model_validate_json(bytes(source.load(payload.tensor)))
    except ValidationError as error:
        raise CoreError(f"program {program.name}: {error}", field=f"programs.{program.name}") from error
