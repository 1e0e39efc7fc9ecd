"""A conversation stays in the cache beside the small requests of its session; without a session it goes."""

from __future__ import annotations

import random

import pytest
from engine_harness import Harness, request
from service_models import MODELS
from tiered_harness import TieredHarness, make_stores

from flare.engine.messages import Finished, Submit
from flare.scheduler import Settings
from flare.testing.hash_model import HashModel

PAGES = HashModel(context=128, page_tokens=4, pages=34, snapshot_rows=40, concurrency=2, decode_lanes=(2,))
ROWS = HashModel(context=128, page_tokens=4, snapshot_rows=5, concurrency=2, decode_lanes=(2,))
BIG = tuple(range(80))


def ask(harness: Harness, name: str, prompt: tuple[int, ...], session: str, **options) -> Finished:
    harness.submit(request(name, prompt, max_tokens=6, session=session, **options))
    harness.run()
    end = harness.end(name)
    assert isinstance(end, Finished)
    return end


def side(number: int) -> tuple[int, ...]:
    return tuple((number * 7 + place) % 97 for place in range(20))


def second_turn(harness: Harness, session: str) -> int:
    """Tokens that a second turn has from the cache, behind the end of the first."""
    prompt = (*BIG, *harness.expected("one"), 5, 6)
    return ask(harness, "two", prompt, session).cached_tokens - (len(BIG) + 5)


@pytest.mark.parametrize("model", [PAGES, ROWS], ids=["pages", "rows"])
@pytest.mark.parametrize("session", ["s", ""], ids=["session", "none"])
@pytest.mark.parametrize("sides", [1, 3, 12])
def test_the_conversation_survives_side_requests_of_its_session(
    model: HashModel, session: str, sides: int
) -> None:
    harness = Harness(model)
    ask(harness, "one", BIG, session, endpoints=(70,))
    for number in range(sides):
        ask(harness, f"side{number}", side(number), session, endpoints=(15,))
    missing = second_turn(harness, session)
    harness.check()
    harness.check_empty()
    counts = harness.scheduler.tree.counts
    harness.close()
    if session:
        assert missing == 0
    elif sides == 12:
        assert missing < 0  # so there was pressure
    if sides == 12:
        assert counts.evicted_for_pages + counts.evicted_for_rows > 0


def test_other_sessions_compete_as_without_any() -> None:
    for sessions in (("a", "b"), ("", "")):
        harness = Harness(PAGES)
        ask(harness, "one", BIG, sessions[0])
        for number in range(12):
            ask(harness, f"other{number}", side(number), sessions[1])
        assert second_turn(harness, sessions[0]) < 0
        harness.close()


def test_a_side_request_that_does_not_fit_beside_the_conversation_runs_all_the_same() -> None:
    harness = Harness(HashModel(context=128, page_tokens=4, pages=34, snapshot_rows=8, concurrency=1))
    ask(harness, "one", (*BIG, *range(40)), "s")
    end = ask(harness, "side", side(1), "s")
    assert end.reason == "length"
    assert harness.scheduler.tree.counts.evicted_for_pages > 0
    harness.check()
    harness.close()


def test_a_side_request_that_is_continued_competes_as_a_conversation() -> None:
    harness = Harness(PAGES)
    ask(harness, "one", BIG, "s")
    ask(harness, "agent", side(0), "s")
    assert {node.side for node in harness.scheduler.tree if node.tokens <= 25} == {True}
    longer = (*side(0), *harness.expected("agent"), 3)
    assert ask(harness, "agent2", longer, "s").cached_tokens == 25
    assert not any(node.side for node in harness.scheduler.tree)
    report = harness.engine.cache_report(100)
    assert [prefix.side for prefix in report.checkpoints] == [False] * report.total
    harness.close()


def test_side_checkpoints_are_not_copied_to_the_tiers() -> None:
    for session, copies in (("s", False), ("", True)):
        (store,) = stores = make_stores(PAGES, host_blocks=200)
        harness = TieredHarness(PAGES, stores)
        ask(harness, "one", BIG, session)
        before = len(store)
        assert before > 0
        ask(harness, "side", side(1), session)
        assert (len(store) > before) is copies
        harness.close()


@pytest.mark.parametrize("seed", range(24))
def test_random_service_with_sessions_equals_the_oracle(seed: int) -> None:
    """Standings change what is kept, never what is drawn; nothing is left behind."""
    rng = random.Random(seed)
    model = rng.choice(MODELS)
    harness = Harness(model, max_frames=rng.choice([1, 2]), settings=Settings(max_passes=rng.choice([0, 16])))
    histories: list[tuple[int, ...]] = [()]
    for count in range(40):
        base = rng.choice(histories)[: model.context - 4]
        alphabet = rng.choice([2, model.vocab_size])
        suffix = tuple(rng.randrange(alphabet) for _ in range(rng.choice([0, 1, 3, 25])))
        prompt = (*base, *suffix)[: model.context - 1] or (1,)
        submit: Submit = request(
            f"r{count}",
            prompt,
            max_tokens=rng.choice([1, 5, 30]),
            endpoints=tuple(rng.randrange(1, 41) for _ in range(rng.choice([0, 3]))),
            session=rng.choice(["", "a", "a", "b"]),
        )
        harness.submit(submit)
        histories += [prompt, prompt + tuple(harness.expected(submit.request_id))]
        for _ in range(rng.randrange(12)):
            harness.engine.step()
        if rng.random() < 0.1:
            harness.engine.cancel(f"r{rng.randrange(count + 1)}")
    harness.run()
    harness.check()
    harness.check_empty()
    harness.close()
