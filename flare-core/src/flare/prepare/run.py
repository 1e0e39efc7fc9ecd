"""Preparation from names: finds the recipe, resolves the checkpoint, runs a session."""

from __future__ import annotations

from pathlib import Path

from flare.contract import DType, PreparedContract
from flare.contract.identity import RecipePackage
from flare.prepare.diagnostics import Diagnostics
from flare.prepare.plan import CapacityRequest
from flare.prepare.progress import Progress
from flare.prepare.session import PreparationRequest, PreparationSession
from flare.prepare.sources import resolve_checkpoint
from flare.prepare.targets import choose_target
from flare.recipes import Recipe, discover, load_recipe


def prepare_model(
    name: str,
    destination: Path,
    *,
    checkpoint: str | None = None,
    dtype: DType = DType.BF16,
    capacities: CapacityRequest | None = None,
    progress: Progress | None = None,
    calibrate: bool = True,
    device: str = "cpu",
    diagnostics: Diagnostics | None = None,
) -> PreparedContract:
    """Prepare model `name` into `destination`; returns the contract of the new core.

    `checkpoint` replaces the descriptor's URI (its pin then does not apply); `device` is one of
    `flare.prepare.targets.TARGETS`, which `diagnostics` prepares differently. Raises RecipeError,
    CheckpointError, PluginError, CapacityError and DeviceError.
    """
    progress = progress or Progress()
    chosen = discover().choose(name)
    descriptor, entry = chosen.descriptor, chosen.model
    assert descriptor is not None
    assert entry is not None
    # Before a model library is imported: a GPU's target watches everything that uses the GPU.
    target = choose_target(device, chosen.distribution, diagnostics)
    recipe: Recipe = load_recipe(descriptor)
    uri = checkpoint or entry.checkpoint
    with progress.phase("Checkpoint"):
        local = resolve_checkpoint(uri, pin=None if checkpoint else entry.sha256, progress=progress)
        opened = recipe.loader.open(local)
    request = PreparationRequest(
        model=entry.name,
        recipe_name=descriptor.name,
        recipe_version=f"{chosen.distribution} {chosen.version}",
        checkpoint_uri=uri,
        dtype=dtype,
        capacities=capacities or CapacityRequest(),
        calibrate=calibrate,
        recipe_package=RecipePackage(
            distribution=chosen.distribution, version=chosen.version, descriptor=descriptor.digest
        ),
    )
    return PreparationSession(recipe, request, progress, target).prepare(opened, destination)
