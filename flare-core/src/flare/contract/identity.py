"""Identity: which content this core holds and where it can run. Provenance: for people only."""

from __future__ import annotations

from pydantic import Field, model_validator

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


class DrawnPosition(ContractModel):
    """The model's own log-probabilities (natural, before temperature, penalties and filters) where one token
    was drawn: of that token, and of the most likely tokens, descending."""

    logprob: float
    top_ids: tuple[int, ...] = ()
    top_logprobs: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _paired(self) -> DrawnPosition:
        if len(self.top_ids) != len(self.top_logprobs):
            raise ValueError(f"{len(self.top_ids)} ids with {len(self.top_logprobs)} log-probabilities")
        return self


class RecipePackage(ContractModel):
    """The installed package a recipe came from; `descriptor` is the SHA-256 of what it declared of itself."""

    distribution: str
    version: str
    descriptor: str


class Oracle(ContractModel):
    """A prompt and the tokens this core drew for it at preparation, with the sampling that was used.

    `positions` has one entry per token when the core's programs report log-probabilities. `bound` is how far
    (in nats) they may be from those of another machine, and `bound_basis` says how it follows from the
    precision. `spread` is how far two runs at preparation were from each other: 0 for programs whose results
    are the same bits. `conditions` are the facts about machine and libraries that decide the last bits
    (`flare.device.arithmetic_conditions`): where all agree, tokens are the same.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    seed: int
    temperature: float
    positions: tuple[DrawnPosition, ...] = ()
    bound: float | None = Field(default=None, gt=0)
    bound_basis: str = ""
    spread: float | None = Field(default=None, ge=0)
    conditions: dict[str, str] = {}

    @model_validator(mode="after")
    def _complete(self) -> Oracle:
        if self.positions and (self.bound is None or len(self.positions) != len(self.tokens)):
            raise ValueError(
                f"{len(self.positions)} positions for {len(self.tokens)} tokens, bound {self.bound}"
            )
        return self


class TunedOperator(ContractModel):
    """An operator at one shape, and the kernel chosen by the median `microseconds` of all candidates."""

    operator: str
    shape: str
    chosen: str
    microseconds: dict[str, float]


class Provenance(ContractModel):
    """Where the core came from, for people. Nothing that serves reads it: `flare inspect` shows it, and
    `flare verify` replays the oracle."""

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
    tuned: tuple[TunedOperator, ...] = ()
