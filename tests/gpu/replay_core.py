"""Prepares a core on this GPU and records what torch's own replay of the captured graphs computes.

usage: replay_core.py DIRECTORY tiny|smollm [relocatable] [xqa]    writes cuda.core and expected.json there

With xqa decode attention is FlashInfer's, whatever is faster.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from replay_steps import OPTIONS, replay
from tiny_core import TINY

from flare.contract import DType, PreparedContract, Program, Region
from flare.corefile import CoreReader, read_contract
from flare.device.base import Bytes
from flare.device.cuda.graph_spec import KernelNode, decode
from flare.device.cuda.torch_pool import buffer_tensor
from flare.device.sizing import chosen_counts, sized
from flare.prepare import cuda_target, resolve_checkpoint
from flare.prepare.cuda_capture import CaptureRig
from flare.prepare.diagnostics import Diagnostics
from flare.prepare.progress import Progress
from flare.prepare.session import PreparationRequest, PreparationSession
from flare.prepare.targets import choose_target
from flare.prepare.weights import raw_bytes, stream_weights
from flare_recipe_smollm.recipe import RECIPE

SMOLLM = "random://llama?layers=30&hidden=576&heads=9&kv_heads=3&ffn=1536&vocab=49152&context=8192"
GEOMETRIES = {"smollm": f"{SMOLLM}&tie_word_embeddings=true"}


class Kept:
    """What the target made: graphs by program, their rig, and an arena that waits for `close`."""

    def __init__(self) -> None:
        self.graphs: dict[str, torch.cuda.CUDAGraph] = {}
        self.rig: Any = None
        rig_class, arena_class = CaptureRig, cuda_target.Arena
        described = rig_class._described

        def describe(rig: Any, name: str, graph: torch.cuda.CUDAGraph) -> Any:
            self.rig = self.rig or rig
            if rig is self.rig:  # and not the one of the second capture, elsewhere
                self.graphs[name] = graph
            return described(rig, name, graph)

        class Arena(arena_class):  # type: ignore[misc,valid-type]
            def close(self) -> None:
                """Not yet: the graphs are still to be replayed."""

        self._close = arena_class.close
        rig_class._described, cuda_target.Arena = describe, Arena

    def close(self) -> None:
        torch.cuda.synchronize()
        self.graphs.clear()
        self._close(self.rig.arena)


class TorchFrame:
    """A program that is done."""

    elapsed_us = 0.0

    def __init__(self, completion: Bytes) -> None:
        self.completion = completion

    def done(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> bool:
        return True


class TorchDevice:
    """The captured graphs, replayed by torch."""

    max_frames = 1
    tables: ClassVar[dict[str, Bytes]] = {}

    def __init__(self, contract: PreparedContract, kept: Kept) -> None:
        self.contract = sized(contract, chosen_counts(contract, OPTIONS))
        self._programs: dict[str, tuple[Program, torch.cuda.CUDAGraph]] = {
            program.name: (program, kept.graphs[program.name]) for program in contract.programs
        }
        self._arena = kept.rig.arena
        self._names = {b.region: b.name for b in contract.buffers}
        self._nbytes = {b.name: b.nbytes for b in self.contract.buffers}

    def submit(self, program: str, upload: Bytes) -> TorchFrame:
        spec, graph = self._programs[program]
        target = self._tensor(self._names[Region.UPLOAD])
        target[: spec.upload_bytes].copy_(torch.from_numpy(upload[: spec.upload_bytes]))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        return TorchFrame(self.read(self._names[Region.COMPLETION])[: spec.completion_bytes])

    def read(self, buffer: str) -> Bytes:
        data: Bytes = self._tensor(buffer).cpu().numpy()
        return data

    def write(self, buffer: str, contents: Bytes) -> None:
        self._tensor(buffer).copy_(torch.from_numpy(np.ascontiguousarray(contents)))
        torch.cuda.synchronize()

    def _tensor(self, buffer: str) -> torch.Tensor:
        return buffer_tensor(self._arena, buffer)[: self._nbytes[buffer]]


class WatchedSession(PreparationSession):
    """Replays torch's graphs, with the weights of the checkpoint, once the contract is known."""

    kept: Kept
    expected: dict[str, Any]

    def _contract(self, checkpoint: Any, built: Any, *rest: Any) -> PreparedContract:
        contract = super()._contract(checkpoint, built, *rest)
        names = {buffer.tensor: buffer.name for buffer in contract.buffers if buffer.tensor}
        mapping = self.recipe.loader.tensor_map(self.recipe.loader.config(checkpoint))
        for name, tensor in stream_weights(built, mapping, checkpoint):
            data = torch.frombuffer(bytearray(raw_bytes(tensor)), dtype=torch.uint8)
            buffer_tensor(self.kept.rig.arena, names[name])[: len(data)].copy_(data)
        self.expected, _ = replay(TorchDevice(contract, self.kept))
        self.kept.close()
        return contract


def described(core: Path) -> dict[str, Any]:
    """Of every program: whether it can be moved, and what its graph holds."""
    found = {}
    with CoreReader(core) as reader:
        for program in read_contract(reader).programs:
            spec = decode(reader.load(program.payloads[0].tensor), program.name)
            kernels = [node for node in spec.nodes if isinstance(node, KernelNode)]
            found[program.name] = {
                "relocatable": spec.relocatable,
                "immovable": spec.immovable,
                "nodes": len(spec.nodes),
                "packed": sum(node.packed for node in kernels),
                "programmatic_edges": sum(edge.programmatic for edge in spec.edges),
                "xqa": sum("mha" in node.function for node in kernels),
                "images": len(spec.images),
            }
    return found


def choose_xqa() -> None:
    """The only candidate for decode attention. Fails where it cannot be built."""
    from flare_components.ops.cuda import attention_choice, attention_xqa, tuning

    only = tuning.Candidate(attention_xqa.name(), attention_xqa.attend_xqa)
    attention_choice.candidates = lambda operands: [only]


def main(directory: Path, geometry: str, relocatable: bool) -> None:
    began = time.monotonic()
    if geometry == "tiny":
        source: Any = RECIPE.oracle.tiny_checkpoint(directory / "checkpoint")
    else:
        source = resolve_checkpoint(GEOMETRIES[geometry], pin=None, progress=Progress())
    target = choose_target("cuda", "flare-recipe-smollm", Diagnostics(relocatable=relocatable))
    kept = Kept()
    request = PreparationRequest(
        model=geometry,
        recipe_name="smollm",
        recipe_version="0",
        checkpoint_uri=geometry,
        dtype=DType.BF16,
        capacities=TINY,
    )
    session = WatchedSession(RECIPE, request, Progress(), target)
    session.kept = kept
    core = directory / "cuda.core"
    session.prepare(RECIPE.loader.open(source), core)
    found = session.expected | {"graphs": described(core), "seconds": round(time.monotonic() - began, 1)}
    (directory / "expected.json").write_text(json.dumps(found))


if __name__ == "__main__":
    if "xqa" in sys.argv[3:]:
        choose_xqa()
    main(Path(sys.argv[1]), sys.argv[2], "relocatable" in sys.argv[3:])
