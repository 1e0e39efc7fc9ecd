"""Constrained service on the hash model: every output is of its grammar, and nobody else notices."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from engine_harness import Harness, image, request
from random_load import serve
from service_models import GRAMMARS, MASKED, TOKENIZER, WORDS, speculative

from flare.engine import constraints, grammar_masks
from flare.engine.constraints import Constraints
from flare.engine.messages import Failed, Finished, Rejected
from flare.errors import ExecutionError
from flare.grammar import Matcher
from flare.scheduler import Scheduler, Settings
from flare.testing.hash_model import HashModel

PROMPT = (3, 1, 4, 1, 5, 9, 2, 6)
MODEL = MASKED[1]
WORD = json.dumps({"grammars": [{"lark_grammar": "start: /(abc|ba+){2,4}/"}]})


def text(tokens) -> str:
    return "".join(WORDS[token] for token in tokens)


def grammar(lark: str) -> str:
    return json.dumps({"grammars": [{"lark_grammar": lark}]})


def run(model=MODEL, *submits, **options) -> Harness:
    harness = Harness(model, **options)
    for submit in submits:
        harness.submit(submit)
    harness.run()
    harness.close()
    return harness


@pytest.mark.parametrize("model", MASKED)
@pytest.mark.parametrize("constraint", GRAMMARS)
def test_outputs_are_of_their_grammars_and_end_where_these_do(model, constraint):
    submits = [
        request(f"r{seed}", PROMPT[seed:], max_tokens=25, seed=seed, stops=(0,), grammar=constraint)
        for seed in range(3)
    ]
    harness = run(model, *submits, proposal_key=7)
    harness.check()
    if constraint in (GRAMMARS[0], GRAMMARS[2]):  # short
        assert any(harness.end(submit.request_id).reason == "stop" for submit in submits)


def test_the_end_is_forced_when_nothing_else_may_come():
    harness = run(MODEL, request("r", PROMPT, 20, stops=(0,), grammar=grammar('start: "abcabc"')))

    assert text(harness.output("r")[:-1]) == "abcabc"
    assert harness.output("r")[-1] == 0
    assert harness.end("r").reason == "stop"


def test_an_output_cut_at_its_limit_says_so():
    harness = run(MODEL, request("r", PROMPT, 1, stops=(0,), grammar=grammar('start: "abcabc"')))

    end = harness.end("r")
    assert isinstance(end, Finished)
    assert (end.reason, end.stop_token) == ("length", None)


def test_a_stop_token_comes_exactly_where_the_grammar_accepts():
    """`b` stops, and is not text any more: `ba+` must be written with `ba`."""
    submits = [
        request(f"r{seed}", PROMPT, 20, stops=(0, 2), seed=seed, grammar=grammar("start: /(ba){1,3}/"))
        for seed in range(40)
    ]
    harness = run(replace(MODEL, snapshot_rows=2), *submits, settings=Settings(max_waiting=50))
    harness.check()

    lasts = {harness.output(submit.request_id)[-1] for submit in submits}
    assert lasts == {0, 2}
    for submit in submits:
        assert text(harness.output(submit.request_id)[:-1]) in ("ba", "baba", "bababa")


@pytest.mark.parametrize("model", MASKED)
def test_the_others_of_a_batch_draw_as_if_they_were_alone(model):
    model = replace(model, pages=None, concurrency=4, decode_lanes=(1, 2, 4))  # nobody is preempted
    free = [request(f"f{seed}", PROMPT[seed:], 20, seed=seed) for seed in range(2)]
    bound = request("c", PROMPT, 20, seed=5, stops=(0,), grammar=GRAMMARS[3])
    alone = {submit.request_id: run(model, submit).output(submit.request_id) for submit in free}

    harness = run(model, free[0], bound, free[1], proposal_key=3)

    harness.check()
    assert {name: harness.output(name) for name in alone} == alone


def test_one_step_is_in_flight_while_a_constrained_request_draws_and_two_otherwise():
    harness = Harness(MODEL, max_frames=2)
    most = {True: 0, False: 0}
    submit = harness.device.submit

    def watched(name, upload):
        frame = submit(name, upload)
        bound = any(one.constrained for one in harness.scheduler._running)
        most[bound] = max(most[bound], len(harness.engine._in_flight) + 1)
        return frame

    harness.device.submit = watched
    harness.submit(request("free", PROMPT, 30))
    harness.submit(request("bound", PROMPT, 9, stops=(0,), grammar=GRAMMARS[1]))
    harness.run()
    harness.check()
    harness.close()
    assert most == {True: 1, False: 2}


def test_preempted_streams_go_on_in_their_grammar():
    submits = [
        request(f"r{seed}", PROMPT, 24, seed=seed, stops=(0,), grammar=GRAMMARS[5]) for seed in range(4)
    ]
    harness = run(MASKED[0], *submits)

    harness.check()
    assert harness.preempted


@pytest.mark.parametrize("host", [True, False])
def test_drafts_are_verified_within_the_grammar(host):
    model = speculative((4, 3, 4, 16), host_proposals=host, agreement=200, tokenizer=TOKENIZER)
    submits = [
        request(f"r{seed}", PROMPT, 24, seed=seed, stops=(0,), grammar=GRAMMARS[seed % 6])
        for seed in range(4)
    ]
    harness = run(model, *submits, request("free", PROMPT, 24, seed=9), proposal_key=4)

    harness.check()
    drafted, accepted = harness.scheduler.drafted
    assert drafted > accepted > 0


def test_drafts_that_the_grammar_forbids_are_not_submitted():
    """All proposals are of another output, so that none of them may follow."""
    model = speculative((4, 3, 4, 16), host_proposals=True, tokenizer=TOKENIZER)
    harness = Harness(model)
    harness.engine.scheduler._steps.speculation._source._source._expected = lambda name: [22] * 30
    harness.submit(request("r", PROMPT, 12, stops=(0,), grammar=GRAMMARS[1]))
    harness.run()
    harness.check()
    harness.close()
    assert harness.scheduler.drafted == (0, 0)


def test_a_dead_end_fails_its_request_only():
    """`z` is no token: the first letter can be written, the second cannot."""
    harness = run(
        MODEL,
        request("dead", PROMPT, 20, stops=(0,), grammar=grammar('start: "a" /z/')),
        request("free", PROMPT, 20, seed=3),
    )
    end = harness.end("dead")
    assert isinstance(end, Failed)
    assert "no token of the vocabulary" in end.message
    assert harness.output("free") == harness.expected("free")
    assert harness.engine.idle


def test_a_grammar_that_does_not_compile_rejects_its_request_only():
    harness = run(
        MODEL,
        request("bad", PROMPT, 20, stops=(0,), grammar=grammar("start: nothing")),
        request("good", PROMPT, 20, stops=(0,), grammar=WORD),
    )
    end = harness.end("bad")
    assert isinstance(end, Rejected)
    assert end.reason == "invalid_request"
    assert "nothing" in end.message
    assert harness.output("good") == harness.expected("good")


def test_a_core_without_masks_refuses_grammars():
    harness = run(HashModel(), request("r", PROMPT, 20, stops=(0,), grammar=WORD))
    end = harness.end("r")
    assert isinstance(end, Rejected)
    assert "no masks" in end.message


def test_a_grammar_is_compiled_beside_the_steps_and_can_be_withdrawn():
    device_image = image(MODEL)
    tokenizer = np.frombuffer(device_image.tensors["frontend.tokenizer"], np.uint8)
    beside = Constraints(device_image.contract, tokenizer, beside=True)
    harness = Harness(MODEL, constraints=beside)
    woken = []
    beside.wake = lambda: woken.append(1)
    harness.submit(request("gone", PROMPT, 9, stops=(0,), grammar=WORD))
    assert not harness.engine.idle
    harness.engine.cancel("gone")
    harness.submit(request("kept", PROMPT, 9, stops=(0,), grammar=WORD))
    beside._thread.submit(lambda: None).result(20)  # behind both

    harness.run()
    assert harness.end("gone").reason == "cancelled"
    assert harness.output("gone") == []
    assert harness.output("kept") == harness.expected("kept")
    assert len(woken) == 2
    harness.close()


def test_when_the_process_beside_dies_its_requests_fail_and_others_go_on():
    device_image = image(MODEL)
    tokenizer = np.frombuffer(device_image.tensors["frontend.tokenizer"], np.uint8)
    beside = Constraints(device_image.contract, tokenizer, beside=True)
    harness = Harness(MODEL, constraints=beside)
    harness.submit(request("free", PROMPT, 12))
    harness.submit(request("lost", PROMPT, 12, stops=(0,), grammar=WORD))
    beside._thread.submit(lambda: None).result(20)
    while not harness.output("lost"):
        harness.engine.step()
    beside._walks._process._popen.kill()
    harness.run()
    failed = harness.end("lost")
    assert isinstance(failed, Failed)
    assert "the process that follows grammars ended" in failed.message
    assert harness.output("free") == harness.expected("free")

    harness.submit(request("next", PROMPT, 12, stops=(0,), grammar=WORD))
    beside._thread.submit(lambda: None).result(20)
    harness.run()
    assert harness.output("next") == harness.expected("next")
    harness.close()


# Faults: each must be noticed.


def keep_two_in_flight(patch):
    patch.setattr(constraints.Request, "constrained", property(lambda request: False))
    fill = Constraints.fill
    patch.setattr(grammar_masks.GrammarMasks, "__call__", _fill_by(fill))


def _fill_by(fill):
    def call(masks, view, plan):
        view[...] = -1
        for index, lane in enumerate(plan.lanes):
            if lane.sample and lane.request.spec.grammar:
                fill(masks._constraints, lane, view[index])

    return call


def forget_to_take_drafts_back(patch):
    def fill_drafts(matcher, masks, drafts):
        matcher.fill(masks[0])
        for place, token in enumerate(drafts, 1):
            matcher._matcher.consume_token(token)
            matcher.fill(masks[place])

    patch.setattr(Matcher, "fill_drafts", fill_drafts)


def mask_the_first_input_only(patch):
    def fill_drafts(matcher, masks, drafts):
        matcher.fill(masks[0])

    patch.setattr(Matcher, "fill_drafts", fill_drafts)


def leave_the_masks_of_others(patch):
    call = grammar_masks.GrammarMasks.__call__

    def stale(masks, view, plan):
        before = masks._written.get(id(view))
        if before is not None:
            masks._written[id(view)] = []
        call(masks, view, plan)

    patch.setattr(grammar_masks.GrammarMasks, "__call__", stale)


def begin_again_when_readmitted(patch):
    """A preempted request's matcher starts from nothing, behind what was generated before."""
    depart = Scheduler._make_way

    def make_way(scheduler, newest):
        depart(scheduler, newest)
        followed = scheduler._listener.constraints
        if (walk := followed._following.get(newest.id)) is not None:
            followed._walks._matchers[walk.number]._matcher.reset()

    patch.setattr(Scheduler, "_make_way", make_way)


