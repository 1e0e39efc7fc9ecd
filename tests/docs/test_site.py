"""The site's build refuses what would mislead a reader; `scripts/test` runs it on the real pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What is put on a page, and what the warning about it must name.
PLANTED = {
    "[x](nowhere.md)": "there is no nowhere.md",
    "[x](cli.md#nothing)": "'cli.md#nothing'",
    "[x](#nothing)": "'#nothing'",
    '<img src="https://example.org/x.png">': "fetches from another host",
}


def test_a_build_with_something_wrong_fails_and_names_it(tmp_path: Path) -> None:
    for part in ("docs", "scripts", "benchmarks"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("results", "__pycache__"))
    for file in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md", "README.md"):
        shutil.copy(ROOT / file, tmp_path)
    for package in ("flare-core", "flare-components", "examples"):  # links of pages lead into them
        (tmp_path / package).symlink_to(ROOT / package)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write("\n" + "\n\n".join(PLANTED) + "\n")
    (tmp_path / "docs" / "lost.md").write_text("# In no navigation\n")

    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    warnings = [line for line in build.stderr.splitlines() if line.startswith(("WARNING", "  - "))]
    assert build.returncode != 0
    for expected in (*PLANTED.values(), "lost.md"):
        assert expected in build.stderr
    assert len(warnings) == len(PLANTED) + 2  # a page in no navigation has a line of its own
