"""Kernel images as ELF files: their size in memory and the functions they hold."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

MAGIC = b"\x7fELF"
_CODE = ".text."
_NO_BITS = 8  # section type without bytes in the file

Read = Callable[[int, int], bytes]
"""Bytes of an image by offset and length."""


def function_names(image: bytes) -> frozenset[str]:
    """Names of all functions with code in a cubin: its kernels, and device functions that were not inlined.

    Empty for anything that is not an ELF file. Raises ValueError for a damaged one.
    """
    if image[:4] != MAGIC:
        return frozenset()
    try:
        return frozenset(_function_names(image))
    except (struct.error, ValueError) as error:
        raise ValueError(f"damaged kernel image: {error}") from error


def image_bytes(read: Read) -> int | None:
    """Size of the ELF image that `read` gives access to; None when it is none."""
    header = read(0, 64)
    if header[:4] != MAGIC:
        return None
    programs, sections = struct.unpack_from("<QQ", header, 0x20)
    program_bytes, program_count, section_bytes, section_count = struct.unpack_from("<4H", header, 0x36)
    table = read(sections, section_bytes * section_count)
    end = max(programs + program_bytes * program_count, sections + len(table))
    for index in range(section_count):
        _, kind, _, _, offset, nbytes = struct.unpack_from("<IIQQQQ", table, index * section_bytes)
        if kind != _NO_BITS:
            end = max(end, offset + nbytes)
    return int(end)


def _function_names(image: bytes) -> Iterator[str]:
    (sections,) = struct.unpack_from("<Q", image, 0x28)
    section_bytes, section_count, names = struct.unpack_from("<3H", image, 0x3A)

    def section(index: int) -> tuple[int, int]:
        name, _, _, _, offset = struct.unpack_from("<IIQQQ", image, sections + index * section_bytes)
        return name, offset

    _, strings = section(names)
    for index in range(section_count):
        begin = strings + section(index)[0]
        end = image.index(b"\0", begin)
        text = image[begin:end].decode("utf-8", "replace")
        if text.startswith(_CODE):
            yield text.removeprefix(_CODE)
