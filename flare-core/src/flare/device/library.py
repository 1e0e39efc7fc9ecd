"""The operator library that a core names: is it here, in a version that kept its meaning?"""

from __future__ import annotations

import importlib.metadata

from flare.contract import OperatorLibrary
from flare.errors import CoreError


def check_library(library: OperatorLibrary) -> None:
    """Raise CoreError when the library is absent or of another version. Imports nothing of it."""
    wanted = f"{library.distribution}>={library.minimum},<{library.below}"
    have = installed(library.distribution)
    if have is None:
        raise CoreError(
            f"this core needs operators of {library.distribution}: pip install '{wanted}'",
            field="identity.operator_library",
        )
    if not _release(library.minimum) <= _release(have) < _release(library.below):
        raise CoreError(
            f"this core needs {library.distribution} >={library.minimum},<{library.below}, found {have}",
            field="identity.operator_library",
        )


def installed(distribution: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".") if part.isdigit())
