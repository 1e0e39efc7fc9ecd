"""Cache schemes: the kinds of state a model keeps between tokens.

A recipe declares its state with these eight types; page and row geometry, snapshots and restore follow
from the declaration. `layers` repeats a scheme for that many layers. Two facts hold for every scheme and
need no field: padding rows never write to it, and a snapshot copies it exactly. What a snapshot copies
follows from where the scheme lives: `page` bytes are shared, except the partial tail page; `row` bytes
are copied whole.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from flare.contract.base import ContractModel
from flare.contract.dtypes import DType

Positive = Annotated[int, Field(gt=0)]
Shape = tuple[Positive, ...]


class SchemeBase(ContractModel):
    """Fields of every scheme. `atomic_spans`: an image span enters this state in one prefill chunk."""

    name: str
    layers: Positive = 1
    dtype: DType
    atomic_spans: bool = False


class PagedScheme(SchemeBase):
    """One entry of `shape` per token and layer, in pages (keys, values, latents, indexer keys)."""

    kind: Literal["paged"] = "paged"
    shape: Shape


class GroupedScheme(SchemeBase):
    """One entry of `shape` per `group` tokens, in pages. The unfinished group and `overlap` tokens before
    it live in the row as entries of `open_shape`, so that a cut inside a group continues exactly."""

    kind: Literal["grouped"] = "grouped"
    shape: Shape
    group: Positive
    overlap: int = Field(default=0, ge=0)
    open_shape: Shape
    open_dtype: DType


class WindowScheme(SchemeBase):
    """The last `window` tokens as a ring of entries of `shape`, in the row."""

    kind: Literal["window"] = "window"
    shape: Shape
    window: Positive


class RecurrentScheme(SchemeBase):
    """A recurrent state of `shape` that summarises all history, in the row. Never rolled back by position:
    speculation keeps one row per verified position."""

    kind: Literal["recurrent"] = "recurrent"
    shape: Shape


class ConvHistoryScheme(SchemeBase):
    """The last `taps` inputs of a causal convolution over `channels`, in the row."""

    kind: Literal["conv_history"] = "conv_history"
    channels: Positive
    taps: Positive


class TokenHistoryScheme(SchemeBase):
    """The last `length` consumed token ids, in the row; -1 before the beginning."""

    kind: Literal["token_history"] = "token_history"
    length: Positive
    dtype: DType = DType.I32


class CounterScheme(SchemeBase):
    """`count` integers that describe the consumed prefix (positions, rope deltas), in the row."""

    kind: Literal["counter"] = "counter"
    count: Positive = 1
    dtype: DType = DType.I64


class SavedHiddenScheme(SchemeBase):
    """The final hidden vector of the last consumed token, in the row: a complete prompt hit samples from
    it without running the model."""

    kind: Literal["saved_hidden"] = "saved_hidden"
    shape: Shape


CacheScheme = Annotated[
    PagedScheme
    | GroupedScheme
    | WindowScheme
    | RecurrentScheme
    | ConvHistoryScheme
    | TokenHistoryScheme
    | CounterScheme
    | SavedHiddenScheme,
    Field(discriminator="kind"),
]
