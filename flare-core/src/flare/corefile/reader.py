"""Open a core: check everything that is cheap, then give access to contract and tensors."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from flare.corefile import format as fmt
from flare.corefile.header import Header, decode
from flare.corefile.store import TensorStore
from flare.errors import CoreError


class CoreReader(TensorStore):
    """An open core file. Opening reads the header and the checksums, no payload.

    `contract_json` is the contract document as written; `header` what the container says about tensors.
    The file must not be truncated by others while it is open (`bytes` would fault); replacing it by
    renaming another file over it is fine.

    Raises CoreError, its message beginning with the path, for anything that is not a whole core of a known
    version; OSError when the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.header, digests = _open(fd)
            super().__init__(fd, self.header.layout, self.header.data_start, digests)
        except CoreError as error:
            os.close(fd)
            raise CoreError(f"{self.path}: {error}", field=error.field) from error
        except BaseException:
            os.close(fd)
            raise
        self.contract_json = self.header.contract_json

    def close(self) -> None:
        """Close the file. Memory views handed out by `bytes` stay valid. Idempotent."""
        if self._fd >= 0:
            super().close()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(fd: int) -> tuple[Header, bytes]:
    size = os.fstat(fd).st_size
    prefix = os.pread(fd, fmt.LENGTH_BYTES + 1, 0)
    if len(prefix) <= fmt.LENGTH_BYTES:
        raise CoreError(f"truncated: {size} bytes are not even a header", field="size")
    length = int.from_bytes(prefix[: fmt.LENGTH_BYTES], "little")
    if length > fmt.MAX_HEADER_BYTES or prefix[fmt.LENGTH_BYTES :] != b"{":
        raise CoreError("not a runtime core: not a safetensors file", field="header length")
    if fmt.LENGTH_BYTES + length > size:
        raise CoreError(f"truncated: {size} bytes end within a header of {length}", field="size")
    header = decode(os.pread(fd, fmt.LENGTH_BYTES + length, 0), size)
    span = header.layout.checksums
    digests = os.pread(fd, span.end - span.begin, header.data_start + span.begin)
    if fmt.sha256(digests).digest() != header.checksums:
        raise CoreError("the checksums are damaged", field=fmt.CHECKSUM_TENSOR)
    return header, digests
