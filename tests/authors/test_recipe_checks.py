"""`check_recipe` accepts the package that `flare new-recipe` writes, and names every fault planted in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated_package import NAME, edited, installed

from flare.testing import check_recipe

LOADER, MODEL, RECIPE = (f"src/PACKAGE/{name}.py" for name in ("loader", "model", "recipe"))


def test_the_generated_package_passes_by_its_descriptor(tmp_path: Path) -> None:
    with installed(tmp_path) as module:
        check_recipe(*module.flare_recipe_descriptors())


FAULTS = {
    "torch in the descriptor": (
        edited("src/PACKAGE/descriptor.py", "from flare.recipes", "import torch\nfrom flare.recipes"),
        r"light import: flare_recipe_planted imports torch; keep that behind",
    ),
    "a model without entry point": (
        edited("pyproject.toml", f"{NAME}-tiny =", f"{NAME}-small ="),
        r'entry points: .*lacks planted-tiny = "flare_recipe_planted"',
    ),
    "an extra that does not exist": (
        edited("src/PACKAGE/descriptor.py", "architectures=", 'requires_extras=("gpu",), architectures='),
        "entry points: the distribution has no extra gpu",
    ),
    "no hook": (
        edited("src/PACKAGE/__init__.py", "@hookimpl\n", ""),
        "descriptor: flare_recipe_planted gives none",
    ),
    "another API": (
        edited("src/PACKAGE/descriptor.py", "api_version=RECIPE_API_VERSION", "api_version=99"),
        "descriptor: RecipeError: .*99",
    ),
    "sampling without a source": (
        edited(RECIPE, 'source="none: a tiny random model, neutral values"', 'source=" "'),
        "sampling defaults: source is empty",
    ),
    "sampling of no day": (
        edited(RECIPE, 'date="', 'date="about '),
        "sampling defaults: date 'about .*' is not YYYY-MM-DD",
    ),
    "a default outside its range": (
        edited(RECIPE, "temperature=1.0", "temperature=9.0"),
        "sampling defaults: temperature 9.0 is outside its own range",
    ),
    "a tensor that is not read": (
        edited(LOADER, '            rows["lm_head.weight"] = ("lm_head.weight",)', "            pass"),
        r"tensor map: CheckpointError: .*not mapped: lm_head\.weight",
    ),
    "a tensor that does not exist": (
        edited(
            LOADER, '"model.norm.weight": ("model.norm.weight",)', '"model.norm.weight": ("norm.weight",)'
        ),
        r"tensor map: CheckpointError: .*missing: norm\.weight; not mapped: model\.norm\.weight",
    ),
    "a tensor for another place": (
        edited(LOADER, '"model.norm.weight": (', '"model.final.weight": ('),
        r"tensor map: CheckpointError: the recipe maps nothing to model\.norm\.weight",
    ),
    "a tensor of another shape": (
        edited(LOADER, 'for part in ("gate", "up")', 'for part in ("gate", "up", "up")'),
        r"tensor map: model\.layers\.0\.mlp\.gate_up_proj\.weight: the checkpoint gives \(288, 64\)",
    ),
    "weights that are allocated": (
        edited(MODEL, 'torch.device("meta")', 'torch.device("cpu")'),
        r"meta device: lm_head\.weight, model\.embed_tokens\.weight has storage",
    ),
    "no saved hidden vector": (
        edited(
            RECIPE,
            '            SavedHiddenScheme(name="hidden", dtype=dtype, shape=(config.hidden_size,)),\n',
            "",
        ),
        "cache schemes: 0 saved hidden vectors",
    ),
    "two schemes of one name": (
        edited(RECIPE, 'PagedScheme(name="value"', 'PagedScheme(name="key"'),
        "cache schemes: ValueError: cache scheme names are not unique",
    ),
    "a context for nothing": (
        edited(MODEL, "context=config.max_position_embeddings", "context=1"),
        "capacities: a context of 1",
    ),
    "an end token nobody knows": (
        edited("src/PACKAGE/frontend.py", "(ends,) if isinstance(ends, int)", "(300,) if True"),
        "frontend: end token 300 is not in the vocabulary",
    ),
    "a retained module that is bypassed": (
        edited(
            MODEL,
            "self.lm_head(hidden)",
            "nn.functional.linear(hidden, self.lm_head.weight)",
        ),
        r"program prefill\.16: retained modules are bypassed: lm_head \(Linear\) was never called",
    ),
    "state that is not declared": (
        edited(RECIPE, 'PagedScheme(name="value"', 'PagedScheme(name="values"'),
        r"program prefill\.16: programs: .*value",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(tmp_path: Path, fault: str) -> None:
    change, message = FAULTS[fault]
    with installed(tmp_path, change) as module, pytest.raises(AssertionError, match=f"^{message}"):
        check_recipe(module)


def test_a_package_that_is_not_installed(tmp_path: Path) -> None:
    with installed(tmp_path) as module:
        for file in tmp_path.rglob("entry_points.txt"):
            file.unlink()
        with pytest.raises(
            AssertionError, match="entry points: no installed distribution names flare_recipe"
        ):
            check_recipe(module)
        with pytest.raises(
            AssertionError, match=r"entry points: no installed distribution has one .*planted-tiny"
        ):
            check_recipe(*module.flare_recipe_descriptors())
