"""Plans: order of work, budgets, frames, reservations, and progress in every state."""

from dataclasses import dataclass, field

import pytest

from flare.contract import FinishCode, ProgramKind, Status
from flare.errors import ExecutionError
from flare.scheduler import LaneRecord, Plan, Scheduler, Settings
from flare.testing.hash_model import HashModel

START, PREFILL, DECODE = ProgramKind.START, ProgramKind.PREFILL, ProgramKind.DECODE


@dataclass
class Bias:
    logit_bias: tuple = ()


@dataclass
class Spec:
    request_id: str
    prompt: tuple[int, ...] = (1, 2, 3)
    max_tokens: int = 5
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    sampling: Bias = field(default_factory=Bias)
    endpoints: tuple[int, ...] = ()
    cache_salt: str = ""
    session: str = ""
    images: tuple = ()
    grammar: str = ""


class Log:
    """A listener that writes down what it hears."""

    def __init__(self):
        self.lines: list[tuple] = []

    def admitted(self, request):
        self.lines.append(("admitted", request.id))

    def preempted(self, request):
        self.lines.append(("preempted", request.id, request.generated))

    def drew(self, request, record):
        self.lines.append(("drew", request.id, *record.tokens))

    def finished(self, request, reason):
        self.lines.append(("finished", request.id, reason))

    def failed(self, request, message):
        self.lines.append(("failed", request.id, message))


def scheduler(
    model: HashModel | None = None, max_frames: int = 1, slower: float = 1.0, **settings
) -> tuple[Scheduler, Log]:
    """A scheduler without checkpoints, which have their own tests; programs are expected to be `slower`."""
    log = Log()
    settings = {"prefix_caching": False, **settings}
    contract = (model or HashModel()).build().contract
    programs = tuple(p.model_copy(update={"cost_us": slower * p.cost_us}) for p in contract.programs)
    contract = contract.model_copy(update={"programs": programs})
    return Scheduler(contract, log, Settings(**settings), max_frames), log


def answer(plan: Plan, token: int = 9, **changes) -> list[LaneRecord]:
    """What a faithful device reports. `token` is drawn by every sampling lane."""
    if not plan.program.completion:
        return []
    records = []
    for lane in plan.lanes:
        request = lane.request
        tokens = [token] if lane.sample else []
        generated = request.generated - request.before + len(tokens)
        finished = FinishCode.LIVE
        if tokens and token in request.stop_tokens:
            finished = FinishCode.STOP_TOKEN
        elif generated >= request.max_tokens - request.before:
            finished = FinishCode.LENGTH
        records.append(
            LaneRecord(
                status=Status.OK,
                slot=request.slot.index,
                epoch=request.slot.epoch,
                tokens=tokens,
                finished=finished,
                consumed=lane.consumed + lane.length,
                generated=generated,
            )
        )
    padding = LaneRecord(Status.PADDING, 0, 0, [], 0, 0, 0)
    records += [padding] * (plan.program.lanes - len(records))
    for name, value in changes.items():
        setattr(records[0], name, value)
    return records


def trace(plan: Plan) -> tuple:
    return (plan.program.name, *(lane.request.id for lane in plan.lanes))


def run(s: Scheduler, count: int = 10**6) -> list[tuple]:
    """Plan and complete one frame at a time; the trace."""
    seen = []
    while len(seen) < count and (plan := s.plan()) is not None:
        seen.append(trace(plan))
        s.complete(plan, answer(plan), 0.0)
    return seen


def test_one_request_from_start_to_length():
    s, log = scheduler()
    assert s.submit(Spec("a", prompt=tuple(range(30)), max_tokens=3)) is None
    assert run(s) == [
        ("start", "a"),
        ("prefill_16", "a"),
        ("prefill_16", "a"),
        ("decode_1", "a"),
        ("decode_1", "a"),
    ]
    drew = ("drew", "a", 9)
    assert log.lines == [("admitted", "a"), drew, drew, drew, ("finished", "a", "length")]
    assert s.pages.free == s.pages.total
    assert s.slots.free == 4
    assert s.free_rows == 6


def test_a_stop_token_ends_the_request():
    s, log = scheduler()
    s.submit(Spec("a", stop_token_ids=(4, 9)))
    run(s)
    assert log.lines == [("admitted", "a"), ("drew", "a", 9), ("finished", "a", "stop")]


def test_chunks_and_decode_batches_alternate_while_streams_run():
    s, _ = scheduler(inter_token_ms=150.0)
    s.submit(Spec("a", max_tokens=20))
    run(s, 4)
    s.submit(Spec("b", prompt=tuple(range(40)), max_tokens=8))
    s.submit(Spec("c", prompt=tuple(range(9)), max_tokens=8))
    assert run(s, 11) == [
        ("start", "b"),
        ("prefill_16", "b"),
        ("decode_1", "a"),
        ("prefill_16", "b"),
        ("decode_1", "a"),
        ("prefill_8", "b"),
        ("decode_2", "a", "b"),
        ("start", "c"),
        ("prefill_16", "c"),  # 9 tokens: 210 us padded against 130 + 90 for 8 and 4
        ("decode_4", "a", "b", "c"),
        ("decode_4", "a", "b", "c"),
    ]


