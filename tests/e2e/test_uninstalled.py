"""A core needs nothing of what prepared it."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest
from flare_run import FlareRun, run_to_end

pytestmark = pytest.mark.alone

GONE = ("flare_recipe_smollm", "flare_components.modules", "flare_components.serving", "transformers")
BLOCKED = (*GONE, "flare.recipes", "flare.prepare")
# `import torch` alone loads the package torch.export, but not the machinery that traces a model.
ABSENT = (*BLOCKED, "torch.export._trace", "torch._dynamo", "torch._inductor")

BLOCKER = f"""
import atexit, os, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if any(name == gone or name.startswith(gone + ".") for gone in {BLOCKED!r}):
            raise ModuleNotFoundError(f"{{name}} is uninstalled", name=name)

def note():
    with open(os.path.join({{folder!r}}, f"modules.{{os.getpid()}}"), "w") as out:
        out.write("\\n".join([" ".join(sys.orig_argv), *sys.modules]))

sys.meta_path.insert(0, Blocker())
atexit.register(note)
"""


@pytest.fixture
def uninstalled(tmp_path: Path) -> dict[str, str]:
    """An environment in which child processes cannot import the recipe and what it needs, and leave a list
    of the modules they had imported at their end in `tmp_path`."""
    folder = tmp_path / "site"
    folder.mkdir()
    text = BLOCKER.replace("{folder!r}", repr(str(tmp_path))).replace("{{", "{").replace("}}", "}")
    (folder / "sitecustomize.py").write_text(text)
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


def test_the_core_serves_without_its_recipe(
    tiny_core: Path, tmp_path: Path, uninstalled: dict[str, str]
) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "seed": 1}
    with FlareRun(tiny_core, environment=uninstalled) as server:
        response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=30)
        server.terminate()
        assert server.wait()[0] == 0

    assert response.status_code == 200
    assert response.json()["usage"]["completion_tokens"] > 0
    processes = [file.read_text().splitlines() for file in tmp_path.glob("modules.*")]
    assert sum("flare.engine" in command for command, *_ in processes) == 1
    assert len(processes) == 2
    for command, *modules in processes:
        imported = {name for name in ABSENT if name in modules}
        assert not imported, f"{command} imported {imported}"


def test_the_blocker_blocks(
    tiny_checkpoint: Path, tmp_path: Path, uninstalled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", uninstalled["PYTHONPATH"])
    result = run_to_end("prepare", "smollm2-135m", "--checkpoint", tiny_checkpoint, "-o", tmp_path / "x")

    assert result.returncode != 0
    assert "is uninstalled" in result.stderr
