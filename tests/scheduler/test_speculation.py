"""Speculative steps: which program, how many inputs, whose pages, and what a record may say."""

import pytest
from test_scheduler import Log, Spec, answer, trace

from flare.contract import FinishCode, Status
from flare.errors import CapacityError, ExecutionError
from flare.scheduler import LaneRecord, Phase, Plan, Scheduler, Settings
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import HashShape

SHAPES = ((4, 0, 1, 4), (1, 3, 4, 4), (4, 3, 4, 16), (4, 7, 8, 20))
MODEL = HashModel(context=64, page_tokens=8, speculative=SHAPES)


class Fixed:
    """Proposes the same tokens every time, and remembers how many were asked for."""

    def __init__(self, *tokens: int):
        self.tokens, self.limits = tokens, []

    def propose(self, request, limit):
        self.limits.append(limit)
        return self.tokens[:limit]


def decoding(
    model: HashModel, *prompts: int, proposals=None, max_tokens: int = 40, stops=(), **settings
) -> tuple[Scheduler, Log]:
    """A scheduler whose requests have so many prompt tokens and drew their first token. Meanwhile those
    before drew one more per step."""
    log = Log()
    contract = model.build().contract
    made = Scheduler(contract, log, Settings(prefix_caching=False, **settings), 2, None, proposals)
    for index, length in enumerate(prompts):
        made.submit(Spec("abcd"[index], tuple(range(length)), max_tokens, stop_token_ids=stops))
    while any(request.phase is Phase.PREFILLING for request in made._running):
        plan = made.plan()
        records = drawn(plan, *[[9]] * len(plan.lanes)) if plan.program.speculation else answer(plan)
        made.complete(plan, records, 0.0)
    return made, log


def drawn(plan: Plan, *tokens: list[int], **changes) -> list[LaneRecord]:
    """Records of lanes that drew `tokens` each."""
    records = []
    for lane, own in zip(plan.lanes, tokens, strict=False):
        generated = lane.request.generated - lane.request.before + len(own)
        finished = FinishCode.LIVE
        if own[-1] in lane.request.stop_tokens:
            finished = FinishCode.STOP_TOKEN
        elif lane.request.before + generated >= lane.request.max_tokens:
            finished = FinishCode.LENGTH
        slot = lane.request.slot
        consumed = lane.consumed + len(own)
        records.append(LaneRecord(Status.OK, slot.index, slot.epoch, own, finished, consumed, generated))
    padding = LaneRecord(Status.PADDING, 0, 0, [], 0, 0, 0)
    records += [padding] * (plan.program.lanes - len(records))
    for name, value in changes.items():
        setattr(records[0], name, value)
    return records


def lengths(plan: Plan) -> list[int]:
    return [lane.length for lane in plan.lanes]


def test_a_step_advances_by_what_was_accepted():
    s, log = decoding(MODEL, 5)
    plan = s.plan()
    assert (trace(plan), lengths(plan)) == (("speculative_4_7_8_20", "a"), [8])
    assert s.plan() is None  # nobody knows yet how far it goes
    s.complete(plan, drawn(plan, [1, 2, 3]), 0.0)
    assert log.lines[-1] == ("drew", "a", 1, 2, 3)
    plan = s.plan()
    assert (plan.lanes[0].consumed, lengths(plan)) == (8, [8])
    s.complete(plan, drawn(plan, [4]), 0.0)
    assert s.plan().lanes[0].consumed == 9
    assert s.drafted == (14, 2)


def test_rows_are_dealt_to_the_lanes():
    s, _ = decoding(MODEL, 5, 5, 5)
    plan = s.plan()
    assert (plan.program.name, lengths(plan)) == ("speculative_4_7_8_20", [7, 7, 6])


@pytest.mark.parametrize(
    ("draft_tokens", "name", "length"),
    [
        (None, "speculative_4_7_8_20", 8),
        (7, "speculative_4_7_8_20", 8),
        (3, "speculative_1_3_4_4", 4),
        (0, "decode_1", 1),
    ],
)
def test_the_number_of_draft_tokens_is_a_setting(draft_tokens, name, length):
    s, _ = decoding(MODEL, 5, draft_tokens=draft_tokens)
    plan = s.plan()
    assert (plan.program.name, lengths(plan)) == (name, [length])


def test_what_is_not_prepared_is_refused_at_once():
    with pytest.raises(CapacityError, match=r"no program for 2 draft tokens; .* programs for: 0, 3, 7"):
        decoding(MODEL, draft_tokens=2)
    with pytest.raises(CapacityError, match="programs for: none"):
        decoding(HashModel(), draft_tokens=1)
    with pytest.raises(CapacityError, match="take 2 requests, the core serves 4"):
        decoding(HashModel(speculative=((2, 3, 4, 8),)))
    with pytest.raises(CapacityError, match="impossible"):
        Settings(draft_tokens=-1)


def test_a_core_without_such_programs_decodes():
    s, _ = decoding(HashModel(), 5)
    assert s.plan().program.name == "decode_1"


