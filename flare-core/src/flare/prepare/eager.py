"""Programs run from Python, as their modules are written, beside a loaded core: do the two agree?

A difference shows a fault of tracing, passes, compilation, capture or export, and of which program. Requests
are never served this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from flare.contract import BufferView, DType, PreparedContract, Program, ProgramKind, Region
from flare.device.base import Bytes, Device, Frame
from flare.device.direct import DirectRequest, DirectRunner, Drawn
from flare.errors import DeviceError
from flare.prepare.cuda_tensors import ViewTensors, materialised
from flare.prepare.definition import ProgramDefinition
from flare.verify.bounds import logprob_bound
from flare.verify.comparison import Comparison, compare

_SEED = 1


@dataclass(frozen=True)
class EagerFrame:
    """See `flare.device.base.Frame`; done from the start."""

    completion: Bytes
    elapsed_us: float = 0.0
    gap_us: float = 0.0

    def done(self) -> bool:
        """True."""
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """True."""
        return True


class EagerDevice:
    """`device`, but that programs in `eager` run their modules on its memory, which `tensors` gives.

    `where` is the torch device of that memory. One program is in flight at a time.
    """

    max_frames = 1

    def __init__(
        self,
        device: Device,
        programs: Mapping[str, ProgramDefinition],
        tensors: ViewTensors,
        where: torch.device,
        eager: frozenset[str],
    ) -> None:
        self.contract: PreparedContract = device.contract
        self.ledger, self.tables, self.load_spans = device.ledger, device.tables, device.load_spans
        self.tokenizer = device.tokenizer
        self.read_blocks, self.write_blocks, self.close = (
            device.read_blocks,
            device.write_blocks,
            device.close,
        )
        self._device, self._definitions, self._tensors = device, programs, tensors
        self._where, self._eager = where, eager
        self._specs = {program.name: program for program in self.contract.programs}

    @property
    def growth(self) -> int | None:
        """The device's own."""
        return self._device.growth

    def submit(self, program: str, upload: Bytes) -> Frame:
        """See `Device.submit`; an eager program has run when this returns."""
        if program not in self._eager:
            return self._device.submit(program, upload)
        spec, definition = self._specs[program], self._definitions[program]
        self._window(Region.UPLOAD, spec.upload_bytes).copy_(torch.from_numpy(upload[: spec.upload_bytes]))
        with torch.inference_mode(), self._where, materialised((definition,), self._tensors):
            definition.module()
        completion = self._window(Region.COMPLETION, spec.completion_bytes).cpu()
        return EagerFrame(completion.numpy().copy())

    def _window(self, region: Region, nbytes: int) -> torch.Tensor:
        (buffer,) = (b.name for b in self.contract.buffers if b.region is region)
        return self._tensors.view(BufferView(buffer=buffer, dtype=DType.U8, shape=(nbytes,)))


@dataclass(frozen=True)
class Agreement:
    """How far what a program draws from Python is from what it draws as captured, and how far it may be."""

    program: str
    found: Comparison
    bound: float


def compare_programs(
    device: Device,
    programs: Sequence[ProgramDefinition],
    tensors: ViewTensors,
    where: torch.device,
    prompt: Sequence[int],
) -> Iterator[Agreement]:
    """Draw with every program that draws, and with the one that begins requests, in both ways; everything
    before is the captured programs' in both. Raises DeviceError naming a program that is too far off."""
    definitions = {definition.name: definition for definition in programs}
    for program in device.contract.programs:
        if program.kind not in _SCENES:
            continue
        draws = [
            _drawn(EagerDevice(device, definitions, tensors, where, eager), program, prompt)
            for eager in (frozenset[str](), frozenset({program.name}))
        ]
        found = compare(*draws)
        bound = logprob_bound(device.contract, draws[0]).nats
        if found.largest > bound:
            raise DeviceError(
                f"program {program.name}: what it draws from Python and as captured differs by "
                f"{found.largest:.3g} nats, more than rounding explains ({bound:.3g}); prepare with "
                "--no-compile or --no-trace to see which step does it",
                field=program.name,
            )
        yield Agreement(program.name, found, bound)


def _drawn(device: EagerDevice, program: Program, prompt: Sequence[int]) -> list[Drawn]:
    runner = DirectRunner(device)
    requests = _SCENES[program.kind](runner, program, prompt)
    return [request.draws[-1] for request in requests]


def _begin(runner: DirectRunner, slot: int, prompt: Sequence[int]) -> DirectRequest:
    return runner.start(slot, prompt, seed=_SEED, logprobs=runner.contract.capacities.logprobs)


def _smallest_prefill(runner: DirectRunner) -> Program:
    return runner.contract.of_kind(ProgramKind.PREFILL)[0]


def _prefilled(
    runner: DirectRunner, program: Program, slot: int, prompt: Sequence[int], *, sample: bool
) -> DirectRequest:
    """A request that has consumed as much of the repeated prompt as `program` takes."""
    tokens = min(program.tokens, runner.contract.capacities.context - 2)
    text = [prompt[(slot + index) % len(prompt)] for index in range(tokens)]
    request = _begin(runner, slot, text)
    runner.prefill(request, text, sample=sample, name=program.name)
    return request


def _prefill_scene(runner: DirectRunner, program: Program, prompt: Sequence[int]) -> list[DirectRequest]:
    return [_prefilled(runner, program, 0, prompt, sample=True)]


def _decode_scene(runner: DirectRunner, program: Program, prompt: Sequence[int]) -> list[DirectRequest]:
    contract = runner.contract
    affordable = (contract.capacities.pages - 1) // contract.pages_per_request
    lanes = min(program.lanes, contract.capacities.concurrency, affordable)
    first = _smallest_prefill(runner)
    requests = [_prefilled(runner, first, slot, prompt, sample=True) for slot in range(lanes)]
    runner.decode([*requests, *[None] * (program.lanes - lanes)], program.name)
    return requests


def _resume_scene(runner: DirectRunner, program: Program, prompt: Sequence[int]) -> list[DirectRequest]:
    request = _prefilled(runner, _smallest_prefill(runner), 0, prompt, sample=False)
    runner.resume(request, program.name)
    return [request]


def _start_scene(runner: DirectRunner, program: Program, prompt: Sequence[int]) -> list[DirectRequest]:
    return [_prefilled(runner, _smallest_prefill(runner), 0, prompt, sample=True)]


_SCENES = {
    ProgramKind.PREFILL: _prefill_scene,
    ProgramKind.DECODE: _decode_scene,
    ProgramKind.RESUME: _resume_scene,
    ProgramKind.START: _start_scene,
}
