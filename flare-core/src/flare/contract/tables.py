"""Table resources: immutable payloads far larger than memory (n-gram embeddings), read row by row."""

from __future__ import annotations

from pydantic import Field

from flare.contract.base import ContractModel


class TableResource(ContractModel):
    """`rows` rows of `row_bytes` bytes in core tensor `tensor`. Which rows a token needs follows from it and
    the tokens before it, by the host's `lookup` with integer `parameters` (`flare.device.lookups`)."""

    name: str
    tensor: str
    rows: int = Field(gt=0)
    row_bytes: int = Field(gt=0)
    lookup: str
    parameters: tuple[int, ...] = ()