def test_the_inter_token_budget_bounds_the_chunk_only_while_streams_run():
    # A start is expected to take 50 us, a decode step 110, chunks of 4, 8 and 16 tokens 90, 130 and 210.
    s, _ = scheduler(inter_token_ms=0.3)
    s.submit(Spec("a", max_tokens=20))
    assert run(s, 3)[1] == ("prefill_4", "a")
    s.submit(Spec("b", prompt=tuple(range(16))))
    assert [name for name, *_ in run(s, 4)] == ["start", "prefill_8", "decode_1", "prefill_8"]
    s, _ = scheduler(inter_token_ms=0.3)
    s.submit(Spec("b", prompt=tuple(range(16))))
    assert run(s, 2)[1] == ("prefill_16", "b")


def test_what_ran_since_the_last_decode_step_counts_against_the_budget():
    # 250 us hold a step of 110 us and a chunk of 8 tokens (130 us); not when a start (50 us) came before it.
    s, _ = scheduler(inter_token_ms=0.25)
    s.submit(Spec("a", max_tokens=20))
    run(s, 3)
    s.submit(Spec("b", prompt=tuple(range(16))))
    names = [name for name, *_ in run(s, 6)]
    assert names == ["start", "prefill_4", "decode_1", "prefill_8", "decode_1", "prefill_4"]


@pytest.mark.parametrize(
    ("slower", "chunks"),
    [
        (200, ["start", "prefill_8", "decode_1", "prefill_8"]),  # 22 ms leave 38: 8 tokens (26), not 16 (42)
        (
            80,
            ["start", "prefill_8", "decode_1", "prefill_8"],
        ),  # 9 ms leave 16: 8 tokens (10.4), not 16 (16.8)
        (60, ["start", "prefill_16"]),  # 6.6 ms leave 18 of 25, not 11.6 of 18: 16 tokens (12.6)
    ],
)
def test_by_default_a_stream_slows_down_to_a_third_at_most_but_has_40_tokens_a_second(slower, chunks):
    s, _ = scheduler(slower=slower)
    s.submit(Spec("a", max_tokens=20))
    run(s, 3)
    s.submit(Spec("b", prompt=tuple(range(16))))
    assert [name for name, *_ in run(s, len(chunks))] == chunks


def test_the_smallest_sufficient_decode_program_is_used():
    s, _ = scheduler()
    for name in "abc":
        s.submit(Spec(name, max_tokens=10))
    names = [name for name, *_ in run(s)]
    assert {"decode_1", "decode_2", "decode_4"} == {name for name in names if name.startswith("decode")}


def started(s: Scheduler, count: int = 2) -> list[Plan]:
    """Complete start and prefill, then plan `count` decode steps behind each other."""
    for _ in range(2):
        plan = s.plan()
        s.complete(plan, answer(plan), 0.0)
    return [s.plan() for _ in range(count)]


def test_only_decode_steps_are_queued_behind_each_other():
    s, _ = scheduler(max_frames=2)
    s.submit(Spec("a", max_tokens=3))
    start = s.plan()
    assert (trace(start), s.plan()) == (("start", "a"), None)
    s.complete(start, [], 0.0)
    prefill = s.plan()
    assert (trace(prefill), s.plan()) == (("prefill_4", "a"), None)
    s.complete(prefill, answer(prefill), 0.0)
    first, second = s.plan(), s.plan()
    assert second.lanes[0].consumed == 4
    assert s.plan() is None
    s.complete(first, answer(first), 0.0)
    assert s.plan() is None  # three tokens are drawn or on their way: nothing is submitted in vain
    assert s.in_flight == 1
    s.complete(second, answer(second), 0.0)
    assert s.pages.free == s.pages.total


def test_host_fed_tokens_allow_one_frame():
    s, _ = scheduler(HashModel(host_fed=True), max_frames=2)
    s.submit(Spec("a"))
    assert s.plan() is not None
    assert s.plan() is None


def test_a_stop_in_flight_keeps_blocks_until_the_next_frame_is_done():
    s, log = scheduler(max_frames=2)
    s.submit(Spec("a", stop_token_ids=(8,), max_tokens=9))
    last, ahead = started(s)
    s.complete(last, answer(last, token=8), 0.0)
    assert log.lines[-1] == ("finished", "a", "stop")
    assert (s.running, s.slots.free) == (0, 3)
    silent = answer(ahead, tokens=[], finished=FinishCode.STOP_TOKEN)
    s.complete(ahead, silent, 0.0)
    assert (s.slots.free, s.pages.free) == (4, s.pages.total)
    assert log.lines[-1] == ("finished", "a", "stop")


def test_a_token_after_the_device_had_finished_is_an_error():
    s, _ = scheduler(max_frames=2)
    s.submit(Spec("a", stop_token_ids=(8,), max_tokens=9))
    last, ahead = started(s)
    s.complete(last, answer(last, token=8), 0.0)
    with pytest.raises(ExecutionError, match="after the slot had finished"):
        s.complete(ahead, answer(ahead), 0.0)


