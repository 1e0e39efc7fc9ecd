"""Speculative service on the hash model: right at every width, wherever it is cut, and no fault survives."""

from dataclasses import replace

import pytest
from engine_harness import Harness, request
from random_load import serve
from service_models import SPECULATIVE, speculative

from flare.contract import Record, ValueSource
from flare.device.sim_ops import OPERATORS, SimOperator
from flare.engine import packing
from flare.engine.messages import Finished
from flare.errors import ExecutionError
from flare.scheduler import Scheduler
from flare.scheduler.residency import Residency

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)


def model(width: int, ragged: bool, host: bool, agreement: int = 200):
    rows = 4 + width // 2 if ragged else 4 * width
    return speculative((4, width - 1, width, rows), host_proposals=host, agreement=agreement)


@pytest.mark.parametrize("width", range(1, 9))
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("host", [False, True])
def test_streams_are_those_of_decoding_in_fewer_steps(width, ragged, host):
    harness = Harness(model(width, ragged, host, agreement=256))
    for index in range(4):
        harness.submit(request(f"r{index}", PROMPT[index:], max_tokens=24, seed=index, stops=(7,)[index:]))
    harness.run()
    harness.check()
    drafted, accepted = harness.scheduler.drafted
    assert drafted == 0 if width == 1 else accepted > 0.8 * drafted > 0
    harness.check_empty()
    harness.close()


def steps_of_one_service(model, cancel_at: int | None = None) -> int:
    """Two requests and one that continues the first, cancelled after so many engine steps; steps in all."""
    harness = Harness(model, proposal_key=5)
    for name in ("a", "b"):
        harness.submit(request(name, PROMPT, max_tokens=20, seed=ord(name)))
    steps = 0
    while harness.engine.step():
        steps += 1
        if steps == cancel_at:
            harness.engine.cancel("a")
            harness.engine.cancel("b")
    going_on = PROMPT + tuple(harness.output("a"))
    harness.submit(request("c", going_on, max_tokens=9, seed=3))
    harness.run()
    harness.check()
    end = harness.end("c")
    assert isinstance(end, Finished)
    if len(going_on) > len(PROMPT):
        # All that was consumed is restored: everything but the last drawn token.
        assert end.cached_tokens >= len(going_on) - 1
    harness.check_empty()
    harness.close()
    return steps


@pytest.mark.parametrize("host", [False, True])
def test_a_request_can_be_cancelled_at_any_step(host):
    one = replace(model(4, ragged=False, host=host), snapshot_rows=12)
    for step in range(1, steps_of_one_service(one) + 1):
        steps_of_one_service(one, cancel_at=step)


def test_a_record_of_more_tokens_than_inputs_fails_the_engine():
    harness = Harness(model(4, False, False), corrupt={4: {Record.TOKENS: 4, Record.CONSUMED: 99}})
    harness.submit(request("a", PROMPT, max_tokens=3))
    with pytest.raises(ExecutionError, match="expected"):
        harness.run()
    harness.close()


# Faults: each must be noticed.


def replace_operator(patch, name, run):
    known = OPERATORS[name]
    patch.setitem(OPERATORS, name, SimOperator(name, known.schema_text, run(known.run)))


def snapshot_the_first_column(patch):
    def change(run):
        return lambda slots, columns, *rest: run(slots, columns * 0, *rest)

    replace_operator(patch, "sim::take_column", change)


def forget_the_live_column(patch):
    def change(run):
        def commit(tokens, starts, accepted, slots, live_rows, tables, consumed, columns, *fields):
            run(tokens, starts, accepted, slots, live_rows, tables, consumed, columns, *fields)
            columns[:] = 0

        return commit

    replace_operator(patch, "sim::commit", change)


def commit_one_rejected_input(patch):
    """To what is in the first row."""

    def change(run):
        def commit(tokens, starts, accepted, slots, live_rows, tables, consumed, columns, *fields):
            kept = consumed.copy(), columns.copy()
            more = accepted + (accepted > 0)
            run(tokens, starts, more, slots, live_rows, tables, consumed, columns, *fields)
            consumed[:], columns[:] = kept
            for slot, count in zip(slots.tolist(), accepted.tolist(), strict=True):
                if count:
                    consumed[slot], columns[slot] = consumed[slot] + count, count - 1

        return commit

    replace_operator(patch, "sim::commit", change)


def commit_one_input_too_few(patch):
    def change(run):
        def commit(tokens, starts, accepted, slots, live_rows, tables, consumed, columns, *fields):
            window = fields[1].copy()
            run(tokens, starts, accepted, slots, live_rows, tables, consumed, columns, *fields)
            for slot, row, count in zip(slots.tolist(), live_rows.tolist(), accepted.tolist(), strict=True):
                if count > 1:  # the last accepted input is missing from the window
                    place = (int(consumed[slot]) - 1) % window.shape[1]
                    fields[1][row, place] = window[row, place]

        return commit

    replace_operator(patch, "sim::commit", change)


def advance_by_the_inputs(patch):
    """The scheduler believes that every proposal was right."""
    complete = Scheduler.complete

    def whole(scheduler, plan, records, elapsed_us):
        complete(scheduler, plan, records, elapsed_us)
        if plan.program.speculation is not None:
            for lane in plan.lanes:
                lane.request.consumed = lane.consumed + lane.length

    patch.setattr(Scheduler, "complete", whole)


def write_beyond_the_pages(patch):
    patch.setattr(Residency, "room", lambda residency, request, most=1: 8)


def tell_one_page_per_step(patch):
    pack = packing._PACKERS[ValueSource.PAGE_UPDATES]

    def first(view, plan):
        pack(view, plan)
        if view.ndim == 3:
            view[:, 1:] = -1

    patch.setitem(packing._PACKERS, ValueSource.PAGE_UPDATES, first)


def capture_behind_the_accepted(patch):
    """A snapshot is published for one token more than was consumed."""
    reserve = Residency.reserve_snapshot

    def one_more(residency, request, tokens, last):
        capture = reserve(residency, request, tokens, last)
        if capture is not None and (tokens + 1) % residency.pages.page_tokens > 1:
            return replace(capture, tokens=tokens + 1)
        return capture

    patch.setattr(Residency, "reserve_snapshot", one_more)


@pytest.mark.parametrize(
    "plant",
    [
        snapshot_the_first_column,
        forget_the_live_column,
        commit_one_rejected_input,
        commit_one_input_too_few,
        advance_by_the_inputs,
        write_beyond_the_pages,
        tell_one_page_per_step,
        capture_behind_the_accepted,
    ],
)
def test_a_planted_fault_is_noticed(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, ExecutionError)):  # noqa: PT012
        for seed in range(60):
            serve(seed, SPECULATIVE, most_rounds=30)


def test_services_without_a_fault_are_right():
    for seed in range(12):
        serve(seed, SPECULATIVE, most_rounds=30)
