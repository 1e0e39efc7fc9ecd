"""Completion reading: the bytes a program reports, as records for the scheduler."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import (
    METADATA_FIELDS,
    BufferView,
    CompletionField,
    PreparedContract,
    Program,
    ProgramKind,
    Record,
    Region,
)
from flare.engine.messages import TokenLogprobs
from flare.engine.values import completion_type
from flare.engine.views import array_over, check_region, check_view
from flare.errors import CoreError, ExecutionError
from flare.scheduler import LaneRecord, Plan

F = CompletionField


class CompletionReader:
    """Reads completions of one program.

    Raises CoreError, naming program and field, when a field has another type than the contract says, or
    when a program that draws tokens reports no records.
    """

    def __init__(self, contract: PreparedContract, program: Program) -> None:
        self._capacity = contract.capacities.completion_tokens
        self._views: dict[CompletionField, BufferView] = {}
        for binding in program.completion:
            where = f"program {program.name}: completion {binding.field.value}"
            expected = completion_type(binding.field, program, contract)
            if expected is None:
                raise CoreError(f"{where} cannot be read by this engine", field=where)
            check_view(binding.view, expected, where)
            check_region(contract, binding.view, Region.COMPLETION, where)
            self._views[binding.field] = binding.view
        if F.RECORDS not in self._views and (
            program.kind in (ProgramKind.PREFILL, ProgramKind.DECODE, ProgramKind.SPECULATIVE) or self._views
        ):
            raise CoreError(f"program {program.name} reports no records", field="completion")
        self._has_top = F.TOP_IDS in self._views and F.TOP_LOGPROBS in self._views

    def read(self, plan: Plan, completion: NDArray[np.uint8]) -> list[LaneRecord]:
        """One record per lane of the program; empty when the program reports none.

        Raises ExecutionError when a record claims more tokens than it can hold.
        """
        if not self._views:
            return []
        rows: list[list[int]] = array_over(completion, self._views[F.RECORDS]).tolist()
        records: list[LaneRecord] = []
        for index, row in enumerate(rows):
            count = row[Record.TOKENS]
            if not 0 <= count <= self._capacity:
                raise ExecutionError(
                    f"frame {plan.frame} ({plan.program.name}) lane {index}: record of {count} tokens, "
                    f"capacity {self._capacity}"
                )
            records.append(
                LaneRecord(
                    status=row[Record.STATUS],
                    slot=row[Record.SLOT],
                    epoch=row[Record.EPOCH],
                    tokens=row[METADATA_FIELDS : METADATA_FIELDS + count],
                    finished=row[Record.FINISHED],
                    consumed=row[Record.CONSUMED],
                    generated=row[Record.GENERATED],
                )
            )
        for index, lane in enumerate(plan.lanes):
            wanted = lane.request.spec.logprobs
            if wanted is not None and records[index].tokens:
                records[index].logprobs = self._logprobs(
                    completion, index, len(records[index].tokens), wanted
                )
        return records

    def _logprobs(
        self, completion: NDArray[np.uint8], lane: int, count: int, wanted: int
    ) -> tuple[TokenLogprobs, ...]:
        drawn = array_over(completion, self._views[F.LOGPROBS])[lane, :count].tolist()
        if not wanted or not self._has_top:
            return tuple(TokenLogprobs(logprob=value, top=()) for value in drawn)
        ids: NDArray[Any] = array_over(completion, self._views[F.TOP_IDS])[lane, :count, :wanted]
        values: NDArray[Any] = array_over(completion, self._views[F.TOP_LOGPROBS])[lane, :count, :wanted]
        return tuple(
            TokenLogprobs(logprob=value, top=tuple(zip(top_ids, top_values, strict=True)))
            for value, top_ids, top_values in zip(drawn, ids.tolist(), values.tolist(), strict=True)
        )
