"""Number formats of weights, and what a checkpoint's configuration declares about its modules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class NumberFormat(StrEnum):
    """How codes and scales stand for a matrix (`flare_components.quant`)."""

    NVFP4 = "NVFP4"
    MXFP8 = "MXFP8"
    FP8_BLOCK = "FP8_BLOCK"


@dataclass(frozen=True)
class WeightFormat:
    """The format of one weight.

    block: rows and columns that share a scale. quantized_input: whether inputs are rounded to the format too,
    as the checkpoint is meant to be run. compressed: block scales are stored as CSF streams. names: which
    tensors of the module hold what.
    """

    number: NumberFormat
    block: tuple[int, int]
    quantized_input: bool
    compressed: bool
    names: StoredNames


@dataclass(frozen=True)
class StoredNames:
    """Names of a module's tensors. `reciprocal`: global and input scale are stored as their reciprocals."""

    codes: str
    scales: str
    global_scale: str = ""
    input_scale: str = ""
    reciprocal: bool = False

    @property
    def fixed(self) -> str:
        """The first stream of compressed scales."""
        return f"{self.scales}.nvfp4_csf_fixed"

    @property
    def exceptions(self) -> str:
        """The second stream of compressed scales."""
        return f"{self.scales}.nvfp4_csf_exceptions"


@dataclass(frozen=True)
class Declared:
    """What a configuration says about the modules it applies to: a format, or why it is not read.

    block: None where it follows from the number format. listed: the modules are named one by one, so that
    each of them must be stored so; else they are all of a kind, and headers say which.
    """

    number: NumberFormat | None
    quantized_input: bool = False
    block: tuple[int, int] | None = None
    compressed: bool = False
    listed: bool = True
    refusal: str = ""


class Declarations(Protocol):
    """A parsed configuration of one producer."""

    def of(self, module: str) -> Declared | None:
        """What is said about `module`; None when its weight is stored plainly."""
