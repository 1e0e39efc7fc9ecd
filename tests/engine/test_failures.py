"""What the engine does when a device or a record cannot be trusted."""

import pytest
from engine_harness import Harness, request

from flare.contract import Record, Status
from flare.engine.messages import Failed, Finished, Rejected
from flare.errors import ExecutionError
from flare.testing.hash_model import HashModel

MODEL = HashModel()
# Frames of a lone request with a 3-token prompt: 1 start, 2 prefill, 3 and up decode.
DECODE = 4


def two_requests(**behaviour) -> Harness:
    harness = Harness(MODEL, **behaviour)
    harness.submit(request("a", max_tokens=12))
    harness.submit(request("b", max_tokens=12))
    return harness


@pytest.mark.parametrize("max_frames", [1, 2])
@pytest.mark.parametrize("fail_at", [1, 2, 7])
def test_a_failed_program_fails_every_live_request_and_the_engine(fail_at, max_frames):
    harness = two_requests(fail_at=fail_at, max_frames=max_frames)
    with pytest.raises(ExecutionError, match="injected fault"):
        harness.run()
    for name in ("a", "b"):
        assert isinstance(harness.end(name), Failed)
        assert harness.output(name) == harness.expected(name)[: len(harness.output(name))]
    harness.submit(request("late"))
    assert isinstance(harness.end("late"), Rejected)
    harness.close()


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        (Record.SLOT, 3, "record of slot 3"),
        (Record.EPOCH, 99, "epoch 99"),
        (Record.STATUS, Status.PADDING, "unexpected status 0"),
        (Record.STATUS, 7, "unexpected status 7"),
        (Record.STATUS, Status.INVALID, "tokens drawn from invalid logits"),
        (Record.TOKENS, 0, "0 tokens, expected 1"),
        (Record.TOKENS, 5, "record of 5 tokens, capacity 1"),
        (Record.TOKENS, -1, "record of -1 tokens"),
        (Record.FINISHED, 1, "finish code 1, expected 0"),
        (Record.FINISHED, 9, "finish code 9"),
        (Record.CONSUMED, 2, "consumed 2 tokens"),
        (Record.GENERATED, 40, "generated 40 tokens"),
        (16, 97, "token 97 outside the vocabulary of 97"),
    ],
)
def test_a_record_that_does_not_fit_fails_the_engine(field, value, complaint):
    harness = Harness(MODEL, corrupt={DECODE: {field: value}})
    harness.submit(request("a", max_tokens=12))
    with pytest.raises(ExecutionError, match=complaint):
        harness.run()
    assert isinstance(harness.end("a"), Failed)
    # Validated before anything changed: only what frames before it drew was reported.
    assert harness.output("a") == harness.expected("a")[: DECODE - 2]
    harness.close()


@pytest.mark.parametrize("max_frames", [1, 2])
def test_invalid_logits_fail_one_request_and_no_other(max_frames):
    invalid = {Record.STATUS: Status.INVALID, Record.TOKENS: 0}
    # Frames: start a, prefill a, then decode a | start b | prefill b | decode both ...: lane 0 is a.
    harness = two_requests(corrupt={9: invalid}, max_frames=max_frames)
    harness.run()
    end = harness.end("a")
    assert isinstance(end, Failed)
    assert "not finite" in end.message
    assert isinstance(harness.end("b"), Finished)
    assert harness.output("b") == harness.expected("b")
    harness.check_empty()
    assert harness.scheduler.slots.free == harness.idle_slots
    harness.submit(request("c"))
    harness.run()
    assert harness.output("c") == harness.expected("c")
    harness.close()


def test_shut_down_refuses_and_drains():
    harness = two_requests()
    harness.engine.shut_down(drain=True)
    harness.submit(request("late"))
    assert harness.end("late").reason == "shutting_down"
    harness.run()
    assert harness.output("a") == harness.expected("a")
    harness.close()


def test_shut_down_without_drain_cancels():
    harness = two_requests()
    harness.engine.step()
    harness.engine.shut_down(drain=False)
    assert harness.end("a").reason == harness.end("b").reason == "cancelled"
    harness.run()
    assert harness.engine.idle
    harness.check()
    harness.close()
