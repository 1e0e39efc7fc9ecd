"""The preparation session: from a recipe and a checkpoint to a sealed core file, in order.

Plan memory, export every program for the target, stream weights into the file, load the unsealed file
on the device, measure program costs, record the oracle, seal. Nothing that does not fit gets as far as
loading.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flare.contract import (
    FORMAT_VERSION,
    DType,
    Identity,
    Oracle,
    Payload,
    PreparedContract,
    Program,
    Provenance,
)
from flare.contract.identity import RecipePackage
from flare.corefile import CoreWriter, Role, TensorSpec, check_references
from flare.device import load_device
from flare.device.torch_types import CONTRACT_DTYPES
from flare.prepare.calibrate import MEASURED_KINDS, measure_costs, record_oracle
from flare.prepare.cpu_target import CpuTarget
from flare.prepare.definition import ProgramSet
from flare.prepare.image_sizes import bounded
from flare.prepare.input_rounding import input_noise
from flare.prepare.layout import BufferLayout
from flare.prepare.plan import CapacityRequest, ServingPlan, plan_serving
from flare.prepare.progress import Progress
from flare.prepare.table_delivery import check_delivery
from flare.prepare.target import ExportedPrograms, PreparationTarget, other_bytes, payload_name
from flare.prepare.weights import (
    check_targets,
    model_tensors,
    place_weights,
    raw_bytes,
    stream_weights,
    table_specs,
    weight_bytes,
)

if TYPE_CHECKING:
    from flare.prepare.checkpoint import Checkpoint
    from flare.prepare.tensor_map import TensorMap
    from flare.recipes.recipe import BuiltModel, FrontendFiles, Recipe

_HEADER_BUDGET = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PreparationRequest:
    """What to prepare. `model`, `checkpoint_uri` and what begins with `recipe` are provenance."""

    model: str
    recipe_name: str
    recipe_version: str
    checkpoint_uri: str
    dtype: DType = DType.BF16
    capacities: CapacityRequest = field(default_factory=CapacityRequest)
    calibrate: bool = True
    recipe_package: RecipePackage | None = None


class PreparationSession:
    """Prepares one core for `target`; the CPU when there is none."""

    def __init__(
        self,
        recipe: Recipe,
        request: PreparationRequest,
        progress: Progress,
        target: PreparationTarget | None = None,
    ) -> None:
        # What the recipe chooses is part of what the core is: its fingerprint must tell.
        page_tokens = request.capacities.page_tokens or recipe.page_tokens
        self.recipe = recipe
        self.request = replace(request, capacities=replace(request.capacities, page_tokens=page_tokens))
        self.progress = progress
        self.target: PreparationTarget = CpuTarget() if target is None else target

    def prepare(self, checkpoint: Checkpoint, destination: Path) -> PreparedContract:
        """Write the core to `destination` (replaced only by a complete file); returns its contract.

        Raises CheckpointError (unknown, missing or misshapen tensors), CapacityError (does not fit), and
        DeviceError (the target cannot run a program).
        """
        config = self.recipe.loader.config(checkpoint)
        with self.progress.phase("Plan"):
            built = self.recipe.replacements.build(config, self.request.dtype)
            mapping = self.recipe.loader.tensor_map(config)
            mapping.check(checkpoint)
            check_targets(built, mapping)
            frontend = self.recipe.frontend.assets(checkpoint, config, self.recipe.sampling)
            plan, programs = self._composed(config, built, frontend)
            frontend = _with_bounded_images(frontend, plan)
        for line in mapping.left_out(checkpoint):
            self.progress.note(line)
        exported = self.target.export(programs, self.progress)
        payloads = {**exported.payloads, **exported.documents}
        specs = self._tensor_specs(built, programs, frontend, payloads)
        specs += table_specs(programs, mapping, checkpoint)
        with CoreWriter(destination, specs, header_budget_bytes=_HEADER_BUDGET) as writer:
            self._write_weights(writer, built, mapping, checkpoint)
            for name, rule in mapping.tables.items():
                with self.progress.phase(f"Table {name}"):
                    writer.write(name, rule.pieces(checkpoint))
            for name, tensor in programs.constants.items():
                writer.write(name, raw_bytes(tensor))
            for name, data in {**frontend.assets, **payloads}.items():
                writer.write(name, data)
            contract = self._contract(checkpoint, built, plan, programs, exported, frontend)
            if self.request.calibrate:
                contract = self._calibrated(contract, writer, frontend, programs)
            check_references(contract, writer.tensors)
            writer.seal(contract.model_dump_json())
        return contract

    def _composed(
        self, config: Any, built: BuiltModel, frontend: FrontendFiles
    ) -> tuple[ServingPlan, ProgramSet]:
        """The plan and its programs. A bound on memory is kept with all that programs have beside weights and
        blocks, which is known once there are programs, and does not depend on the number of pages."""
        asked = self.request.capacities
        plan = self._plan(config, built, frontend, replace(asked, memory=None))
        programs = self._programs(plan, built)
        if asked.memory is not None:
            other = other_bytes(programs.buffers, self.target.table_copies)
            plan = self._plan(config, built, frontend, asked, other)
            programs = self._programs(plan, built)
        return plan, programs

    def _programs(self, plan: ServingPlan, built: BuiltModel) -> ProgramSet:
        layout = BufferLayout()
        programs = self.recipe.programs.compose(plan, built.module, layout, place_weights(built, layout))
        check_delivery(programs, plan.tables)
        return programs

    def _write_weights(
        self, writer: CoreWriter, built: BuiltModel, mapping: TensorMap, checkpoint: Checkpoint
    ) -> None:
        with self.progress.phase("Weights", total_bytes=weight_bytes(built)) as bar:
            for name, tensor in stream_weights(built, mapping, checkpoint):
                writer.write(name, raw_bytes(tensor))
                bar.advance(tensor.nbytes)

    def _plan(
        self,
        config: Any,
        built: BuiltModel,
        frontend: FrontendFiles,
        capacities: CapacityRequest,
        other_bytes: int = 0,
    ) -> ServingPlan:
        return plan_serving(
            capacities,
            schemes=self.recipe.cache_schemes.schemes(config, self.request.dtype),
            dtype=self.request.dtype,
            vocab_size=frontend.frontend.vocab_size,
            model_context=built.context,
            weight_bytes=weight_bytes(built),
            weight_copies=self.target.weight_copies,
            prefill_chunk=self.target.prefill_chunk,
            images=frontend.frontend.images,
            other_bytes=other_bytes,
        )

    def _tensor_specs(
        self,
        built: BuiltModel,
        programs: ProgramSet,
        frontend: FrontendFiles,
        payloads: Mapping[str, bytes],
    ) -> list[TensorSpec]:
        specs = [
            TensorSpec(name, CONTRACT_DTYPES[tensor.dtype], tuple(tensor.shape), Role.WEIGHT)
            for name, tensor in {**model_tensors(built), **programs.constants}.items()
        ]
        specs += [TensorSpec.document(name, len(data)) for name, data in frontend.assets.items()]
        specs += [TensorSpec.document(name, len(data), Role.PROGRAM) for name, data in payloads.items()]
        return specs

    def _contract(
        self,
        checkpoint: Checkpoint,
        built: BuiltModel,
        plan: ServingPlan,
        programs: ProgramSet,
        exported: ExportedPrograms,
        frontend: FrontendFiles,
    ) -> PreparedContract:
        versions = {
            name: importlib.metadata.version(name)
            for name in ("flare-core", programs.operator_library.distribution, "torch", "transformers")
        }
        versions |= self.target.versions()
        return PreparedContract(
            identity=Identity(
                format_version=FORMAT_VERSION,
                fingerprint=_fingerprint(checkpoint.fingerprint(), self.request, versions),
                device=self.target.device,
                instruction_set=self.target.instruction_set,
                operator_library=exported.operator_library,
                versions=versions,
            ),
            provenance=Provenance(
                model=self.request.model,
                recipe=self.request.recipe_name,
                recipe_version=self.request.recipe_version,
                recipe_package=self.request.recipe_package,
                checkpoint=self.request.checkpoint_uri,
                created=datetime.now(UTC).isoformat(timespec="seconds"),
                retained_modules=tuple(sorted(f"{c.__module__}.{c.__qualname__}" for c in built.retained)),
                replaced_modules=dict(built.replaced),
                memory_ledger={
                    **exported.ledger,
                    "pages": plan.capacities.pages * plan.page.nbytes,
                    "rows": plan.capacities.rows * plan.row.nbytes,
                },
                tuned=exported.tuned,
            ),
            capacities=plan.capacities,
            schemes=plan.schemes,
            page=plan.page,
            row=plan.row,
            buffers=exported.buffers,
            tables=programs.tables,
            programs=tuple(
                Program(
                    name=definition.name,
                    kind=definition.kind,
                    lanes=definition.lanes,
                    tokens=definition.tokens,
                    bindings=definition.bindings,
                    completion=definition.completion,
                    pending=definition.pending,
                    rows_per_lane=definition.rows_per_lane,
                    tables=definition.tables,
                    payloads=(Payload(rank=0, format=exported.format, tensor=payload_name(definition.name)),),
                )
                for definition in programs.programs
            ),
            frontend=frontend.frontend,
        )

    def _calibrated(
        self,
        contract: PreparedContract,
        writer: CoreWriter,
        frontend: FrontendFiles,
        programs: ProgramSet,
    ) -> PreparedContract:
        with self.progress.phase("Load"):
            device = load_device(contract, writer)
        try:
            steps = sum(program.kind in MEASURED_KINDS for program in contract.programs)
            with self.progress.phase("Measure programs", total_steps=steps) as bar:
                costs = measure_costs(device, advance=lambda: bar.advance(1))
            prompt = self._oracle_prompt(frontend, contract)
            with self.progress.phase("Record oracle"):
                oracle = record_oracle(device, prompt, input_noise=input_noise(contract, writer))
            self.target.examine(device, programs, prompt, self.progress)
        finally:
            device.close()
        return _with_measurements(contract, costs, oracle)

    def _oracle_prompt(self, frontend: FrontendFiles, contract: PreparedContract) -> list[int]:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_buffer(frontend.assets[frontend.frontend.tokenizer_asset])
        ids = tokenizer.encode(self.recipe.oracle.prompt(), add_special_tokens=False).ids
        return list(ids[: contract.capacities.context - 1])


def _with_bounded_images(frontend: FrontendFiles, plan: ServingPlan) -> FrontendFiles:
    images = bounded(frontend.frontend.images, plan.capacities.image_patches)
    return replace(frontend, frontend=frontend.frontend.model_copy(update={"images": images}))


def _with_measurements(
    contract: PreparedContract, costs: Mapping[str, float], oracle: Oracle
) -> PreparedContract:
    programs = tuple(
        program.model_copy(update={"cost_us": costs[program.name]}) if program.name in costs else program
        for program in contract.programs
    )
    provenance = contract.provenance.model_copy(update={"oracle": oracle})
    return contract.model_copy(update={"programs": programs, "provenance": provenance})


def _fingerprint(checkpoint: str, request: PreparationRequest, versions: Mapping[str, str]) -> str:
    parts = [checkpoint, request.dtype.value, repr(request.capacities), repr(sorted(versions.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
