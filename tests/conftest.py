"""Prepared cores that many tests share. Tiny ones are made once per run, real ones once per source tree."""

from __future__ import annotations

import signal
from pathlib import Path

import hypothesis
import pytest
from prepared_cores import HYBRID, cached_core, prepare_tiny, published_checkpoint

from flare.contract import DType
from flare.prepare import CapacityRequest, Checkpoint
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


ALONE = {"bench", "e2e", "model", "server", "soak"}  # rooms of tests that all need the machine for themselves


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
    return RECIPE.oracle.tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")


@pytest.fixture(scope="session")
def tiny_core(tiny_checkpoint: Path) -> Path:
    """The tiny model in float32: context 256, 4 slots, chunks to 64, pages of 16 tokens."""
    return prepare_tiny(tiny_checkpoint, DType.F32)


@pytest.fixture(scope="session")
def tiny_core_bf16(tiny_checkpoint: Path) -> Path:
    """The tiny model in bfloat16, otherwise like `tiny_core`."""
    return prepare_tiny(tiny_checkpoint, DType.BF16)


@pytest.fixture(scope="session")
def qwen_core(flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny hybrid model with images in float32, of capacities `HYBRID`; it was generated from."""
    from flare.testing import round_trip
    from flare_recipe_qwen.recipe import RECIPE as QWEN

    place = tmp_path_factory.mktemp("qwen") / "core.safetensors"
    return round_trip(QWEN, flare_tiny_checkpoint(QWEN), place, capacities=HYBRID)


@pytest.fixture(scope="session")
def glm_core(flare_tiny_checkpoint: TinyCheckpoints, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with latents and images in float32, of capacities `HYBRID`; it was generated from."""
    from flare.testing import round_trip
    from flare_recipe_glm.recipe import RECIPE as GLM

    place = tmp_path_factory.mktemp("glm") / "core.safetensors"
    return round_trip(GLM, flare_tiny_checkpoint(GLM), place, capacities=HYBRID)


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
