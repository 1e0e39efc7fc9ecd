"""Pages and rows follow from the declared schemes, for each of the eight kinds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from flare.contract import (
    CacheScheme,
    ConvHistoryScheme,
    CounterScheme,
    DType,
    GroupedScheme,
    PagedScheme,
    RecurrentScheme,
    SavedHiddenScheme,
    TokenHistoryScheme,
    WindowScheme,
    page_geometry,
    row_geometry,
)

BF16, F32, I32, I64 = DType.BF16, DType.F32, DType.I32, DType.I64

PAGED = PagedScheme(name="k", layers=3, dtype=BF16, shape=(2, 64))
GROUPED = GroupedScheme(
    name="g", layers=2, dtype=F32, shape=(5,), group=4, overlap=3, open_shape=(7,), open_dtype=BF16
)


@pytest.mark.parametrize(
    ("scheme", "page", "row"),
    [
        (PAGED, {"k": (BF16, (3, 16, 2, 64))}, {}),
        (GROUPED, {"g": (F32, (2, 4, 5))}, {"g.open": (BF16, (2, 7, 7))}),
        (
            WindowScheme(name="w", layers=2, dtype=BF16, shape=(3,), window=10),
            {},
            {"w": (BF16, (2, 10, 3))},
        ),
        (RecurrentScheme(name="r", layers=4, dtype=F32, shape=(8, 9)), {}, {"r": (F32, (4, 8, 9))}),
        (
            ConvHistoryScheme(name="c", layers=2, dtype=BF16, channels=12, taps=3),
            {},
            {"c": (BF16, (2, 12, 3))},
        ),
        (TokenHistoryScheme(name="t", length=5), {}, {"t": (I32, (1, 5))}),
        (CounterScheme(name="n", count=3), {}, {"n": (I64, (1, 3))}),
        (SavedHiddenScheme(name="h", dtype=BF16, shape=(576,)), {}, {"h": (BF16, (1, 576))}),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_one_scheme(
    scheme: CacheScheme,
    page: dict[str, tuple[DType, tuple[int, ...]]],
    row: dict[str, tuple[DType, tuple[int, ...]]],
) -> None:
    pages, rows = page_geometry([scheme], 16), row_geometry([scheme])
    assert {f.name: (f.dtype, f.shape) for f in pages.fields} == page
    assert {f.name: (f.dtype, f.shape) for f in rows.fields} == row
    for block in (pages, rows):
        assert block.nbytes == 256 * math.ceil(sum(f.nbytes for f in block.fields) / 256)
    # A scheme is told by its kind alone when a core is read.
    assert TypeAdapter(CacheScheme).validate_python(scheme.model_dump(mode="json")) == scheme


def test_a_group_must_divide_a_page() -> None:
    with pytest.raises(ValueError, match="groups of 4 tokens do not divide a page of 18"):
        page_geometry([GROUPED], 18)


def test_names_are_unique_within_a_block() -> None:
    with pytest.raises(ValueError, match="not unique"):
        page_geometry([PAGED, PAGED], 16)
    with pytest.raises(ValueError, match="not unique"):
        row_geometry([CounterScheme(name="g.open"), GROUPED])


def test_extents_are_positive() -> None:
    for change in ({"layers": 0}, {"shape": (2, 0)}, {"shape": (-1,)}):
        with pytest.raises(ValidationError):
            PagedScheme(**{"name": "k", "dtype": BF16, "shape": (1,), **change})


sizes = st.integers(1, 9)
dtypes = st.sampled_from([DType.U8, BF16, F32, I64])


@given(
    schemes=st.lists(
        st.one_of(
            st.builds(PagedScheme, name=st.just(""), layers=sizes, dtype=dtypes, shape=st.tuples(sizes)),
            st.builds(
                WindowScheme,
                name=st.just(""),
                layers=sizes,
                dtype=dtypes,
                shape=st.tuples(sizes),
                window=sizes,
            ),
        ),
        max_size=6,
    ),
    page_tokens=sizes,
    blocks=sizes,
)
def test_views_of_fields_never_touch_each_other(
    schemes: list[PagedScheme | WindowScheme], page_tokens: int, blocks: int
) -> None:
    """Every byte of every block belongs to at most one element of one layer of one field."""
    named = [scheme.model_copy(update={"name": f"s{index}"}) for index, scheme in enumerate(schemes)]
    for geometry in (page_geometry(named, page_tokens), row_geometry(named)):
        owned: set[int] = set()
        for field in geometry.fields:
            assert field.offset % 64 == 0
            for layer in range(field.shape[0]):
                view = geometry.view("b", field.name, blocks, layer)
                assert view.shape == (blocks, *field.shape[1:])
                assert view.end <= geometry.nbytes * blocks
                assert view.strides is not None
                item, inner = field.dtype.itemsize, math.prod(view.shape[1:])
                for block in range(blocks):
                    begin = view.offset + block * view.strides[0] * item
                    assert begin // geometry.nbytes == block
                    span = set(range(begin, begin + inner * item))
                    assert not span & owned
                    owned |= span
