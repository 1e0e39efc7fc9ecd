"""What a core file says about one tensor."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from flare.contract import DType
from flare.errors import CoreError

# Components of letters, digits and a few marks, each beginning with a letter, digit or underscore: a name
# is never an absolute path, never climbs out of a directory and never hides control characters.
_COMPONENT = r"[A-Za-z0-9_][A-Za-z0-9_.+:@=-]*"
_NAME = re.compile(rf"{_COMPONENT}(/{_COMPONENT})*")
MAX_NAME = 255
RESERVED = ("pad", "checksum")


class Role(StrEnum):
    """What a tensor is for; decides the size of its checksum blocks.

    `weight` is uploaded whole, `table` is read row by row, `program` and `asset` are small documents.
    """

    WEIGHT = "weight"
    TABLE = "table"
    PROGRAM = "program"
    ASSET = "asset"

    @property
    def block_bytes(self) -> int:
        """Bytes per checksum block that this version writes (a reader uses the recorded size)."""
        return 64 * 1024 if self is Role.TABLE else 4 * 1024 * 1024


@dataclass(frozen=True)
class TensorSpec:
    """A dense, row-major tensor of `shape` elements of `dtype`, known to the file as `name`."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: Role

    @property
    def nbytes(self) -> int:
        """Stored bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def document(cls, name: str, nbytes: int, role: Role = Role.ASSET) -> TensorSpec:
        """`nbytes` opaque bytes: a program, a tokenizer, a template."""
        return cls(name, DType.U8, (nbytes,), role)


def check_name(name: str) -> None:
    """Raise CoreError unless `name` may be the name of a tensor in a core."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise CoreError(f"{name[:80]!r} is not a tensor name: letters, digits and _.+:@=-/", field="name")
    if name.split("/")[0] in RESERVED and "/" in name:
        raise CoreError(f"tensor name {name!r} is reserved for the container", field=name)