def test_tokens_of_a_cancelled_request_are_dropped():
    s, log = scheduler(max_frames=2)
    s.submit(Spec("a"))
    first, second = started(s)
    assert s.cancel("a")
    assert not s.cancel("a")
    assert log.lines[-1] == ("finished", "a", "cancelled")
    assert s.slots.free == 3
    s.complete(first, answer(first), 0.0)
    s.complete(second, answer(second), 0.0)
    assert log.lines[-1] == ("finished", "a", "cancelled")
    assert s.slots.free == 4
    assert s.plan() is None


def test_a_rejected_record_changes_nothing():
    s, log = scheduler(HashModel(concurrency=2, decode_lanes=(2,)))
    s.submit(Spec("a"))
    s.submit(Spec("b"))
    while (plan := s.plan()).program.kind is not DECODE or len(plan.lanes) < 2:
        s.complete(plan, answer(plan), 0.0)
    before = list(log.lines)
    records = answer(plan)
    records[1].epoch += 1  # lane 0 is fine
    with pytest.raises(ExecutionError, match="lane 1"):
        s.complete(plan, records, 0.0)
    assert log.lines == before
    assert s.in_flight == 1
    with pytest.raises(ExecutionError, match="0 records for 2 lanes"):
        s.complete(plan, [], 0.0)


def test_reservations_hold_the_prompt_and_a_page_and_grow_a_page_ahead():
    # 16 pages of 4 tokens, one of them null.
    s, log = scheduler(HashModel(context=40, pages=16))
    s.submit(Spec("a", prompt=(1,) * 21, max_tokens=16))  # 6 pages and one
    assert s.pages.free == 8
    s.submit(Spec("b", prompt=(1,) * 30, max_tokens=4))  # 8 pages and one
    s.submit(Spec("c", prompt=(1,) * 10, max_tokens=2))  # 3 pages: what it can need at most
    assert [line for line in log.lines if line[0] == "admitted"] == [("admitted", "a"), ("admitted", "c")]
    run(s)
    assert ("finished", "b", "length") in log.lines


def test_output_is_bounded_by_the_context():
    s, log = scheduler(HashModel(context=40))
    s.submit(Spec("a", prompt=(1,) * 38, max_tokens=1000))
    run(s)
    assert log.lines == [("admitted", "a"), ("drew", "a", 9), ("drew", "a", 9), ("finished", "a", "length")]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (Spec("x", prompt=()), "invalid_request"),
        (Spec("x", prompt=(1, 97)), "invalid_request"),
        (Spec("x", prompt=(-1,)), "invalid_request"),
        (Spec("x", max_tokens=0), "invalid_request"),
        (Spec("x", logprobs=0), "invalid_request"),
        (Spec("x", prompt=(1,) * 64), "context_exceeded"),
        (Spec("x", stop_token_ids=(1, 2, 3, 4, 5)), "capacity_exceeded"),
        (Spec("x", sampling=Bias(((1, 2.0),))), "capacity_exceeded"),
        (Spec("taken"), "invalid_request"),
    ],
)
def test_what_can_never_be_served_is_refused(spec, reason):
    s, log = scheduler()
    s.submit(Spec("taken"))
    assert s.submit(spec).reason == reason
    assert log.lines == [("admitted", "taken")]


def test_the_waiting_queue_is_bounded_and_cancelling_makes_room():
    s, log = scheduler(HashModel(concurrency=1, decode_lanes=(1,)), max_waiting=2)
    for name in "abc":
        assert s.submit(Spec(name)) is None
    assert s.submit(Spec("d")).reason == "queue_full"
    assert (s.running, s.waiting) == (1, 2)
    assert s.cancel("b")
    assert s.submit(Spec("d")) is None
    run(s)
    assert [line[1] for line in log.lines if line[0] == "admitted"] == ["a", "c", "d"]


def test_a_large_request_is_not_starved_by_a_stream_of_small_ones():
    s, log = scheduler(HashModel(context=40, pages=12), max_passes=3)
    s.submit(Spec("first", prompt=(1,) * 4, max_tokens=4))
    s.submit(Spec("large", prompt=(1,) * 36, max_tokens=4))
    count = 0
    while ("admitted", "large") not in log.lines:
        count += 1
        s.submit(Spec(f"small{count}", prompt=(1,) * 4, max_tokens=4))
        run(s, 1)
        assert count < 100
    admitted = [line[1] for line in log.lines if line[0] == "admitted"]
    assert admitted.index("large") == 4  # the first, and three that passed it


def test_abandon_ends_everything():
    s, _ = scheduler(HashModel(concurrency=1, decode_lanes=(1,)))
    s.submit(Spec("a"))
    s.submit(Spec("b"))
    assert [request.id for request in s.abandon()] == ["a", "b"]
    assert (s.running, s.waiting, s.plan()) == (0, 0, None)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="impossible"):
        Settings(max_waiting=0)
    with pytest.raises(ValueError, match="impossible"):
        Settings(inter_token_ms=0.0)
