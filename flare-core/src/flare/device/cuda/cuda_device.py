"""The CUDA device: replays a core's captured graphs with the driver alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import numpy as np

from flare.contract import Initial, PreparedContract, Program, Region
from flare.device.base import Bytes
from flare.device.cuda.address_book import AddressBook
from flare.device.cuda.arena import Arena
from flare.device.cuda.block_copies import BlockCopies
from flare.device.cuda.budget import MemoryBudget
from flare.device.cuda.contents import ContentUpload
from flare.device.cuda.driver import Driver
from flare.device.cuda.frames import CudaFrame, FrameSlot, ProgramSpans
from flare.device.cuda.graph_load import BuiltGraph, LoadedGraph, build_graph, check_machine
from flare.device.cuda.graph_spec import PAYLOAD_FORMAT, GraphSpec, decode, image_tensor
from flare.device.cuda.images import KernelImages
from flare.device.cuda.opening import Opening, opening
from flare.device.load_times import LoadTimes
from flare.device.options import LoadOptions
from flare.device.sizing import BLOCK_REGIONS, least_counts, sized
from flare.device.tables import host_tables
from flare.errors import CoreError

if TYPE_CHECKING:
    from flare.device.cpu_memory import TensorSource

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class CudaDevice:
    """A core loaded onto GPU `ordinal`, at its recorded addresses or, with `relocate`, at any.

    `ledger` counts the GPU's memory by region, `context`, `modules` and `graphs`, and `pinned_host` for host
    memory; `load_spans` says when each part of loading ran: begin and end in milliseconds, overlapping where
    parts ran side by side. Used from one thread at a time, but for blocks.

    Raises CoreError for a core that is not for this device, DeviceError for another GPU, an old driver or
    taken addresses, CapacityError when the GPU is too small or `options` do not fit; each says what to do.
    """

    max_frames = 2

    def __init__(
        self,
        contract: PreparedContract,
        source: TensorSource,
        options: LoadOptions | None = None,
        *,
        ordinal: int = 0,
        relocate: bool = False,
        driver: Driver | None = None,
    ) -> None:
        if contract.identity.world_size != 1:
            raise CoreError("this device runs one rank", field="identity.world_size")
        options = options or LoadOptions()
        least_counts(contract, options)  # what can never be is said at once
        self.contract = contract
        self.tables = host_tables(contract, source.bytes)
        self.tokenizer = np.frombuffer(source.bytes(contract.frontend.tokenizer_asset), np.uint8)
        self._times = LoadTimes()
        self.load_spans = self._times.spans
        self._cleanup = ExitStack()
        with ExitStack() as undo:
            undo.callback(self._cleanup.close)
            with self._times.part("total"):
                self._load(source, options, ordinal, relocate, driver)
            undo.pop_all()
        self._driver.resources.settle()

    def _load(
        self, source: TensorSource, options: LoadOptions, ordinal: int, relocate: bool, driver: Driver | None
    ) -> None:
        buffers = [buffer for buffer in self.contract.buffers if buffer.rank == 0]
        with self._times.part("contents"), closing(ContentUpload(source, buffers)) as contents:
            gpu = opening(ordinal) if driver is None else Opening(ordinal, driver)
            try:
                with self._times.part("programs"):
                    specs = {p.name: _read_payload(p, source) for p in self.contract.programs}
                    digests = {digest for spec in specs.values() for digest in spec.images}
                    images = {digest: bytes(source.load(image_tensor(digest))) for digest in sorted(digests)}
            finally:
                self._driver, self._context = gpu.result()
                self._cleanup.callback(self._context.close)
            for part, span in gpu.spans.items():
                self._times.add(part, *span)
            self._context.make_current()
            with self._times.part("memory"):
                arena = self._reserve(specs, ordinal, relocate)
                budget = MemoryBudget(self._context, self.contract, options, arena.granularity)
                code = sum(map(len, images.values()))
                budget.counts(budget.needed(buffers) + code)  # what does not fit is said before weights come
                # Fills and copies in graphs want memory behind their addresses: the fewest pages and rows.
                least = sized(self.contract, least_counts(self.contract, options)).buffers
                needed = {buffer.name: buffer.nbytes for buffer in least if buffer.rank == 0}
                for buffer in buffers:
                    backed = needed[buffer.name]
                    arena.place(buffer.name, buffer.region, buffer.offset, buffer.nbytes, backed=backed)
            self._book = arena.book
            contents.open(self._driver, self._context, self._stream, arena.book)
            kernel_bytes = self._load_kernels(specs, images)
            with self._times.part("pages"):
                have = sum(arena.ledger.get(region.value, 0) for region in BLOCK_REGIONS)
                self.contract = sized(self.contract, budget.counts(-have))
                self._buffers = {b.name: b for b in self.contract.buffers if b.rank == 0}
                self._back(arena)
            self._upload_address = self._first_address(Region.UPLOAD)
            self._completion_address = self._first_address(Region.COMPLETION)
            self._slots = [self._slot() for _ in range(self.max_frames)]
            self._spans = ProgramSpans(self._driver, self.max_frames)
            self._cleanup.callback(self._spans.close)
            self._flying: list[CudaFrame] = []
            self._copies = BlockCopies(self._driver, self._context, self.contract, arena.book)
            self._cleanup.callback(self._copies.close)
            self._cleanup.callback(self._driver.probe, "cuStreamSynchronize", self._stream)
            with self._times.part("waiting for contents"):
                contents.wait()
        self.ledger = {
            **arena.ledger,
            "context": self._context.nbytes,
            **kernel_bytes,
            "pinned_host": sum(slot.nbytes for slot in self._slots),
        }

    def _reserve(self, specs: dict[str, GraphSpec], ordinal: int, relocate: bool) -> Arena:
        layouts = {spec.layout for spec in specs.values()}
        if len(layouts) != 1:
            raise CoreError("programs were captured in different arenas", field="programs")
        for spec in specs.values():
            check_machine(spec, self._context)
        arena = Arena(self._driver, layouts.pop(), ordinal=ordinal, anywhere=relocate)
        self._cleanup.callback(arena.close)
        self._stream = self._driver.call("cuStreamCreate", _NON_BLOCKING)
        self._cleanup.callback(self._driver.probe, "cuStreamDestroy", self._stream)
        return arena

    def _load_kernels(self, specs: dict[str, GraphSpec], images: dict[str, bytes]) -> dict[str, int]:
        """Kernels and graphs; returns what they take of the GPU's memory."""
        free = [self._context.memory[0]]
        kernels = KernelImages(self._driver, self._context)
        self._cleanup.callback(kernels.close)
        with self._times.part("modules"):
            for digest, image in images.items():
                kernels.load(digest, image)
        free.append(self._context.memory[0])
        with self._times.part("graphs"), ThreadPoolExecutor(1, thread_name_prefix="graphs") as worker:
            made: dict[str, tuple[Program, Future[LoadedGraph]]] = {}
            for program in self.contract.programs:
                built = build_graph(self._driver, self._context, specs[program.name], self._book, kernels)
                made[program.name] = program, worker.submit(self._instantiated, built)
        self._programs = {name: (program, future.result()) for name, (program, future) in made.items()}
        free.append(self._context.memory[0])
        return {"modules": free[0] - free[1], "graphs": free[1] - free[2]}

    def _instantiated(self, built: BuiltGraph) -> LoadedGraph:
        """An executable graph, made while the next one is built."""
        self._context.make_current()
        graph = built.instantiate(self._stream)
        self._cleanup.callback(graph.close)
        return graph

    def _back(self, arena: Arena) -> None:
        """Memory for pages and rows, and zeros where a buffer begins with them."""
        for buffer in self._buffers.values():
            arena.back(buffer.region, buffer.offset + buffer.nbytes)
            if buffer.initial is Initial.ZERO and buffer.nbytes:
                start = arena.book.span(buffer.name).start
                self._driver.call("cuMemsetD8Async", start, 0, buffer.nbytes, self._stream)
        arena.freeze()

    @property
    def load_ms(self) -> dict[str, float]:
        """How long each part of loading took, beside whatever ran at the same time."""
        return {part: end - begin for part, (begin, end) in self.load_spans.items()}

    def submit(self, program: str, upload: Bytes) -> CudaFrame:
        """See `flare.device.base.Device`. Submitting beyond `max_frames` is a bug of the caller."""
        spec, graph = self._programs[program]
        self._context.make_current()
        self._flying = [frame for frame in self._flying if not frame.done()]
        slot = next((s for s in self._slots if all(frame.slot is not s for frame in self._flying)), None)
        assert slot is not None, "too many frames in flight"
        frame = CudaFrame(self._driver, slot, self._spans.next(), program, spec.completion_bytes)
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

    @property
    def book(self) -> AddressBook:
        """Where buffers are, for diagnostics."""
        return self._book

    def close(self) -> None:
        """See `flare.device.base.Device`."""
        self._cleanup.close()

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


def _read_payload(program: Program, source: TensorSource) -> GraphSpec:
    payload = program.payloads[0]
    if payload.format != PAYLOAD_FORMAT:
        raise CoreError(
            f"program {program.name}: payload format {payload.format} is not for a GPU",
            field=f"programs.{program.name}.payloads",
        )
    return decode(source.load(payload.tensor), program.name)
