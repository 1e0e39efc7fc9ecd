"""Completion records, and the checks every one passes before scheduler state changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flare.contract import FinishCode, ProgramKind, Status
from flare.errors import ExecutionError
from flare.scheduler.plan import Lane, Plan
from flare.scheduler.request import Phase


@dataclass(slots=True)
class LaneRecord:
    """One lane's completion record (`flare.contract.completion`). `logprobs` holds one entry per token when
    the program reports them and the request asked; the scheduler only hands it on."""

    status: int
    slot: int
    epoch: int
    tokens: list[int]
    finished: int
    consumed: int
    generated: int
    logprobs: tuple[object, ...] = ()


def check_records(plan: Plan, records: Sequence[LaneRecord], vocab_size: int) -> None:
    """Compare the records of a completed plan (one per lane of the program) with what was submitted.

    A record that disagrees means that host and device no longer agree on who owns what. Nothing computed
    from then on can be trusted, so this fails the engine and not one request. Raises ExecutionError.
    """
    if len(records) != plan.program.lanes:
        raise ExecutionError(
            f"frame {plan.frame} ({plan.program.name}): {len(records)} records for {plan.program.lanes} lanes"
        )
    for index, record in enumerate(records):
        if index < len(plan.lanes):
            speculative = plan.program.kind is ProgramKind.SPECULATIVE
            problem = _lane_problem(plan.lanes[index], record, vocab_size, speculative)
        else:
            problem = None if record.status == Status.PADDING else f"padding reports status {record.status}"
        if problem is not None:
            raise ExecutionError(f"frame {plan.frame} ({plan.program.name}) lane {index}: {problem}")


def _lane_problem(lane: Lane, record: LaneRecord, vocab_size: int, speculative: bool) -> str | None:
    """What is wrong with an active lane's record, or None."""
    request, slot = lane.request, lane.request.slot
    if record.slot != slot.index or record.epoch != slot.epoch:
        return (
            f"record of slot {record.slot} epoch {record.epoch}, submitted slot {slot.index} "
            f"epoch {slot.epoch}"
        )
    tokens = record.tokens
    if record.status == Status.INVALID:
        return f"{len(tokens)} tokens drawn from invalid logits" if tokens else None
    if record.status != Status.OK:
        return f"unexpected status {record.status}"
    if request.device_finished:
        return f"{len(tokens)} tokens after the slot had finished" if tokens else None
    if request.phase is Phase.ENDED:  # cancelled or failed by the host: whatever was drawn is dropped
        return None
    if speculative:
        problem = _round_problem(lane, tokens, request.stop_tokens)
        if problem is not None:
            return problem
    elif len(tokens) != int(lane.sample):
        return f"{len(tokens)} tokens, expected {int(lane.sample)}"
    consumed = lane.consumed + (len(tokens) if speculative else lane.length)
    if record.consumed != consumed:
        return f"consumed {record.consumed} tokens, expected {consumed}"
    generated = request.generated - request.before + len(tokens)  # since this admission
    if record.generated != generated:
        return f"generated {record.generated} tokens, expected {generated}"
    for token in tokens:
        if not 0 <= token < vocab_size:
            return f"token {token} outside the vocabulary of {vocab_size}"
    stopped = bool(tokens) and tokens[-1] in request.stop_tokens
    at_length = request.before + record.generated >= request.max_tokens
    allowed: tuple[FinishCode, ...]
    if stopped and at_length:
        allowed = (FinishCode.STOP_TOKEN, FinishCode.LENGTH)
    elif stopped:
        allowed = (FinishCode.STOP_TOKEN,)
    elif at_length:
        allowed = (FinishCode.LENGTH,)
    else:
        allowed = (FinishCode.LIVE,)
    if record.finished not in allowed:
        return f"finish code {record.finished}, expected {allowed[0].value}"
    return None


def _round_problem(lane: Lane, tokens: Sequence[int], stop_tokens: frozenset[int]) -> str | None:
    """What is wrong with the tokens of one speculative step: one for the pending token, one more for every
    proposal that was accepted, and none behind a stop token."""
    if not 1 <= len(tokens) <= lane.length:
        return f"{len(tokens)} tokens, expected 1 to {lane.length}"
    accepted = list(tokens[:-1])
    if lane.proposals and accepted != list(lane.proposals[: len(accepted)]):
        return f"accepted tokens {accepted} of proposals {list(lane.proposals)}"
    if any(token in stop_tokens for token in accepted):
        return f"tokens {list(tokens)} go on behind a stop token"
    return None
