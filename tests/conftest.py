"""Prepared cores that many tests share. Tiny ones are made once per run, real ones once per source tree."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from prepared_cores import HYBRID, cached_core, made_once, prepare_tiny, published_checkpoint

from flare.contract import DType
from flare.prepare import CapacityRequest, Checkpoint
from flare.recipes import Recipe
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_smollm.recipe import RECIPE

# A busy machine is no reason to fail: what takes how long is tested where it matters.
hypothesis.settings.register_profile("flare", deadline=None)
hypothesis.settings.load_profile("flare")


def pytest_configure() -> None:
    # A shell that starts the run in the background makes it ignore ctrl-C, and children inherit that:
    # what they do on SIGINT could not be tested.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


ALONE = {"bench", "server", "soak"}  # rooms of tests that all need the machine for themselves


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(Path(__file__).parent).parts[0] in ALONE:
            item.add_marker(pytest.mark.alone)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--complete",
        action="store_true",
        help="numerics: every two-way cut and 50 partitions instead of a sample (half an hour alone); "
        "random service: 25 times as long (a quarter of an hour)",
    )


@pytest.fixture(scope="session")
def complete(request: pytest.FixtureRequest) -> bool:
    """Whether the complete numerical comparison and random service were asked for."""
    return bool(request.config.getoption("--complete"))


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the recipe's tiny random checkpoint."""
    place = made_once(tmp_path_factory, "tiny", lambda at: RECIPE.oracle.tiny_checkpoint(at / "checkpoint"))
    return place / "checkpoint"


@pytest.fixture(scope="session")
def tiny_core(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in float32: context 256, 4 slots, chunks to 64, pages of 16 tokens."""
    return _tiny_core(tmp_path_factory, tiny_checkpoint, DType.F32)


@pytest.fixture(scope="session")
def tiny_core_bf16(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in bfloat16, otherwise like `tiny_core`."""
    return _tiny_core(tmp_path_factory, tiny_checkpoint, DType.BF16)


def _tiny_core(factory: pytest.TempPathFactory, checkpoint: Path, dtype: DType) -> Path:
    name = f"tiny.{dtype.value}.core.safetensors"
    return made_once(factory, dtype.value, lambda at: prepare_tiny(checkpoint, dtype, at / name)) / name


@pytest.fixture(scope="session")
def qwen_core(flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny hybrid model with images in float32, of capacities `HYBRID`; it was generated from."""
    from flare_recipe_qwen.recipe import RECIPE as QWEN

    return _hybrid_core(tmp_path_factory, "qwen", flare_tiny_checkpoint(QWEN), QWEN)


@pytest.fixture(scope="session")
def glm_core(flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with latents and images in float32, of capacities `HYBRID`; it was generated from."""
    from flare_recipe_glm.recipe import RECIPE as GLM

    return _hybrid_core(tmp_path_factory, "glm", flare_tiny_checkpoint(GLM), GLM)


def _hybrid_core(factory: pytest.TempPathFactory, name: str, checkpoint: Path, recipe: Recipe) -> Path:
    from flare.testing import round_trip

    core = "core.safetensors"
    make = partial(round_trip, recipe, checkpoint, capacities=HYBRID)
    return made_once(factory, name, lambda at: make(at / core)) / core


@pytest.fixture(scope="session")
def smollm_checkpoint() -> Checkpoint:
    """The published checkpoint, opened."""
    return published_checkpoint()


@pytest.fixture(scope="session")
def smollm_core() -> Path:
    """The real model in bfloat16 as `flare prepare` makes it: 4 slots, chunks to 512, costs measured."""
    return cached_core(DType.BF16, CapacityRequest(context=2048), calibrate=True)


@pytest.fixture(scope="session")
def smollm_core_f32() -> Path:
    """The real model in float32 for numerics."""
    return cached_core(DType.F32, CapacityRequest(context=1024), calibrate=False)
