"""Contract element types as torch types."""

from __future__ import annotations

import torch

from flare.contract import DType

TORCH_DTYPES: dict[DType, torch.dtype] = {
    DType.BOOL: torch.bool,
    DType.U8: torch.uint8,
    DType.I8: torch.int8,
    DType.I16: torch.int16,
    DType.U16: torch.uint16,
    DType.I32: torch.int32,
    DType.U32: torch.uint32,
    DType.I64: torch.int64,
    DType.U64: torch.uint64,
    DType.F8_E4M3: torch.float8_e4m3fn,
    DType.F8_E5M2: torch.float8_e5m2,
    DType.F8_E8M0: torch.float8_e8m0fnu,
    DType.F16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.F32: torch.float32,
    DType.F64: torch.float64,
}
CONTRACT_DTYPES = {value: key for key, value in TORCH_DTYPES.items()}
