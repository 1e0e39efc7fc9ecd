"""The published configuration of a model, which its recipe keeps: what state it has, without a checkpoint."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flare.contract import DType, PageGeometry, RowGeometry, page_geometry, row_geometry
from flare.contract.schemes import CacheScheme, GroupedScheme, PagedScheme
from flare.errors import CheckpointError, RecipeError
from flare.prepare.checkpoint import Assets, Checkpoint

if TYPE_CHECKING:
    import torch

    from flare.recipes import ModelEntry, Recipe


class PublishedCheckpoint(Checkpoint):
    """A checkpoint of which only the configuration is there: it has no tensors and no assets."""

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        self.config, self.tensors, self.assets, self.revision = config, {}, Assets(), source

    def load(self, name: str) -> torch.Tensor:
        """Raises CheckpointError."""
        raise CheckpointError(
            f"{name} is not there: of {self.revision} only the configuration is", field=name
        )


def read_published(entry: ModelEntry) -> PublishedCheckpoint:
    """The published configuration of a model. Raises RecipeError when the recipe has none or a broken one."""
    if entry.published is None:
        raise RecipeError(f"the recipe of {entry.name} has no published configuration", field="published")
    module, _, name = entry.published.partition(":")
    try:
        content = json.loads((importlib.resources.files(module) / name).read_bytes())
        return PublishedCheckpoint(content["config"], content["source"])
    except (ImportError, OSError, ValueError, KeyError, TypeError) as error:
        raise RecipeError(
            f"{entry.published} is no published configuration: {error}", field="published"
        ) from error


@dataclass(frozen=True)
class SchemeSize:
    """Bytes of one scheme, of all layers: those of one token in pages, and those in a row. A grouped scheme
    has both; the bytes of a token are its share of a group's entry."""

    scheme: CacheScheme
    token: float
    row: int


@dataclass(frozen=True)
class StatePlan:
    """The state of a model, from its configuration alone."""

    source: str
    dtype: DType
    schemes: tuple[SchemeSize, ...]
    page: PageGeometry
    row: RowGeometry

    @property
    def token_bytes(self) -> float:
        """Bytes of a token in pages, without what alignment adds to a page."""
        return sum(size.token for size in self.schemes)

    def context_bytes(self, tokens: int) -> int:
        """Pages and row of one request of `tokens` tokens."""
        return -(-tokens // self.page.page_tokens) * self.page.nbytes + self.row.nbytes


def plan_state(
    recipe: Recipe, published: PublishedCheckpoint, dtype: DType = DType.BF16, page_tokens: int | None = None
) -> StatePlan:
    """What `recipe` keeps for a sequence of the published model, in precision `dtype`.

    Raises CheckpointError for a configuration that the recipe does not read, and ValueError when groups do
    not divide pages of `page_tokens` (None: the recipe's choice).
    """
    schemes = recipe.cache_schemes.schemes(recipe.loader.config(published), dtype)
    page, row = page_geometry(schemes, page_tokens or recipe.page_tokens), row_geometry(schemes)
    in_pages = {field.name: field.nbytes / page.page_tokens for field in page.fields}
    in_rows = {field.name: field.nbytes for field in row.fields}
    sizes = tuple(
        SchemeSize(scheme, in_pages.get(scheme.name, 0.0), in_rows.get(_row_field(scheme), 0))
        for scheme in schemes
    )
    return StatePlan(published.revision, dtype, sizes, page, row)


def _row_field(scheme: CacheScheme) -> str:
    match scheme:
        case GroupedScheme():
            return f"{scheme.name}.open"
        case PagedScheme():
            return ""
    return scheme.name
