"""A directory on `sys.path` to install plugins into."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_samples import install, plugin


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """With one good plugin in it: model `good-1b` of recipe `good`, distribution `good_dist` 2.3."""
    directory = tmp_path / "site"
    monkeypatch.syspath_prepend(directory)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    install(directory, "good_dist", plugin("good", "good-1b"), "good-1b", version="2.3")
    before = set(sys.modules)
    yield directory
    # Modules of one test must not be found again by the next.
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