def test_inputs_never_outnumber_the_tokens_that_may_follow():
    s, log = decoding(MODEL, 5, max_tokens=4)
    plan = s.plan()
    assert (plan.program.name, lengths(plan)) == ("speculative_1_3_4_4", [3])  # cheaper, and enough
    s.complete(plan, drawn(plan, [1, 2]), 0.0)
    plan = s.plan()
    assert lengths(plan) == [1]
    s.complete(plan, drawn(plan, [7]), 0.0)
    assert log.lines[-1] == ("finished", "a", "length")


def test_the_context_bounds_inputs_and_pages():
    s, _ = decoding(MODEL, 60, max_tokens=40)
    plan = s.plan()
    assert lengths(plan) == [3]
    assert len(plan.lanes[0].request.pages) == 8


def test_pages_are_reserved_for_every_input():
    shape = HashShape(group=2)
    model = HashModel(context=64, page_tokens=2, speculative=((4, 7, 8, 32),), pages=33, shape=shape)
    s, _ = decoding(model, 5)
    request = s._running[0]
    assert len(request.pages) == 4
    plan = s.plan()
    assert lengths(plan) == [8]
    assert [logical for logical, _ in plan.lanes[0].page_updates] == [4, 5, 6, 7]
    assert [physical for _, physical in plan.lanes[0].page_updates] == request.pages[4:]
    s.complete(plan, drawn(plan, [1] * 8), 0.0)
    plan = s.plan()
    assert plan.lanes[0].consumed + plan.lanes[0].length <= 2 * len(request.pages)


def test_a_step_makes_do_with_the_pages_there_are():
    model = HashModel(context=64, page_tokens=4, pages=17, speculative=((4, 7, 8, 32),), concurrency=4)
    s, log = decoding(model, 24, 29)  # 7 and 9 of 16 pages
    plan = s.plan()
    assert lengths(plan) == [2, 7]
    assert all(not lane.page_updates for lane in plan.lanes)
    s.complete(plan, drawn(plan, [1] * 2, [1] * 7), 0.0)
    plan = s.plan()  # neither has a page left: the newest makes way
    assert ("preempted", "b", 8) in log.lines
    assert trace(plan)[1:] == ("a",)
    assert lengths(plan) == [8]


HOST = HashModel(context=64, page_tokens=8, speculative=SHAPES, host_proposals=True)


def test_proposals_of_the_host_bound_the_inputs():
    source = Fixed(30, 31)
    s, _ = decoding(HOST, 5, 5, proposals=source)
    source.limits.clear()
    plan = s.plan()
    assert (plan.program.name, lengths(plan)) == ("speculative_4_3_4_16", [3, 3])
    assert [tuple(lane.proposals) for lane in plan.lanes] == [(30, 31)] * 2
    assert source.limits == [7, 7]
    s.complete(plan, drawn(plan, [30, 4], [5]), 0.0)
    assert [lane.consumed for lane in s.plan().lanes] == [8, 6]


@pytest.mark.parametrize("source", [None, Fixed()])
def test_without_proposals_of_the_host_a_step_is_a_decode_step(source):
    s, _ = decoding(HOST, 5, proposals=source)
    plan = s.plan()
    assert (plan.program.name, lengths(plan)) == ("decode_1", [1])
    assert s.plan() is None  # proposals of the next step need this one's token


@pytest.mark.parametrize(
    ("tokens", "changes", "message"),
    [
        ([30, 31, 4, 4], {}, "4 tokens, expected 1 to 3"),
        ([4], {"tokens": []}, "0 tokens, expected 1 to 3"),
        ([30, 4, 5], {}, r"accepted tokens \[30, 4\] of proposals \[30, 31\]"),
        ([30, 4], {"consumed": 8}, "consumed 8 tokens, expected 7"),
        ([30, 4], {"generated": 2}, "generated 2 tokens, expected 3"),
        ([30, 97], {}, "token 97 outside the vocabulary"),
        ([30, 4], {"finished": FinishCode.LENGTH}, "finish code 2, expected 0"),
    ],
)
def test_a_record_that_cannot_be_is_an_error(tokens, changes, message):
    s, _ = decoding(HOST, 5, proposals=Fixed(30, 31))
    plan = s.plan()
    with pytest.raises(ExecutionError, match=message):
        s.complete(plan, drawn(plan, tokens, **changes), 0.0)


def test_nothing_follows_a_stop_token():
    s, log = decoding(MODEL, 5, stops=(7,))
    plan = s.plan()
    with pytest.raises(ExecutionError, match=r"tokens \[1, 7, 2\] go on behind a stop token"):
        s.complete(plan, drawn(plan, [1, 7, 2]), 0.0)
    s.complete(plan, drawn(plan, [1, 7]), 0.0)
    assert log.lines[-2:] == [("drew", "a", 1, 7), ("finished", "a", "stop")]


def test_a_cancelled_step_ends_where_its_record_says():
    log = Log()
    s = Scheduler(MODEL.build().contract, log, Settings(), 2)
    s.submit(Spec("a", tuple(range(5)), 40))
    while (plan := s.plan()).program.speculation is None:
        s.complete(plan, answer(plan), 0.0)
    s.cancel("a")
    s.complete(plan, drawn(plan, [1, 2, 3]), 0.0)
    plan = s.plan()
    assert (plan.program.name, plan.capture.tokens) == ("snapshot", 8)
    s.complete(plan, [], 0.0)
    assert s.tree.find(plan.lanes[0].request.identity, 8).tokens == 8
