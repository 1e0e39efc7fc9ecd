"""Bytes of the published model's state, from the declaration alone; and its size, on the meta device."""

from __future__ import annotations

from flare.contract import DType
from flare.prepare.published import plan_state, read_published
from flare.prepare.weights import model_tensors
from flare_recipe_glm.config import read_config
from flare_recipe_glm.descriptor import DESCRIPTOR
from flare_recipe_glm.recipe import RECIPE

PARAMETERS = 313.89e9


def test_pages_and_rows_of_the_published_model() -> None:
    plan = plan_state(RECIPE, read_published(DESCRIPTOR.models[0]))
    tokens = {size.scheme.name: size.token for size in plan.schemes if size.token}
    assert tokens == {"latent": 11_264, "selector": 704}
    assert plan.token_bytes == 11_968
    assert (plan.page.page_tokens, plan.page.nbytes) == (256, 256 * 11_968)
    rows = {size.scheme.name: size.row for size in plan.schemes if size.row}
    assert rows == {
        "selector": 11 * 4 * 2 * 128 * 2,
        "memory": 136 << 20,
        "conv": 34 * 24_576 * 3 * 2,
        "consumed": 4,
        "hidden": 4096 * 2,
    }
    assert sum(rows.values()) <= plan.row.nbytes < sum(rows.values()) + 512
    assert plan.row.nbytes == 147_650_816


def test_the_published_model_on_the_meta_device() -> None:
    built = RECIPE.replacements.build(read_config(read_published(DESCRIPTOR.models[0])), DType.BF16)
    number = sum(tensor.numel() for tensor in model_tensors(built).values())
    assert abs(number - PARAMETERS) < 0.01e9
    assert built.context == 1 << 20
