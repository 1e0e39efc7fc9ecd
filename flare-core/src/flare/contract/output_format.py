"""How a model writes reasoning, its answer and tool calls: marks, and what stands between them.

Data that a recipe writes into a core; `flare.frontend.output_machine` reads it. A new format of the same
shape needs new data and no new code.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, model_validator

from flare.contract.base import ContractModel


class Mark(ContractModel):
    """`text` that ends one part of an output and begins another. With `token`, the mark is that token and
    nothing else: the same text spelled by other tokens is text."""

    text: str = Field(min_length=1)
    token: int | None = Field(default=None, ge=0)


class ReasoningFormat(ContractModel):
    """Reasoning stands between `start` and `end`, before the answer. A prompt may end with `start`: then it
    is open already."""

    start: Mark
    end: Mark


class CallSyntax(StrEnum):
    """How the inside of a call is read. Each value names an interpreter, never a model."""

    TAGGED = "tagged"  # a name, then keys and values between literals
    JSON = "json"  # one object: {"name": ..., "arguments": {...}}


class TaggedArguments(ContractModel):
    """Literals of a tagged call, in the order in which they stand; whitespace between them has no meaning.

    `name_start` NAME `name_end`, then per argument `argument_start` KEY `key_end` `value_start` VALUE
    `value_end`, then `body_end`. An empty `name_end` ends a name where an argument or the call's end begins;
    other empty literals are not written. With `typed`, what stands between `key_end` and `value_start` is
    `true` for a string, whose value is verbatim, and `false` for JSON. With `newlines`, one newline behind
    `value_start` and one before `value_end` do not belong to a value.
    """

    name_start: str = ""
    name_end: str = ""
    argument_start: str = Field(min_length=1)
    key_end: str = Field(min_length=1)
    value_start: str = ""
    value_end: str = Field(min_length=1)
    body_end: str = ""
    typed: bool = False
    newlines: bool = False


class CallFormat(ContractModel):
    """Every call stands between `start` and `end`, and with `section` all of them between two more marks."""

    syntax: CallSyntax
    start: Mark
    end: Mark
    section: tuple[Mark, Mark] | None = None
    arguments: TaggedArguments | None = None

    @model_validator(mode="after")
    def _complete(self) -> CallFormat:
        if (self.syntax is CallSyntax.TAGGED) != (self.arguments is not None):
            raise ValueError(f"literals of arguments and syntax {self.syntax.value} do not go together")
        return self


class OutputFormat(ContractModel):
    """What of an output is more than the answer; None for what a model does not write."""

    reasoning: ReasoningFormat | None = None
    calls: CallFormat | None = None
