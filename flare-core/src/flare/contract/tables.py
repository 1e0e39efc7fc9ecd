"""Table resources: immutable payloads far larger than memory (n-gram embeddings), read row by row."""

from __future__ import annotations

from pydantic import Field

from flare.contract.base import ContractModel


class TableResource(ContractModel):
    """`rows` rows of `row_bytes` bytes in core tensor `tensor`; `recipe` of row numbers is computed by the
    host lookup `lookup` (an identifier of an interpreter with integer `parameters`)."""

    name: str
    tensor: str
    rows: int = Field(gt=0)
    row_bytes: int = Field(gt=0)
    lookup: str
    parameters: tuple[int, ...] = ()
