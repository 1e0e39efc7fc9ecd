"""The pytest plugin `flare`: fixtures for the tests of a recipe package. Elsewhere it does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from flare.contract import DType
    from flare.recipes import Recipe


class TinyCheckpoints(Protocol):
    """The value of the fixture `flare_tiny_checkpoint`."""

    def __call__(self, recipe: Recipe, *, seed: int = 0) -> Path:
        """Directory of the recipe's tiny random checkpoint; written once per run and seed."""


class TinyCores(Protocol):
    """The value of the fixture `flare_core`."""

    def __call__(self, recipe: Recipe, dtype: DType | None = None) -> Path:
        """A core of the tiny checkpoint in `dtype` (float32 unless given); prepared once per run."""


@pytest.fixture(scope="session")
def flare_tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> TinyCheckpoints:
    """A function from a recipe to the directory of its tiny checkpoint."""
    # Recipes stay in the dictionary, so that an identity cannot be used again.
    written: dict[tuple[int, int], tuple[Recipe, Path]] = {}

    def make(recipe: Recipe, *, seed: int = 0) -> Path:
        key = (id(recipe), seed)
        if key not in written:
            place = tmp_path_factory.mktemp("flare") / "checkpoint"
            written[key] = (recipe, recipe.oracle.tiny_checkpoint(place, seed=seed))
        return written[key][1]

    return make


@pytest.fixture(scope="session")
def flare_core(flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory) -> TinyCores:
    """A function from a recipe to a core that was prepared, loaded and generated from
    (`flare.testing.round_trip`)."""
    made: dict[tuple[int, str], Path] = {}

    def make(recipe: Recipe, dtype: DType | None = None) -> Path:
        from flare.contract import DType
        from flare.testing.tiny_core import round_trip

        chosen = dtype or DType.F32
        key = (id(recipe), chosen.value)
        if key not in made:
            checkpoint = flare_tiny_checkpoint(recipe)
            place = tmp_path_factory.mktemp("flare") / f"tiny.{chosen.value}.core.safetensors"
            made[key] = round_trip(recipe, checkpoint, place, dtype=chosen)
        return made[key]

    return make
