"""Writes a large random checkpoint, file by file: it is never in memory.

`python benchmarks/memory/large_checkpoint.py DIRECTORY --format nvfp4 --gib 4`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from large_contents import pieces
from large_entries import FORMATS, GIB, Entry, large_config

from flare_recipe_qwen.tiny import write_tiny

FILE_BYTES = GIB
INDEX = "model.safetensors.index.json"


def write_large(directory: Path, name: str, size: int, table: int) -> Path:
    """Write it into a new directory; see `large_config`. Returns `directory`."""
    config, entries = large_config(name, size, table)
    write_tiny(directory)  # tokenizer, template and processor
    (directory / "model.safetensors").unlink()
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    generator = np.random.Generator(np.random.SFC64(1))
    files = _files(entries)
    placed: dict[str, str] = {}
    for number, content in enumerate(files, 1):
        file = f"model-{number:05}-of-{len(files):05}.safetensors"
        _write(directory / file, content, generator)
        placed |= {entry.name: file for entry in content}
    (directory / INDEX).write_text(json.dumps({"weight_map": placed}), encoding="utf-8")
    return directory


def _files(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Tensors by file; a file is full with a gibibyte, or holds one tensor that is larger."""
    files: list[list[Entry]] = [[]]
    filled = 0
    for entry in entries:
        if files[-1] and filled + entry.nbytes > FILE_BYTES:
            files.append([])
            filled = 0
        files[-1].append(entry)
        filled += entry.nbytes
    return files


def _write(file: Path, entries: list[Entry], generator: np.random.Generator) -> None:
    # The widest types first, so that all of them are aligned.
    ordered = sorted(entries, key=lambda entry: -{"F32": 4, "U32": 4, "BF16": 2}.get(entry.dtype, 1))
    header, cursor = {}, 0
    for entry in ordered:
        end = cursor + entry.nbytes
        header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [cursor, end]}
        cursor = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for entry in ordered:
            for piece in pieces(entry, generator):
                out.write(piece.data)


def main() -> None:
    """Write one. An existing directory is left alone."""
    parser = argparse.ArgumentParser(description="Write a large random checkpoint.")
    parser.add_argument("directory", type=Path, help="a new directory")
    parser.add_argument("--format", choices=FORMATS, required=True)
    parser.add_argument("--gib", type=float, default=4.0, help="size of everything but the table")
    parser.add_argument("--table-gib", type=float, default=0.5, help="size of the n-gram table")
    chosen = parser.parse_args()
    if chosen.directory.exists():
        parser.error(f"{chosen.directory} exists")
    size, table = int(chosen.gib * GIB), int(chosen.table_gib * GIB)
    print(write_large(chosen.directory, chosen.format, size, table))


if __name__ == "__main__":
    main()
