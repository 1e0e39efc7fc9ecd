"""The state of a published model: its sizes, and what is no published configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flare.contract import DType
from flare.errors import CheckpointError, RecipeError
from flare.prepare.published import PublishedCheckpoint, plan_state, read_published
from flare.recipes import ModelEntry
from flare_recipe_smollm.recipe import RECIPE

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 288,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": True,
}


def entry(published: str | None) -> ModelEntry:
    return ModelEntry(name="m", checkpoint="/nowhere", license="MIT", published=published)


def test_sizes_are_those_of_the_declared_state() -> None:
    plan = plan_state(RECIPE, PublishedCheckpoint(CONFIG, "here"), DType.F32, page_tokens=32)
    assert plan.token_bytes == 3 * 2 * (2 * 16) * 4
    assert plan.page.nbytes == 32 * plan.token_bytes
    assert {size.scheme.name: size.row for size in plan.schemes} == {"key": 0, "value": 0, "hidden": 64 * 4}
    assert plan.context_bytes(33) == 2 * plan.page.nbytes + plan.row.nbytes
    assert plan_state(RECIPE, PublishedCheckpoint(CONFIG, "here")).page.page_tokens == RECIPE.page_tokens


def test_a_file_of_the_package_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "published_sample"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "m.json").write_text(json.dumps({"source": "here", "config": CONFIG}))
    (package / "broken.json").write_text("{")
    (package / "other.json").write_text("[]")
    monkeypatch.syspath_prepend(tmp_path)
    found = read_published(entry("published_sample:m.json"))
    assert (found.config, found.revision) == (CONFIG, "here")
    with pytest.raises(
        CheckpointError, match=r"lm_head\.weight is not there: of here only the configuration"
    ):
        found.load("lm_head.weight")
    for name in ("published_sample:broken.json", "published_sample:other.json", "published_sample:no.json"):
        with pytest.raises(RecipeError, match=f"{name} is no published configuration"):
            read_published(entry(name))
    with pytest.raises(RecipeError, match=r"no_such_package:m\.json is no published configuration"):
        read_published(entry("no_such_package:m.json"))


def test_a_model_without_one_says_so() -> None:
    with pytest.raises(RecipeError, match="the recipe of m has no published configuration"):
        read_published(entry(None))
