"""ELF files like those of the CUDA assembler, as far as their section tables go."""

from __future__ import annotations

import struct
from collections.abc import Sequence


def kernel_image(functions: Sequence[str], code: bytes) -> bytes:
    """A 64-bit little-endian ELF with a `.text.NAME` section per function, the section table last."""
    names, strings, body = [".shstrtab", *(f".text.{name}" for name in functions)], b"\0", b""
    sections = [(0, 0, 0, 0)]  # (name, type, offset, bytes)
    for name in names[1:]:
        sections.append((len(strings), 1, 64 + len(body), len(code)))
        strings += name.encode() + b"\0"
        body += code
    sections.append((len(strings), 3, 64 + len(body), 0))
    strings += names[0].encode() + b"\0"
    sections[-1] = (*sections[-1][:3], len(strings))
    body += strings
    sections.append((1, 8, 64 + len(body), 1 << 20))  # zeros that are not in the file
    table = b"".join(struct.pack("<IIQQQQIIQQ", n, t, 0, 0, o, s, 0, 0, 1, 0) for n, t, o, s in sections)
    header = b"\x7fELF\x02\x01" + bytes(10)
    header += struct.pack("<HHIQQQI", 2, 190, 1, 0, 0, 64 + len(body), 0)
    header += struct.pack("<6H", 64, 0, 0, 64, len(sections), len(sections) - 2)
    return header + body + table
