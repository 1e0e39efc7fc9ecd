"""ELF files like those of the CUDA assembler, as far as their section tables go."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

GLOBAL, LOCAL_OBJECT = ".nv.global", 1


def kernel_image(functions: Sequence[str], code: bytes, variables: Mapping[str, int] | None = None) -> bytes:
    """A 64-bit little-endian ELF with a `.text.NAME` section per function, and a symbol per function and per
    variable (bytes by name); the section table last."""
    names, strings, body = [".shstrtab", *(f".text.{name}" for name in functions)], b"\0", b""
    sections = [(0, 0, 0, 0)]  # (name, type, offset, bytes)
    for name in names[1:]:
        sections.append((len(strings), 1, 64 + len(body), len(code)))
        strings += name.encode() + b"\0"
        body += code
    home = len(sections)
    sections.append((len(strings), 8, 64 + len(body), sum((variables or {}).values())))
    strings += GLOBAL.encode() + b"\0"
    texts, symbols = b"\0", bytes(24)
    for name, size, section, kind in (
        *((name, size, home, LOCAL_OBJECT) for name, size in (variables or {}).items()),
        *((name, len(code), 1 + index, 2) for index, name in enumerate(functions)),
        (".nv.reserved", 4, 0, LOCAL_OBJECT),
    ):
        symbols += struct.pack("<IBBHQQ", len(texts), kind, 0, section, 0, size)
        texts += name.encode() + b"\0"
    for name, kind, data in ((".symtab", 2, symbols), (".strtab", 3, texts)):
        sections.append((len(strings), kind, 64 + len(body), len(data)))
        strings += name.encode() + b"\0"
        body += data
    sections.append((len(strings), 3, 64 + len(body), 0))
    strings += names[0].encode() + b"\0"
    sections[-1] = (*sections[-1][:3], len(strings))
    body += strings
    sections.append((1, 8, 64 + len(body), 1 << 20))  # zeros that are not in the file
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", n, t, 0, 0, o, s, index + 1 if t == 2 else 0, 0, 1, 0)
        for index, (n, t, o, s) in enumerate(sections)
    )
    header = b"\x7fELF\x02\x01" + bytes(10)
    header += struct.pack("<HHIQQQI", 2, 190, 1, 0, 0, 64 + len(body), 0)
    header += struct.pack("<6H", 64, 0, 0, 64, len(sections), len(sections) - 2)
    return header + body + table
