"""Identity: which content this core holds and where it can run. Provenance: for people only."""

from __future__ import annotations

from pydantic import Field

from flare.contract.base import ContractModel

FORMAT_VERSION = 1


class OperatorLibrary(ContractModel):
    """A Python module that registers `flare::*` operators, and the versions that keep their meaning
    (`minimum` <= version < `below`)."""

    module: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")
    distribution: str
    minimum: str
    below: str


class Identity(ContractModel):
    """`fingerprint` hashes checkpoint revision, config, tensor headers and package versions.

    `device` is `cpu`, `sim` or a CUDA architecture (`sm_90`); `instruction_set` says what a CPU core's
    arithmetic was measured with. One core is for one device kind.
    """

    format_version: int = Field(ge=1)
    fingerprint: str = Field(min_length=16)
    device: str = Field(pattern=r"^(cpu|sim|sm_[0-9]+[a-z]?)$")
    instruction_set: str | None = None
    world_size: int = Field(default=1, ge=1)
    operator_library: OperatorLibrary | None = None
    versions: dict[str, str] = {}


class RecipePackage(ContractModel):
    """The installed package a recipe came from; `descriptor` is the SHA-256 of what it declared of itself."""

    distribution: str
    version: str
    descriptor: str


class Oracle(ContractModel):
    """A prompt and the tokens this core drew for it at preparation, with the sampling that was used."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    seed: int
    temperature: float


class Provenance(ContractModel):
    """Where the core came from. The runtime never reads it; `flare inspect` shows it."""

    model: str
    recipe: str
    recipe_version: str
    checkpoint: str
    created: str
    retained_modules: tuple[str, ...] = ()
    replaced_modules: dict[str, str] = {}
    memory_ledger: dict[str, int] = {}
    oracle: Oracle | None = None
    recipe_package: RecipePackage | None = None
