"""Bytes of the published model's state, from the declaration alone."""

from __future__ import annotations

from test_qwen_checkpoint import real

from flare.contract import DType, page_geometry, row_geometry
from flare_recipe_qwen.recipe import RECIPE

PAGE = 64
TOKEN_BYTES = 24.75 * 1024


def test_pages_and_rows_of_the_published_model() -> None:
    schemes = RECIPE.cache_schemes.schemes(real(), DType.BF16)
    page, row = page_geometry(schemes, PAGE), row_geometry(schemes)
    assert page.nbytes == PAGE * TOKEN_BYTES
    sizes = {field.name: field.nbytes for field in row.fields}
    assert sizes["memory"] == 108 << 20
    assert sizes["conv"] == 36 * 10240 * 3 * 2
    assert sizes["ngram_conv"] == 10240 * 9 * 2
    # A snapshot is a row and the page in which it ends.
    assert row.nbytes + page.nbytes == 117_291_776
