"""The recipe: the parts a model package provides to preparation. Each part is small and testable alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flare.contract import DefaultSampling, DType, Frontend
from flare.contract.schemes import CacheScheme
from flare.recipes.source import LocalCheckpoint

if TYPE_CHECKING:
    from torch import Tensor, nn

    from flare.contract import BufferView
    from flare.prepare import BufferLayout, Checkpoint, ProgramSet, ServingPlan, TensorMap


class Loader(Protocol):
    """Reads a checkpoint: its format, its configuration, and where each of its tensors goes."""

    def open(self, path: Path | LocalCheckpoint) -> Checkpoint:
        """Open any format the recipe reads. Raises CheckpointError naming what is wrong."""

    def config(self, checkpoint: Checkpoint) -> Any:
        """The model configuration (a Transformers config). Raises CheckpointError for a missing field."""

    def tensor_map(self, config: Any) -> TensorMap:
        """For every model tensor, the checkpoint tensors it is made of."""


@dataclass(frozen=True)
class BuiltModel:
    """The canonical model on the meta device after replacement.

    `module` implements what the recipe's programs need. `constants` are tensors computed from the
    configuration rather than read (rotary frequencies), by qualified name. `retained` are qualified class
    names whose forward still runs; `replaced` maps replaced class names to what stands in.
    """

    module: nn.Module
    context: int
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    retained: tuple[type[nn.Module], ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)


class Replacements(Protocol):
    """Instantiates the canonical class on the meta device and replaces what serving needs different."""

    def build(self, config: Any, dtype: DType) -> BuiltModel:
        """The model to serve, without weights."""


class Schemes(Protocol):
    """Declares the state the model keeps."""

    def schemes(self, config: Any, dtype: DType) -> tuple[CacheScheme, ...]:
        """Cache schemes in storage order."""


class Programs(Protocol):
    """Composes the complete programs, normally with `flare_components.serving.compose`."""

    def compose(
        self, plan: ServingPlan, model: nn.Module, layout: BufferLayout, weights: dict[str, BufferView]
    ) -> ProgramSet:
        """Every program of the core. `weights` maps parameter names to storage placed in `layout`."""


@dataclass(frozen=True)
class FrontendFiles:
    """Frontend description plus the bytes it names."""

    frontend: Frontend
    assets: Mapping[str, bytes]


class FrontendPart(Protocol):
    """Writes tokenizer, template and policy into the core."""

    def assets(self, checkpoint: Checkpoint, config: Any, sampling: DefaultSampling) -> FrontendFiles:
        """The frontend of this checkpoint."""


class Oracle(Protocol):
    """References for tests: the Transformers model, and a checkpoint small enough for them."""

    def reference(self, checkpoint: Checkpoint, dtype: DType) -> nn.Module:
        """The canonical Transformers model with this checkpoint's weights."""

    def tiny_checkpoint(self, directory: Path, *, seed: int = 0) -> Path:
        """Write a small random checkpoint of the same architecture; returns its directory."""

    def prompt(self) -> str:
        """A prompt whose first tokens are recorded in the core at preparation."""


@dataclass(frozen=True)
class Recipe:
    """The complete recipe. Nothing else exists for a recipe to hook into. `page_tokens` is the size of a
    cache page where nobody asks for another one."""

    loader: Loader
    replacements: Replacements
    cache_schemes: Schemes
    programs: Programs
    sampling: DefaultSampling
    frontend: FrontendPart
    oracle: Oracle
    page_tokens: int = 64
