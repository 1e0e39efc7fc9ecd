"""The CUDA device: replays a core's captured graphs with the driver alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from flare.contract import PreparedContract, Program, Region
from flare.device.base import Bytes
from flare.device.cuda.arena import Arena
from flare.device.cuda.block_copies import BlockCopies
from flare.device.cuda.context import Context
from flare.device.cuda.driver import CudaDriver, Driver
from flare.device.cuda.frames import CudaFrame, FrameSlot
from flare.device.cuda.graph_load import LoadedGraph, check_machine, load_graph
from flare.device.cuda.graph_spec import PAYLOAD_FORMAT, GraphSpec, decode, image_tensor
from flare.device.cuda.images import KernelImages
from flare.device.cuda.staging import fill_buffers
from flare.device.tables import host_tables
from flare.errors import CoreError

if TYPE_CHECKING:
    from flare.device.cpu_memory import TensorSource

Result = TypeVar("Result")

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class CudaDevice:
    """A core loaded onto GPU `ordinal`, at its recorded addresses or, with `relocate`, at any.

    `ledger` counts physical bytes by region, `kernel_images`, and `pinned_host` for host memory;
    `load_ms` says how long each part of loading took. Used from one thread at a time, but for blocks.

    Raises CoreError for a core that is not for this device, DeviceError for another GPU, an old driver or
    taken addresses, CapacityError when the GPU is too small; each says what to do.
    """

    max_frames = 2

    def __init__(
        self,
        contract: PreparedContract,
        source: TensorSource,
        *,
        ordinal: int = 0,
        relocate: bool = False,
        driver: Driver | None = None,
    ) -> None:
        if contract.identity.world_size != 1:
            raise CoreError("this device runs one rank", field="identity.world_size")
        self.contract = contract
        self.load_ms: dict[str, float] = {}
        self.tables = host_tables(contract, source.bytes)
        self._cleanup = ExitStack()
        with ExitStack() as undo:
            undo.callback(self._cleanup.close)
            self._load(source, ordinal, relocate, driver or self._timed("driver", CudaDriver))
            undo.pop_all()

    def _load(self, source: TensorSource, ordinal: int, relocate: bool, driver: Driver) -> None:
        programs = self.contract.programs
        specs = {program.name: _read_payload(program, source) for program in programs}
        if len({spec.layout for spec in specs.values()}) != 1:
            raise CoreError("programs were captured in different arenas", field="programs")
        self._driver = driver
        self._context = self._timed("context", lambda: Context(driver, ordinal))
        self._cleanup.callback(self._context.close)
        for spec in specs.values():
            check_machine(spec, self._context)
        layout = next(iter(specs.values())).layout
        arena = Arena(driver, layout, ordinal=ordinal, anywhere=relocate)
        self._cleanup.callback(arena.close)
        self._buffers = {buffer.name: buffer for buffer in self.contract.buffers if buffer.rank == 0}
        self._timed("memory", lambda: self._place(arena))
        self._book = arena.book
        self._stream = driver.call("cuStreamCreate", _NON_BLOCKING)
        self._cleanup.callback(driver.probe, "cuStreamDestroy", self._stream)
        self._timed(
            "contents",
            lambda: fill_buffers(driver, self._stream, source, [*self._buffers.values()], arena.book),
        )
        images = KernelImages(driver, self._context)
        self._cleanup.callback(images.close)
        self._timed("modules", lambda: _load_images(images, specs, source))
        self._programs: dict[str, tuple[Program, LoadedGraph]] = {}
        self._timed("graphs", lambda: self._build(specs, images))
        self._upload_address = self._first_address(Region.UPLOAD)
        self._completion_address = self._first_address(Region.COMPLETION)
        self._slots = [self._slot() for _ in range(self.max_frames)]
        self._flying: list[CudaFrame] = []
        self._copies = BlockCopies(driver, self._context, self.contract, arena.book)
        self._cleanup.callback(self._copies.close)
        self._cleanup.callback(driver.probe, "cuStreamSynchronize", self._stream)
        self.ledger = {
            **arena.ledger,
            "kernel_images": images.nbytes,
            "pinned_host": sum(slot.nbytes for slot in self._slots),
        }
        driver.resources.settle()

    def submit(self, program: str, upload: Bytes) -> CudaFrame:
        """See `flare.device.base.Device`. Submitting beyond `max_frames` is a bug of the caller."""
        spec, graph = self._programs[program]
        self._context.make_current()
        self._flying = [frame for frame in self._flying if not frame.done()]
        slot = next((s for s in self._slots if all(frame.slot is not s for frame in self._flying)), None)
        assert slot is not None, "too many frames in flight"
        frame = CudaFrame(self._driver, slot, program, spec.completion_bytes)
        self._flying.append(frame)
        addresses = (self._upload_address, self._completion_address)
        frame.enqueue(graph, self._stream, upload[: spec.upload_bytes], addresses)
        return frame

    @property
    def growth(self) -> int:
        """See `flare.device.base.Device`."""
        return self._driver.resources.serving.total()

    def read(self, buffer: str) -> Bytes:
        """A copy of a buffer's bytes after everything submitted, for diagnostics and tests."""
        self._context.make_current()
        out = np.empty(self._buffers[buffer].nbytes, np.uint8)
        self._driver.call("cuStreamSynchronize", self._stream)
        if out.size:
            self._driver.call("cuMemcpyDtoH", out.ctypes.data, self._book.span(buffer).start, out.nbytes)
        return out

    def write(self, buffer: str, contents: Bytes) -> None:
        """Replace a buffer's bytes (all of them) after everything submitted, for diagnostics and tests."""
        assert contents.nbytes == self._buffers[buffer].nbytes, "contents of another size"
        self._context.make_current()
        data = np.ascontiguousarray(contents)
        self._driver.call("cuStreamSynchronize", self._stream)
        if data.size:
            self._driver.call("cuMemcpyHtoD", self._book.span(buffer).start, data.ctypes.data, data.nbytes)

    def read_blocks(self, region: Region, blocks: Sequence[int]) -> Bytes:
        """See `flare.device.base.Device`."""
        return self._copies.read(region, blocks)

    def write_blocks(self, region: Region, blocks: Sequence[int], data: Bytes) -> None:
        """See `flare.device.base.Device`."""
        self._copies.write(region, blocks, data)

    def close(self) -> None:
        """See `flare.device.base.Device`."""
        self._cleanup.close()

    def _place(self, arena: Arena) -> None:
        for buffer in self._buffers.values():
            arena.place(buffer.name, buffer.region, buffer.offset, buffer.nbytes)
        arena.freeze()

    def _build(self, specs: dict[str, GraphSpec], images: KernelImages) -> None:
        for program in self.contract.programs:
            spec = specs[program.name]
            graph = load_graph(self._driver, self._context, spec, self._book, images, self._stream)
            self._cleanup.callback(graph.close)
            self._programs[program.name] = program, graph
        self._driver.call("cuStreamSynchronize", self._stream)

    def _slot(self) -> FrameSlot:
        upload = max((program.upload_bytes for program in self.contract.programs), default=0)
        completion = max((program.completion_bytes for program in self.contract.programs), default=0)
        slot = FrameSlot(self._driver, upload, completion)
        self._cleanup.callback(slot.close)
        return slot

    def _first_address(self, region: Region) -> int:
        names = [buffer.name for buffer in self._buffers.values() if buffer.region is region]
        if len(names) != 1:
            raise CoreError(f"{len(names)} {region.value} buffers, expected one", field="buffers")
        return self._book.span(names[0]).start

    def _timed(self, part: str, work: Callable[[], Result]) -> Result:
        began = time.perf_counter()
        result = work()
        self.load_ms[part] = 1000 * (time.perf_counter() - began)
        return result


def _load_images(images: KernelImages, specs: dict[str, GraphSpec], source: TensorSource) -> None:
    for digest in sorted({digest for spec in specs.values() for digest in spec.images}):
        images.load(digest, bytes(source.load(image_tensor(digest))))


def _read_payload(program: Program, source: TensorSource) -> GraphSpec:
    payload = program.payloads[0]
    if payload.format != PAYLOAD_FORMAT:
        raise CoreError(
            f"program {program.name}: payload format {payload.format} is not for a GPU",
            field=f"programs.{program.name}.payloads",
        )
    return decode(source.load(payload.tensor), program.name)
