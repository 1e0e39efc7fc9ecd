"""Help, version, and what light commands may import."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from flare_command import flare

from flare import __version__

HEAVY = ("torch", "transformers", "fastapi", "numpy", "httpx")
LIST_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
from flare.cli import app
app(sys.argv[1:])
"""


def modules_of(*arguments: str | Path) -> set[str]:
    """Modules that a command has imported when it ends."""
    command = [sys.executable, "-c", LIST_MODULES, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stderr.splitlines()[-1]))


def test_the_version() -> None:
    assert flare("--version").stdout == f"flare {__version__}\n"


def test_no_command_shows_the_help() -> None:
    assert "prepare" in flare().stdout + flare().stderr


@pytest.mark.alone
def test_help_is_quick() -> None:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    flare("--help")  # compiles bytecode
    before = spent()
    assert flare("--help").returncode == 0
    assert spent() - before < 0.5


@pytest.mark.parametrize("command", ["", "run", "prepare", "inspect", "recipes", "chat"])
def test_help_imports_nothing_heavy(command: str) -> None:
    loaded = modules_of(*filter(None, [command]), "--help")

    assert not loaded.intersection(HEAVY)


def test_inspecting_a_core_and_listing_recipes_need_no_torch(tiny_core: Path) -> None:
    for arguments in (["inspect", tiny_core], ["inspect", tiny_core, "--json"], ["recipes"]):
        loaded = modules_of(*arguments)
        assert not {"torch", "transformers"} & loaded
