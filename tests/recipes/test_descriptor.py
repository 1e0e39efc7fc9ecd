"""Descriptors: what they accept, and that they never change."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from flare.recipes import RECIPE_API_VERSION, ModelEntry, RecipeDescriptor


def fields(**changes: Any) -> dict[str, Any]:
    model = {"name": "small-1b", "checkpoint": "hf://o/small@main", "license": "Apache-2.0"}
    return {
        "name": "small",
        "title": "Small models",
        "api_version": RECIPE_API_VERSION,
        "models": [model],
        "architectures": ["SmallForCausalLM"],
        "recipe": "some_package.recipe:RECIPE",
        **changes,
    }


def test_defaults_to_one_rank_and_no_extras() -> None:
    descriptor = RecipeDescriptor(**fields())
    assert descriptor.world_sizes == (1,)
    assert descriptor.requires_extras == ()
    assert descriptor.models[0].sha256 is None


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen3.8", "a", "mimo_v2.5"])
def test_names_that_a_user_can_type(name: str) -> None:
    assert RecipeDescriptor(**fields(name=name)).name == name


@pytest.mark.parametrize("name", ["", "Small", "-small", "small-", "a b", "a/b", "../a", "a--b", "x" * 65])
def test_names_that_no_file_or_shell_should_see(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        RecipeDescriptor(**fields(name=name))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("models", []),
        ("architectures", []),
        ("recipe", "package.recipe"),
        ("recipe", "package:a.b"),
        ("recipe", "os; import x:Y"),
        ("world_sizes", [0]),
        ("world_sizes", [2, 1]),
        ("world_sizes", [1, 1]),
        ("world_sizes", []),
        ("api_version", 0),
        ("titel", "misspelt fields are not ignored"),
    ],
)
def test_rejects(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        RecipeDescriptor(**fields(**{field: value}))


def test_model_names_must_differ() -> None:
    model = fields()["models"][0]
    with pytest.raises(ValidationError, match="small-1b"):
        RecipeDescriptor(**fields(models=[model, model]))


@pytest.mark.parametrize("pin", ["bcc8", "Z" * 64, "A" * 64])
def test_pins_are_lower_case_sha256(pin: str) -> None:
    with pytest.raises(ValidationError, match="sha256"):
        ModelEntry(name="a", checkpoint="x", license="MIT", sha256=pin)


def test_frozen() -> None:
    descriptor = RecipeDescriptor(**fields())
    with pytest.raises(ValidationError):
        descriptor.name = "other"  # type: ignore[misc]
