"""`python -m flare`: the command line, for when no `flare` script is on the path."""

from __future__ import annotations

from flare.cli import app

if __name__ == "__main__":
    app(prog_name="flare")
