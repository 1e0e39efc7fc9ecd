"""`python -m ... DIRECTORY`: the command that writes a recipe's tiny checkpoint."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from flare_components.testing.quantized_checkpoint import write_quantized_checkpoint


def tiny_command(
    plain: Mapping[str, Callable[[Path], object]], formats: Mapping[str, tuple[str, Mapping[str, str]]]
) -> None:
    """Write what the first of `plain` writes; with `--format` what another does, or the first in one of
    `formats`: producer and formats of modules, as `write_quantized_checkpoint` takes them. An existing
    directory is left alone."""
    default = next(iter(plain))
    parser = argparse.ArgumentParser(description="Write a tiny random checkpoint.")
    parser.add_argument("directory", type=Path, help="a new directory")
    parser.add_argument(
        "--format", choices=(*plain, *formats), default=default, help="how weights are stored"
    )
    arguments = parser.parse_args()
    directory: Path = arguments.directory
    if directory.exists():
        parser.error(f"{directory} exists")
    if arguments.format in plain:
        plain[arguments.format](directory)
    else:
        producer, chosen = formats[arguments.format]
        with tempfile.TemporaryDirectory() as scratch:
            plain[default](Path(scratch) / "plain")
            write_quantized_checkpoint(Path(scratch) / "plain", directory, chosen, producer=producer)
    print(directory)
