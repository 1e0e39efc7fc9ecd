"""`flare prepare`: what it writes, and what it refuses before anything is loaded."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from flare_command import failure, flare

from flare.corefile import CoreReader, read_contract
from flare.recipes import discover

MODEL = "smollm2-135m"
SMALL = ("--context", "64", "--concurrency", "1", "--prefill-chunk-size", "16", "--page-tokens", "16")


def test_the_core_is_named_after_the_model(tiny_checkpoint: Path, tmp_path: Path) -> None:
    result = flare("prepare", MODEL, "--checkpoint", tiny_checkpoint, *SMALL, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [f"{MODEL}.core.safetensors"]
    assert result.stdout.startswith(f"{MODEL}.core.safetensors (")
    assert "context 64, concurrency 1" in result.stdout
    provenance = read_contract(CoreReader(tmp_path / f"{MODEL}.core.safetensors")).provenance
    package = provenance.recipe_package
    assert package is not None
    assert f"{package.distribution} {package.version}" == provenance.recipe_version
    assert package.descriptor == discover().find_model(MODEL)[0].digest
    phases = [line.partition(":")[0] for line in result.stderr.splitlines()]
    assert phases[0] == "Checkpoint"
    assert {"Plan", "Trace programs", "Weights", "Load"} <= set(phases)


def test_an_unknown_model_is_answered_with_close_names() -> None:
    known = "Known: glm-5.3-flash, qwen3.8-flash, smollm2-135m."
    assert failure("prepare", "smollm2-135") == (
        f"no recipe knows 'smollm2-135'; did you mean smollm2-135m? {known}"
    )
    assert failure("prepare", "another") == f"no recipe knows 'another'. {known}"


def test_a_missing_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "missing"

    assert str(path) in failure("prepare", MODEL, "--checkpoint", path, cwd=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--context", "100000"), "context 100000 exceeds the model's limit of 512"),
        (("--memory", "200K"), r"memory 200\.00 KiB cannot hold .* at least \d+\.\d+ KiB is needed"),
        (("--memory", "plenty"), "'plenty' is not a size; write 6G or 512M"),
        (("--concurrency", "0"), "concurrency must be at least 1"),
        (("--context", "1"), "context must be at least 2: a prompt and an answer"),
    ],
)
def test_capacities_that_cannot_be_are_refused_with_the_numbers(
    tiny_checkpoint: Path, tmp_path: Path, options: tuple[str, str], message: str
) -> None:
    refusal = failure("prepare", MODEL, "--checkpoint", tiny_checkpoint, *options, cwd=tmp_path)

    assert re.fullmatch(message, refusal)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_hold_the_core_is_refused_first(tmp_path: Path) -> None:
    # The checkpoint does not exist either: the place is what is looked at first.
    missing = ("--checkpoint", tmp_path / "missing")

    assert failure("prepare", MODEL, *missing, "-o", tmp_path) == (
        f"{tmp_path} is a directory, not a place for a core file"
    )
    assert failure("prepare", MODEL, *missing, "-o", tmp_path / "none" / "core") == (
        f"there is no directory {tmp_path / 'none'}"
    )


@pytest.mark.parametrize("option", ["--no-compile", "--no-trace", "--relocatable", "--eager"])
def test_diagnostics_of_a_gpu_are_refused_for_the_cpu(tmp_path: Path, option: str) -> None:
    assert failure("prepare", MODEL, option, cwd=tmp_path) == (
        "--relocatable, --no-compile, --no-trace and --eager are for --device cuda: "
        "for cpu nothing is captured"
    )


@pytest.mark.skipif(find_spec("cuda") is not None, reason="cuda-bindings are installed")
def test_what_a_gpu_needs_is_installed_with_the_recipe(tmp_path: Path) -> None:
    said = failure("prepare", MODEL, "--device", "cuda", cwd=tmp_path)
    assert said.startswith("preparing for a GPU needs cuda.bindings")
    assert said.endswith('pip install "flare-recipe-smollm[cuda]"')
