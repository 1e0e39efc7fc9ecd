"""Where tables that programs read are placed, and what they need of each other and of the state."""

from __future__ import annotations

import pytest
import torch

from flare.contract import DType, Initial, PagedScheme, Region, SavedHiddenScheme, TableResource
from flare.contract.schemes import CacheScheme, TokenHistoryScheme
from flare.device.lookups import lookup_of
from flare.prepare import BufferLayout, CapacityError, CapacityRequest, ServingPlan, TableDelivery
from flare.prepare.plan import plan_serving
from flare_components.serving.resident_tables import ResidentTables, place_tables

STATE = (
    PagedScheme(name="key", dtype=DType.F32, shape=(4,)),
    SavedHiddenScheme(name="hidden", dtype=DType.F32, shape=(4,)),
)
HISTORY = TokenHistoryScheme(name="seen", length=2)


def table(name: str, *, longest: int = 3, separator: int = 9, modulus: int = 11) -> TableResource:
    pairs = 2 * (longest - 1)
    moduli = [modulus + 2 * place for place in range(pairs)]
    offsets = [50 * place for place in range(pairs)]
    return TableResource(
        name=name,
        tensor=f"tables/{name}",
        rows=50 * pairs,
        row_bytes=6,
        lookup="ngram",
        parameters=(longest, 2, separator, *range(3, 3 + longest), *moduli, *offsets),
    )


def place(
    *tables: TableResource, state: tuple[CacheScheme, ...] = (*STATE, HISTORY)
) -> ResidentTables | None:
    return place_tables(BufferLayout(), plan(state), tables)


def plan(state: tuple[CacheScheme, ...]) -> ServingPlan:
    return plan_serving(
        CapacityRequest(context=64, tables=TableDelivery.DEVICE),
        schemes=state,
        dtype=DType.F32,
        vocab_size=10,
        model_context=64,
        weight_bytes=0,
        weight_copies=1.0,
        prefill_chunk=16,
    )


def test_tables_are_buffers_of_their_core_tensors_and_the_hash_has_their_numbers() -> None:
    layout, tables = BufferLayout(), (table("a"), table("b", modulus=21))
    placed = place_tables(layout, plan((*STATE, HISTORY)), tables)
    assert placed is not None
    assert (placed.order, placed.functions, placed.separator, placed.history) == (3, 2, 9, "seen")
    assert list(placed.contents) == ["a", "b"]
    buffers = {buffer.name: buffer for buffer in layout.buffers}
    for one in tables:
        buffer = buffers[placed.contents[one.name].buffer]
        assert (buffer.region, buffer.tensor) == (Region.TABLE_ROWS, one.tensor)
        assert buffer.shape == (one.rows, one.row_bytes)
    for name, view in placed.numbers.items():
        buffer = buffers[view.buffer]
        assert (buffer.initial, buffer.dtype) == (Initial.BYTES, DType.I64)
        stored = placed.constants[buffer.tensor or ""]
        assert view.shape == tuple(stored.shape)
        for index, one in enumerate(tables):
            assert torch.equal(stored[index], torch.from_numpy(getattr(lookup_of(one), name)))


def test_without_tables_nothing_is_placed() -> None:
    assert place() is None


@pytest.mark.parametrize(
    ("other", "state", "message"),
    [
        (table("b", longest=2), (*STATE, HISTORY), "tables a, b have different n-grams"),
        (table("b", separator=8), (*STATE, HISTORY), "tables a, b have different n-grams"),
        (table("b"), STATE, r"need one history of 2 tokens in the state, the model declares \[\]"),
        (table("b"), (*STATE, TokenHistoryScheme(name="seen", length=3)), r"the model declares \[3\]"),
        (table("b"), (*STATE, HISTORY, TokenHistoryScheme(name="more", length=2)), r"declares \[2, 2\]"),
    ],
)
def test_what_programs_cannot_read_is_said(
    other: TableResource, state: tuple[CacheScheme, ...], message: str
) -> None:
    with pytest.raises(CapacityError, match=message):
        place(table("a"), other, state=state)
