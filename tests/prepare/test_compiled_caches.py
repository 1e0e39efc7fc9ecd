"""What preparation compiles is kept with everything else that it keeps, or where the environment says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch._inductor.runtime.cache_dir_utils import cache_dir

from flare.prepare.cuda_programs import place_caches

VARIABLES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FLARE_CACHE", str(tmp_path))
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")  # so that it is restored
        monkeypatch.delenv(variable)
    return tmp_path


def places() -> dict[str, str]:
    return {variable: os.environ[variable] for variable in VARIABLES}


@pytest.mark.parametrize("imported", [False, True])
def test_caches_are_together(home: Path, imported: bool) -> None:
    if imported:
        cache_dir()  # as Inductor does when it is imported
    place_caches()
    assert places() == {variable: str(home / name) for variable, name in VARIABLES.items()}
    assert cache_dir() == str(home / "inductor")


def test_a_place_in_the_environment_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {variable: str(home / "mine" / name) for variable, name in VARIABLES.items()}
    for variable, place in chosen.items():
        monkeypatch.setenv(variable, place)
    place_caches()
    assert places() == chosen
