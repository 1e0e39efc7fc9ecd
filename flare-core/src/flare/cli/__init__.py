"""The flare command: thin typer commands over the packages. Each command imports what it needs when run."""

from __future__ import annotations

from flare.cli.app import app

__all__ = ["app"]
