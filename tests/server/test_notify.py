"""What the service manager is told."""

from __future__ import annotations

import logging
import secrets
import socket
from pathlib import Path

import pytest

from flare.server import notify


def test_without_a_manager_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)

    assert not notify("READY=1")


@pytest.mark.parametrize("abstract", [False, True])
def test_a_manager_gets_the_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, abstract: bool) -> None:
    name = f"@flare-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0") if abstract else name)
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)

        assert notify("READY=1")
        assert manager.recv(100) == b"READY=1"


def test_a_manager_that_is_gone_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))

    with caplog.at_level(logging.WARNING, "flare.server"):
        assert not notify("READY=1")
    assert "cannot be told READY=1" in caplog.text
