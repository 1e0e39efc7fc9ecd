"""Element types of buffers and tensors, by the codes of the safetensors format."""

from __future__ import annotations

from enum import StrEnum


class DType(StrEnum):
    """Element type; the value is the safetensors code."""

    BOOL = "BOOL"
    U8 = "U8"
    I8 = "I8"
    I16 = "I16"
    U16 = "U16"
    I32 = "I32"
    U32 = "U32"
    I64 = "I64"
    U64 = "U64"
    F8_E4M3 = "F8_E4M3"
    F8_E5M2 = "F8_E5M2"
    F8_E8M0 = "F8_E8M0"
    F16 = "F16"
    BF16 = "BF16"
    F32 = "F32"
    F64 = "F64"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _ITEMSIZE[self]


_ITEMSIZE = {
    DType.BOOL: 1,
    DType.U8: 1,
    DType.I8: 1,
    DType.F8_E4M3: 1,
    DType.F8_E5M2: 1,
    DType.F8_E8M0: 1,
    DType.I16: 2,
    DType.U16: 2,
    DType.F16: 2,
    DType.BF16: 2,
    DType.I32: 4,
    DType.U32: 4,
    DType.F32: 4,
    DType.I64: 8,
    DType.U64: 8,
    DType.F64: 8,
}
