"""Preparing the cores that tests use, and the cache of real ones."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flare.contract import DType
from flare.prepare import CapacityRequest, Checkpoint
from flare.prepare.progress import Progress
from flare.prepare.run import prepare_model
from flare.prepare.session import PreparationRequest, PreparationSession
from flare.prepare.sources import resolve_checkpoint
from flare.recipes import discover
from flare_recipe_smollm.recipe import RECIPE

MODEL = "smollm2-135m"
ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache"
TINY = CapacityRequest(context=256, concurrency=4, prefill_chunk_size=64, page_tokens=16, snapshot_rows=2)
# A text of 100 tokens fits into one chunk; rows and pages can be counted otherwise when a core is loaded.
HYBRID = CapacityRequest(context=256, concurrency=3, prefill_chunk_size=112, page_tokens=16, snapshot_rows=24)


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The directory `name` of this run, filled by `make` in the first process of the run that asks for it."""
    base = factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = run / name
    with (run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            unfinished = run / f"{name}.unfinished"
            unfinished.mkdir(exist_ok=True)
            make(unfinished)
            unfinished.rename(place)
    return place


def tiny_request(dtype: DType = DType.F32, capacities: CapacityRequest = TINY) -> PreparationRequest:
    """A request for the recipe's tiny checkpoint."""
    return PreparationRequest(
        model="tiny",
        recipe_name="smollm",
        recipe_version="0",
        checkpoint_uri="tiny",
        dtype=dtype,
        capacities=capacities,
    )


def prepare_tiny(checkpoint: Path, dtype: DType, destination: Path | None = None) -> Path:
    """Prepare and calibrate the tiny checkpoint, beside it unless told otherwise."""
    path = destination or checkpoint.parent / f"tiny.{dtype.value}.core.safetensors"
    session = PreparationSession(RECIPE, tiny_request(dtype), Progress())
    session.prepare(RECIPE.loader.open(checkpoint), path)
    return path


def published_checkpoint() -> Checkpoint:
    """The checkpoint that the descriptor pins, opened."""
    _, entry = discover().find_model(MODEL)
    local = resolve_checkpoint(entry.checkpoint, pin=entry.sha256, progress=Progress())
    return RECIPE.loader.open(local)


def cached_core(dtype: DType, capacities: CapacityRequest, *, calibrate: bool) -> Path:
    """A core of the real model from `.cache/`, prepared when the sources or the request changed.

    Older cores of the same precision are deleted: each is hundreds of megabytes.
    """
    CACHE.mkdir(exist_ok=True)
    key = _digest(repr((dtype, capacities, calibrate)))
    path = CACHE / f"{MODEL}.{dtype.value}.{key}.core.safetensors"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for stale in CACHE.glob(f"{MODEL}.{dtype.value}.*.core.safetensors"):
                stale.unlink()
            prepare_model(MODEL, path, dtype=dtype, capacities=capacities, calibrate=calibrate)
    return path


def _digest(request: str) -> str:
    digest = hashlib.sha256(request.encode())
    trees = ("flare-core/src", "flare-components/src", "examples/flare-recipe-smollm/src")
    for file in sorted(file for tree in trees for file in (ROOT / tree).rglob("*.py")):
        digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    digest.update((ROOT / "constraints.txt").read_bytes())
    return digest.hexdigest()[:16]
