"""Bytes of the published model's state, from the declaration alone."""

from __future__ import annotations

from flare.contract import DType, row_geometry
from flare.prepare.published import plan_state, read_published
from flare_recipe_qwen.descriptor import DESCRIPTOR
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.schemes import verification_schemes

TOKEN_BYTES = 24.75 * 1024


def test_pages_and_rows_of_the_published_model() -> None:
    published = read_published(DESCRIPTOR.models[0])
    plan = plan_state(RECIPE, published)
    assert plan.token_bytes == TOKEN_BYTES
    assert (plan.page.page_tokens, plan.page.nbytes) == (64, 64 * TOKEN_BYTES)
    sizes = {size.scheme.name: size.row for size in plan.schemes}
    assert sizes["memory"] == 108 << 20
    assert sizes["conv"] == 36 * 10240 * 3 * 2
    assert sizes["ngram_conv"] == 10240 * 9 * 2
    # A snapshot is a row and the page in which it ends.
    assert plan.context_bytes(1) == plan.row.nbytes + plan.page.nbytes == 117_291_264
    schemes = [size.scheme for size in plan.schemes]
    complete = row_geometry((*schemes, *verification_schemes(RECIPE.loader.config(published))))
    assert complete.nbytes + plan.page.nbytes == 117_291_776


def test_no_core_keeps_what_only_verification_would_write() -> None:
    config = RECIPE.loader.config(read_published(DESCRIPTOR.models[0]))
    kept = {scheme.name for scheme in RECIPE.cache_schemes.schemes(config, DType.BF16)}
    assert kept.isdisjoint(scheme.name for scheme in verification_schemes(config))
