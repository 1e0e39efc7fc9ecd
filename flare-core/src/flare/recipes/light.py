"""Whether a recipe's light module really is light: it is imported in a process of its own, where importing
torch or transformers is noticed. Only strict mode pays for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from flare.recipes.metadata import PluginEntry
from flare.recipes.plugin import Refusal

HEAVY = ("torch", "transformers")
_FOUND = 86  # an exit status that nothing else has
_CHILD = "import json, sys; path, entry = map(json.loads, sys.argv[1:]); sys.path[:] = path; "
_CHILD += "from flare.recipes.light import _watch; _watch(entry)"


def heavy_import(entry: PluginEntry) -> Refusal | None:
    """What is wrong when the module behind `entry`, imported and asked for its descriptors in a fresh
    process, imports one of `HEAVY` or ends that process; its note is what the process printed, with the
    stack of the import. None when nothing is."""
    command = [sys.executable, "-P", "-c", _CHILD, json.dumps(sys.path), json.dumps(asdict(entry))]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    if done.returncode == 0:
        return None
    if done.returncode == _FOUND:
        name = done.stderr.rstrip().rpartition("\n")[2]
        refusal = Refusal(f"its light module imports {name}; keep that behind the import string")
    else:
        refusal = Refusal(f"its light module ends a process with status {done.returncode}")
    refusal.add_note(done.stderr)
    return refusal


class _Watch(MetaPathFinder, Loader):
    """A finder and loader of the heavy modules that ends the process when one is executed. Merely asking
    whether they are installed is allowed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in HEAVY else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        frames = [frame for frame in traceback.extract_stack()[:-1] if "importlib" not in frame.filename]
        print(*traceback.format_list(frames), module.__name__, sep="", file=sys.stderr, flush=True)
        os._exit(_FOUND)


def _watch(fields: dict[str, str | None]) -> None:
    """The child: read the plugin under watch. How it fails otherwise is found out in the parent."""
    from flare.recipes.probe import read_plugin

    sys.meta_path.insert(0, _Watch())
    read_plugin(PluginEntry(**fields))  # type: ignore[arg-type]
    sys.stderr.flush()
    os._exit(0)
