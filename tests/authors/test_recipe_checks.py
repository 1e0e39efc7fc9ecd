"""`check_recipe` accepts the package that `flare new-recipe` writes, and names every fault planted in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated_package import NAME, edited, installed

from flare.prepare import CapacityRequest
from flare.recipes import load_recipe, registry
from flare.testing import check_chunks, check_recipe, round_trip

LOADER, MODEL, RECIPE = (f"src/PACKAGE/{name}.py" for name in ("loader", "model", "recipe"))


def test_the_generated_package_passes_by_its_descriptor(tmp_path: Path) -> None:
    with installed(tmp_path) as module:
        check_recipe(*module.flare_recipe_descriptors())


def test_the_variants_that_the_loader_reads(tmp_path: Path) -> None:
    """Tied embeddings, biases and scaled rotary frequencies, which the generated checkpoint lacks."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    variant = f"tie_word_embeddings=True, attention_bias=True, head_dim=24, rope_parameters={rope}"
    with installed(tmp_path, edited("src/PACKAGE/oracle.py", "tie_word_embeddings=False", variant)) as module:
        (descriptor,) = module.flare_recipe_descriptors()
        recipe = load_recipe(descriptor)
        checkpoint = recipe.oracle.tiny_checkpoint(tmp_path / "tiny")
        capacities = CapacityRequest(context=160, concurrency=1, prefill_chunk_size=32, page_tokens=16)
        core = round_trip(recipe, checkpoint, tmp_path / "core.safetensors", capacities=capacities)
        check_chunks(core, recipe, checkpoint)


FAULTS = {
    "torch in the descriptor": (
        edited("src/PACKAGE/descriptor.py", "from flare.recipes", "import torch\nfrom flare.recipes"),
        r"recipe package: planted-tiny is broken: its light module imports torch; keep that behind",
    ),
    "a model without entry point": (
        edited("pyproject.toml", f"{NAME}-tiny =", f"{NAME}-small ="),
        r"recipe package: planted-small is broken: no descriptor in flare_recipe_planted lists this model",
    ),
    "an extra that does not exist": (
        edited("src/PACKAGE/descriptor.py", "architectures=", 'requires_extras=("gpu",), architectures='),
        "recipe package: its distribution has no extra gpu",
    ),
    "no hook": (
        edited("src/PACKAGE/__init__.py", "@hookimpl\n", ""),
        r"recipe package: planted-tiny is broken: implements no hook of flare",
    ),
    "another API": (
        edited("src/PACKAGE/descriptor.py", "api_version=RECIPE_API_VERSION", "api_version=99"),
        "recipe package: planted-tiny is broken: written for recipe API 99",
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
def test_a_planted_fault_is_named(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "torch" not in fault:  # a process for each would take longer than the rest together
        monkeypatch.setattr(registry, "heavy_import", lambda entry: None)
    change, message = FAULTS[fault]
    with installed(tmp_path, change) as module, pytest.raises(AssertionError, match=f"^{message}"):
        check_recipe(module)


def test_a_package_that_is_not_installed(tmp_path: Path) -> None:
    with installed(tmp_path) as module:
        for file in tmp_path.rglob("entry_points.txt"):
            file.unlink()
        with pytest.raises(
            AssertionError, match="recipe package: no installed distribution names flare_recipe"
        ):
            check_recipe(module)
        with pytest.raises(
            AssertionError, match=r"recipe package: no installed distribution has .* for planted-tiny"
        ):
            check_recipe(*module.flare_recipe_descriptors())
