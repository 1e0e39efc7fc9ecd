"""Reading event streams: the same completion however the bytes arrive, and an error for every broken one."""

from __future__ import annotations

import pytest
from loadtest.completion import read_completion
from loadtest.errors import BenchmarkError
from loadtest.sse import EventParser

TEXT = b'data: {"choices": [{"text": "caf\xc3\xa9"}]}\n\n'
LAST = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\n'
DONE = b"data: [DONE]\n\n"


def parse(*chunks: bytes) -> list[bytes]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_every_cut_gives_the_same_events() -> None:
    stream = b'data: {"a": 1}\r\n\r\n: keep-alive\n\ndata:first\ndata: second\n\ndata: [DONE]\n\n'
    expected = [b'{"a": 1}', b"first\nsecond", b"[DONE]"]
    assert parse(stream) == expected
    for cut in range(len(stream) + 1):
        assert parse(stream[:cut], stream[cut:]) == expected, cut
    assert parse(*(bytes([byte]) for byte in stream)) == expected


def test_other_fields_and_unfinished_events_give_nothing() -> None:
    assert parse(b"event: ping\nid: 4\n\n") == []
    assert parse(b"data: one\n\ndata: two\n") == [b"one"]


def test_only_events_with_text_are_timed() -> None:
    completion = read_completion(
        1.0, [(1.5, TEXT), (2.0, TEXT + TEXT[:9]), (3.0, TEXT[9:]), (4.0, LAST), (5.0, USAGE + DONE)]
    )
    assert completion.times == (1.5, 2.0, 3.0)
    assert completion.first_token_seconds == 0.5
    assert (completion.prompt_tokens, completion.completion_tokens) == (7, 3)
    assert completion.cached_tokens is None


def test_the_usage_decides_how_many_tokens_an_event_has() -> None:
    completion = read_completion(0.0, [(1.0, TEXT), (2.0, TEXT), (3.0, USAGE + DONE)])
    assert completion.tokens_per_event == 1.5


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (TEXT + USAGE, "without \\[DONE\\]"),
        (TEXT + DONE, "no usage"),
        (LAST + USAGE + DONE, "no text"),
        (TEXT + b'data: {"error": {"message": "lost"}}\n\n', "lost"),
    ],
)
def test_a_broken_stream_is_no_measurement(stream: bytes, message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        read_completion(0.0, [(1.0, stream)])
