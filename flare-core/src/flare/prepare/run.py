"""Preparation from names: finds the recipe, resolves the checkpoint, runs a session."""

from __future__ import annotations

from pathlib import Path

from flare.contract import DType, PreparedContract
from flare.prepare.plan import CapacityRequest
from flare.prepare.progress import Progress
from flare.prepare.session import PreparationRequest, PreparationSession
from flare.prepare.sources import resolve_checkpoint
from flare.recipes import Recipe, RecipeDescriptor, Registry, discover, load_recipe


def prepare_model(
    name: str,
    destination: Path,
    *,
    checkpoint: str | None = None,
    dtype: DType = DType.BF16,
    capacities: CapacityRequest | None = None,
    progress: Progress | None = None,
    calibrate: bool = True,
) -> PreparedContract:
    """Prepare model `name` into `destination`; returns the contract of the new core.

    `checkpoint` replaces the descriptor's URI (its pin then does not apply). Raises RecipeError,
    CheckpointError and CapacityError.
    """
    progress = progress or Progress()
    registry = discover()
    descriptor, entry = registry.find_model(name)
    recipe: Recipe = load_recipe(descriptor)
    uri = checkpoint or entry.checkpoint
    with progress.phase("Checkpoint"):
        local = resolve_checkpoint(
            uri,
            pin=None if checkpoint else entry.sha256,
            progress=progress,
            manager=registry.manager,
        )
        opened = recipe.loader.open(local)
    request = PreparationRequest(
        model=entry.name,
        recipe_name=descriptor.name,
        recipe_version=_version_of(registry, descriptor),
        checkpoint_uri=uri,
        dtype=dtype,
        capacities=capacities or CapacityRequest(),
        calibrate=calibrate,
    )
    return PreparationSession(recipe, request, progress).prepare(opened, destination)


def _version_of(registry: Registry, descriptor: RecipeDescriptor) -> str:
    row = next(row for row in registry.rows if row.descriptor == descriptor)
    return f"{row.distribution} {row.version}"
