"""Programs: everything a core can run, and what each needs from the runtime."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, model_validator

from flare.contract.base import ContractModel
from flare.contract.capacities import SpeculativeShape
from flare.contract.values import CompletionBinding, ValueBinding


class ProgramKind(StrEnum):
    """What a program does; the scheduler knows these operations and no others."""

    PREFILL = "prefill"
    SCORED_PREFILL = "scored_prefill"
    DECODE = "decode"
    SPECULATIVE = "speculative"
    MIXED = "mixed"
    RESUME = "resume"
    VISION = "vision"
    START = "start"  # state maintenance: a slot begins a request on an empty row
    RESTORE = "restore"  # state maintenance: copy a snapshot row and tail page into a live slot
    SNAPSHOT = "snapshot"  # state maintenance: copy a live row and tail page into a snapshot
    PRODUCER = "producer"  # runs once at start-up and writes other programs' operands


class PendingTokens(StrEnum):
    """Where a program's pending input token comes from. `device` programs can be queued behind their
    producer; `host` programs wait for its completion."""

    NONE = "none"
    DEVICE = "device"
    HOST = "host"


class TableUse(ContractModel):
    """A table resource whose rows the program reads, and how the rows arrive: `host_rows` are uploaded, so
    the host must know every input token; of a `resident` table the program itself reads rows."""

    table: str
    delivery: str = Field(pattern="^(host_rows|resident)$")


class Payload(ContractModel):
    """Executable form for one rank: core tensor `tensor`, in `format` (`oplist`, `cuda_graph`)."""

    rank: int = Field(ge=0)
    format: str = Field(pattern="^(oplist|cuda_graph)$")
    tensor: str


class Program(ContractModel):
    """One prepared program. `lanes` L and `tokens` N are its capacities (N = L for decode).

    `reads` and `writes` name buffers besides weights and upload. `rows_per_lane` continuation rows are
    required for every active lane. `cost_us` is the measured run time at full capacity.
    """

    name: str
    kind: ProgramKind
    lanes: int = Field(ge=0)
    tokens: int = Field(ge=0)
    speculation: SpeculativeShape | None = None
    bindings: tuple[ValueBinding, ...] = ()
    completion: tuple[CompletionBinding, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    pending: PendingTokens = PendingTokens.NONE
    rows_per_lane: int = Field(default=0, ge=0)
    tables: tuple[TableUse, ...] = ()
    payloads: tuple[Payload, ...] = Field(min_length=1)
    cost_us: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _shaped(self) -> Program:
        if (self.kind is ProgramKind.SPECULATIVE) != (self.speculation is not None):
            raise ValueError(f"program {self.name}: kind and speculative shape disagree")
        shape = self.speculation
        if shape is not None and (shape.requests, shape.rows) != (self.lanes, self.tokens):
            raise ValueError(
                f"program {self.name}: {self.lanes} lanes and {self.tokens} tokens disagree with {shape}"
            )
        if self.kind is ProgramKind.DECODE and self.tokens != self.lanes:
            raise ValueError(f"program {self.name}: a decode program has one token per lane")
        sources = [binding.source for binding in self.bindings if binding.table is None]
        if len(set(sources)) != len(sources):
            raise ValueError(f"program {self.name}: a value source is bound twice")
        return self

    @property
    def upload_bytes(self) -> int:
        """Leading bytes of the upload buffer that the program's bindings cover."""
        return max((binding.view.end for binding in self.bindings), default=0)

    @property
    def completion_bytes(self) -> int:
        """Leading bytes of the completion buffer that the program reports."""
        return max((binding.view.end for binding in self.completion), default=0)
