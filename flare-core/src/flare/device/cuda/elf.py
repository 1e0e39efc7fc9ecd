"""Kernel images as ELF files: their size in memory, the functions they hold, and their variables."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

MAGIC = b"\x7fELF"
_CODE = ".text."
_VARIABLES = (".nv.global", ".nv.constant3")  # .nv.global.init too
_NO_BITS, _SYMBOLS = 8, 2  # section types: without bytes in the file, symbol table
_OBJECT = 1  # symbol type

Read = Callable[[int, int], bytes]
"""Bytes of an image by offset and length."""


def function_names(image: bytes) -> frozenset[str]:
    """Names of all functions with code in a cubin: its kernels, and device functions that were not inlined.

    Empty for anything that is not an ELF file. Raises ValueError for a damaged one.
    """
    sections = _sections(image)
    return frozenset(name.removeprefix(_CODE) for name, *_ in sections if name.startswith(_CODE))


def variables(image: bytes) -> dict[str, int]:
    """Bytes of every `__device__` and `__constant__` variable of a cubin, by name, static ones too.

    Empty for anything that is not an ELF file. Raises ValueError for a damaged one.
    """
    sections = _sections(image)
    try:
        return dict(_variables(image, sections))
    except (struct.error, ValueError, IndexError) as error:
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


_Section = tuple[str, int, int, int, int]
"""Name, type, offset, bytes and the section it refers to."""


def _sections(image: bytes) -> list[_Section]:
    if image[:4] != MAGIC:
        return []
    try:
        (table,) = struct.unpack_from("<Q", image, 0x28)
        entry, count, names = struct.unpack_from("<3H", image, 0x3A)
        raw = [struct.unpack_from("<IIQQQQI", image, table + index * entry) for index in range(count)]
        strings = raw[names][4]
        return [
            (_text(image, strings + name), kind, offset, nbytes, link)
            for name, kind, _, _, offset, nbytes, link in raw
        ]
    except (struct.error, ValueError, IndexError) as error:
        raise ValueError(f"damaged kernel image: {error}") from error


def _variables(image: bytes, sections: list[_Section]) -> Iterator[tuple[str, int]]:
    for _, kind, offset, nbytes, link in sections:
        if kind != _SYMBOLS:
            continue
        strings = sections[link][2]
        for at in range(offset, offset + nbytes, 24):
            name, info, _, home, _, size = struct.unpack_from("<IBBHQQ", image, at)
            if info & 15 == _OBJECT and 0 < home < len(sections) and sections[home][0].startswith(_VARIABLES):
                yield _text(image, strings + name), size


def _text(image: bytes, begin: int) -> str:
    return image[begin : image.index(b"\0", begin)].decode("utf-8", "replace")
