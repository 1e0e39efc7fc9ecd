"""docs/recipe-tutorial.md shows the files of the generated package, and its commands work.

Here they are followed up to the package's own tests; `scripts/test-wheels` follows all of them in an
environment without the source tree.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tutorial import NAME, PAGE, blocks, commands

from flare.authoring.package import render

FILES = render(NAME)


def test_every_block_is_understood() -> None:
    assert {language for language, _, _ in blocks()} == {"sh", "toml", "python"}
    assert PAGE.read_text().count("```") == 2 * len(blocks())


@pytest.mark.parametrize(("title", "text"), [block[1:] for block in blocks() if block[0] != "sh"])
def test_shown_code_is_in_the_generated_file(title: str, text: str) -> None:
    assert text in FILES[title]


def test_the_commands_up_to_the_tests_of_the_package(tmp_path: Path) -> None:
    """Installing is the one difference: into a directory of its own, without network."""
    site, place = tmp_path / "site", tmp_path
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    install = f"pip install --quiet --no-deps --no-build-isolation --target {site} ."
    followed = commands()[: commands().index("pytest") + 1]
    assert len(followed) == 4
    for command in followed:
        if command.startswith("cd "):
            place /= command.removeprefix("cd ")
            continue
        line = install if command.startswith("pip install") else command
        result = subprocess.run(
            ["bash", "-c", line], cwd=place, env=environment, capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    assert "8 passed" in result.stdout
