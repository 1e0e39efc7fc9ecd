"""A process that serves a core loads no model code, and needs none to be installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Rooms and packages of preparation, and the tracing machinery that `import torch` alone does not load.
BARRED = (
    "transformers",
    "flare.recipes",
    "flare.prepare",
    "flare_recipe_",
    "flare_components.modules",
    "flare_components.serving",
    "torch.export",
    "torch._export",
    "torch._dynamo",
    "torch._inductor",
    "torch.fx",
)

SERVE = """
import json, sys
import torch
bare = set(sys.modules)
{prologue}
from flare.device import LoadOptions
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Sampling, Submit, Tokens
tokens = []
device = load_core({core!r}, LoadOptions(threads=1))
engine = Engine(device, lambda event: tokens.extend(event.tokens) if isinstance(event, Tokens) else None)
engine.submit(Submit(request_id="r", prompt=tuple(range(40, 60)), sampling=Sampling(temperature=0.5, seed=3),
                     max_tokens=5))
while engine.step():
    pass
engine.close()
print(json.dumps([tokens, sorted(set(sys.modules) - bare)]))
"""

# Import hooks see nothing of what is installed: everything that preparation brought is gone.
UNINSTALLED = """
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("transformers", "flare_recipe_smollm", "gguf", "pluggy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in ("flare.recipes", "flare.prepare", "flare_components.modules", "flare_components.serving"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Gone())
try:
    import flare_recipe_smollm
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("the recipe is importable")
"""


def serve(core: Path, prologue: str = "") -> tuple[list[int], list[str]]:
    script = SERVE.format(core=str(core), prologue=prologue)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    tokens, modules = json.loads(result.stdout)
    return tokens, modules


@pytest.mark.parametrize(
    "core",
    ["tiny_core", "tiny_core_bf16", pytest.param("smollm_core", marks=[pytest.mark.model, pytest.mark.slow])],
)
def test_serving_loads_no_model_code(request: pytest.FixtureRequest, core: str) -> None:
    tokens, modules = serve(request.getfixturevalue(core))
    assert len(tokens) == 5
    assert "flare_components.ops" in modules  # the one library that the core names
    assert [name for name in modules if name.startswith(BARRED)] == []


def test_serving_needs_no_recipe(tiny_core: Path) -> None:
    assert serve(tiny_core, UNINSTALLED) == serve(tiny_core)
