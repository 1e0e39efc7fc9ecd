"""Composes every program of a core around one model."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import cast

from torch import nn

import flare_components.ops  # noqa: F401  (registers flare::*, which tracing needs)
from flare.contract import (
    BufferView,
    OperatorLibrary,
    PendingTokens,
    ProgramKind,
    TableResource,
    TableUse,
    ValueSource,
)
from flare.prepare import BufferLayout, ProgramDefinition, ProgramSet, ServingPlan
from flare_components.serving.batch import ImageEncoder
from flare_components.serving.generation import (
    ConsumingProgram,
    DecodeProgram,
    GeneratingProgram,
    PrefillProgram,
    ResumeProgram,
)
from flare_components.serving.maintenance import StartProgram, TransferProgram
from flare_components.serving.module import ProgramModule
from flare_components.serving.storage import place_storage
from flare_components.serving.vision import VisionProgram


def compose(
    plan: ServingPlan,
    model: nn.Module,
    layout: BufferLayout,
    weights: dict[str, BufferView],
    tables: Sequence[TableResource] = (),
) -> ProgramSet:
    """All programs of a decoder, and of the image encoder that it may have.

    `model` implements `Forward` and lives on the meta device; `weights` maps its parameter and buffer
    names to storage already placed in `layout`. The model finds the rows of `tables` in its batches. As
    `plan.tables` says, the host delivers them, and feeds decode programs their pending tokens; or programs
    read them, for which the model declares a history of tokens. Raises CapacityError where they cannot.
    """
    encoder = cast(ImageEncoder | None, getattr(model, "image_encoder", None))
    if (encoder is None) != (not plan.capacities.image_patches):
        raise ValueError("a model with an image encoder has an image profile in its frontend, no other has")
    storage = place_storage(layout, plan, tuple(tables), encoder)
    programs = [
        _define("start", ProgramKind.START, StartProgram(storage), 1, 0),
        _define("snapshot", ProgramKind.SNAPSHOT, TransferProgram(storage), 1, 0),
        _define("restore", ProgramKind.RESTORE, TransferProgram(storage), 1, 0),
        _define("resume", ProgramKind.RESUME, ResumeProgram(storage, model), 1, 0, weights),
    ]
    for tokens in plan.capacities.prefill_tokens:
        program = PrefillProgram(storage, model, tokens)
        programs.append(_define(f"prefill.{tokens}", ProgramKind.PREFILL, program, 1, tokens, weights))
    for lanes in plan.capacities.decode_lanes:
        decode = DecodeProgram(storage, model, lanes)
        programs.append(_define(f"decode.{lanes}", ProgramKind.DECODE, decode, lanes, lanes, weights))
    for patches in plan.capacities.image_patches:
        vision = VisionProgram(storage, model, patches)
        programs.append(_define(f"vision.{patches}", ProgramKind.VISION, vision, 1, patches, weights))
    version = importlib.metadata.version("flare-components")
    major, minor = version.split(".")[:2]
    return ProgramSet(
        buffers=layout.buffers,
        programs=tuple(programs),
        operator_library=OperatorLibrary(
            module="flare_components.ops",
            distribution="flare-components",
            minimum=version,
            below=f"{major}.{int(minor) + 1}",
        ),
        tables=tuple(tables),
        constants={} if storage.resident is None else storage.resident.constants,
    )


def _define(
    name: str,
    kind: ProgramKind,
    module: ProgramModule,
    lanes: int,
    tokens: int,
    weights: dict[str, BufferView] | None = None,
) -> ProgramDefinition:
    generating = isinstance(module, GeneratingProgram)
    uses = [
        TableUse(table=binding.table, delivery="host_rows")
        for binding in module.bindings
        if binding.table is not None
    ]
    if isinstance(module, ConsumingProgram):
        uses += [TableUse(table=name, delivery="resident") for name in module.contents]
    fed = any(binding.source is ValueSource.PENDING_TOKENS for binding in module.bindings)
    pending = PendingTokens.HOST if fed else PendingTokens.DEVICE
    return ProgramDefinition(
        name=name,
        kind=kind,
        lanes=lanes,
        tokens=tokens,
        module=module,
        views={**module.views, **{f"model.{key}": view for key, view in (weights or {}).items()}},
        bindings=module.bindings,
        completion=module.completion if generating else (),
        pending=pending if kind is ProgramKind.DECODE else PendingTokens.NONE,
        rows_per_lane=int(kind is not ProgramKind.VISION),
        tables=tuple(uses),
    )
