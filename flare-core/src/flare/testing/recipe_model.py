"""Checks of a recipe's model against its tiny checkpoint: meta device, tensors, state, retained modules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flare.contract import DType, Frontend, ProgramKind, SavedHiddenScheme, page_geometry, row_geometry
from flare.frontend import FrontendAssets, Prompts
from flare.prepare import BufferLayout
from flare.prepare.plan import CapacityRequest, ServingPlan, plan_serving
from flare.prepare.trace import trace
from flare.prepare.weights import check_targets, model_tensors, place_weights, weight_bytes
from flare.testing.failure import blaming, require
from flare.testing.retained import check_retained

if TYPE_CHECKING:
    from flare.prepare import Checkpoint, ProgramDefinition
    from flare.recipes import BuiltModel, FrontendFiles, Recipe


def check_model(recipe: Recipe, checkpoint: Path, dtype: DType) -> None:
    """All of these checks, in the order of preparation. Raises AssertionError `part: problem`."""
    with blaming("loader"):
        opened = recipe.loader.open(checkpoint)
        config = recipe.loader.config(opened)
    with blaming("meta device"):
        built = recipe.replacements.build(config, dtype)
    check_meta_device(built)
    check_tensor_map(recipe, built, opened, config)
    frontend = check_frontend(recipe, opened, config)
    plan = check_state(recipe, built, config, dtype, frontend=frontend.frontend)
    check_programs(recipe, built, plan)


def check_meta_device(built: BuiltModel) -> None:
    """Every tensor of the model is on the meta device; computed ones come as constants with storage."""
    tensors = model_tensors(built)
    stray = sorted(name for name, tensor in tensors.items() if tensor.device.type != "meta")
    require(
        not stray,
        "meta device",
        f"{', '.join(stray)} has storage; build under torch.device('meta') and return what is computed "
        "as BuiltModel.constants",
    )
    for name, constant in built.constants.items():
        require(name in tensors, "meta device", f"constant {name} is no tensor of the model")
        require(constant.device.type != "meta", "meta device", f"constant {name} has no storage")
        require(
            constant.shape == tensors[name].shape,
            "meta device",
            f"constant {name} has shape {tuple(constant.shape)}, the model {tuple(tensors[name].shape)}",
        )


def check_tensor_map(recipe: Recipe, built: BuiltModel, checkpoint: Checkpoint, config: Any) -> None:
    """Complete both ways, and every assembled shape is the model's."""
    with blaming("tensor map"):
        mapping = recipe.loader.tensor_map(config)
        mapping.check(checkpoint)
        check_targets(built, mapping)
    for name, tensor in model_tensors(built).items():
        if name in mapping.rules:
            shape = mapping.info(name, checkpoint).shape
            require(
                shape == tuple(tensor.shape),
                "tensor map",
                f"{name}: the checkpoint gives {shape}, the model has {tuple(tensor.shape)}",
            )


def check_frontend(recipe: Recipe, checkpoint: Checkpoint, config: Any) -> FrontendFiles:
    """Tokenizer and template can be used, end tokens exist, and the oracle's prompt has tokens."""
    with blaming("frontend"):
        files = recipe.frontend.assets(checkpoint, config, recipe.sampling)
        frontend = files.frontend
        template = frontend.template_asset
        prompts = Prompts(
            FrontendAssets(
                frontend,
                files.assets[frontend.tokenizer_asset],
                None if template is None else files.assets[template].decode(),
            )
        )
        prompts.from_text(recipe.oracle.prompt())
    require(bool(frontend.eos_token_ids), "frontend", "no end token: every answer would run to its limit")
    for token in frontend.eos_token_ids:
        known = token < frontend.vocab_size and prompts.tokenizer.piece(token) is not None
        require(known, "frontend", f"end token {token} is not in the vocabulary")
    return files


def check_state(
    recipe: Recipe, built: BuiltModel, config: Any, dtype: DType, *, frontend: Frontend
) -> ServingPlan:
    """Pages and rows follow from the schemes, and capacities from them; returns a small plan."""
    require(built.context >= 2, "capacities", f"a context of {built.context} holds no prompt and answer")
    request = CapacityRequest(
        context=min(256, built.context), concurrency=2, prefill_chunk_size=32, page_tokens=16, snapshot_rows=1
    )
    with blaming("cache schemes"):
        schemes = recipe.cache_schemes.schemes(config, dtype)
        page_geometry(schemes, request.page_tokens or recipe.page_tokens)
        row_geometry(schemes)
    saved = sum(isinstance(scheme, SavedHiddenScheme) for scheme in schemes)
    require(saved == 1, "cache schemes", f"{saved} saved hidden vectors, a model has one")
    require(
        len(schemes) > saved, "cache schemes", "nothing but the saved hidden vector: no state keeps the text"
    )
    with blaming("capacities"):
        return plan_serving(
            request,
            schemes=schemes,
            dtype=dtype,
            vocab_size=frontend.vocab_size,
            model_context=built.context,
            weight_bytes=weight_bytes(built),
            weight_copies=1.0,
            prefill_chunk=512,
            images=frontend.images,
        )


def check_programs(recipe: Recipe, built: BuiltModel, plan: ServingPlan) -> None:
    """The smallest prefill and the largest decode program can be traced, and each runs every retained module,
    together with the smallest vision program of a model that has one."""
    layout = BufferLayout()
    with blaming("programs"):
        composed = recipe.programs.compose(plan, built.module, layout, place_weights(built, layout))
    prefill = [program for program in composed.programs if program.kind is ProgramKind.PREFILL]
    decode = [program for program in composed.programs if program.kind is ProgramKind.DECODE]
    require(bool(prefill and decode), "programs", "there is no prefill or no decode program")
    vision = [program for program in composed.programs if program.kind is ProgramKind.VISION]
    for program in (prefill[0], decode[-1]):
        _check_retained(built, [program, *vision[:1]])


def _check_retained(built: BuiltModel, programs: Sequence[ProgramDefinition]) -> None:
    def run() -> None:
        with blaming("programs"):
            for program in programs:
                trace(program)

    try:
        check_retained(built, run)
    except AssertionError as error:
        names = " and ".join(program.name for program in programs)
        raise AssertionError(f"program {names}: {error}") from error