@pytest.mark.parametrize(
    ("plant", "models"),
    [
        (keep_two_in_flight, MASKED),
        (forget_to_take_drafts_back, MASKED),
        (mask_the_first_input_only, MASKED),
        (leave_the_masks_of_others, MASKED),
        (begin_again_when_readmitted, MASKED[:1]),
    ],
)
def test_a_planted_fault_is_noticed(plant, models, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, ExecutionError)):  # noqa: PT012
        for seed in range(100):
            serve(seed, models, most_rounds=30)


def test_services_without_a_fault_are_right():
    for seed in range(20):
        serve(seed, MASKED, most_rounds=30)


def test_only_lanes_that_were_constrained_are_written_again():
    class Noted:
        def fill(self, lane, target):
            target[...] = 5

    def lane(constrained, sample=True):
        return SimpleNamespace(sample=sample, request=SimpleNamespace(constrained=constrained))

    pack, view = grammar_masks.GrammarMasks(Noted()), np.zeros((4, 2), np.int32)

    pack(view, SimpleNamespace(lanes=[lane(False), lane(True), lane(True, sample=False)]))
    assert view.tolist() == [[-1, -1], [5, 5], [-1, -1], [-1, -1]]
    view[0] = view[3] = 9  # would be noticed
    pack(view, SimpleNamespace(lanes=[lane(False), lane(False), lane(True)]))
    assert view.tolist() == [[9, 9], [-1, -1], [5, 5], [9, 9]]
