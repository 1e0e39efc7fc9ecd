"""Reading event streams: the same completion however the bytes arrive, and an error for every broken one."""

from __future__ import annotations

import pytest

from flare.bench.errors import BenchmarkError
from flare.bench.sse import EventParser
from flare.bench.stream import Completion, read_events

TEXT = b'data: {"choices": [{"text": "caf\xc3\xa9"}]}\n\n'
LAST = b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}\n\n'
DONE = b"data: [DONE]\n\n"


def read_completion(sent: float, chunks: list[tuple[float, bytes]]) -> Completion:
    return read_events(chunks).completion(sent)


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
    assert completion.first_token_ms == 500
    assert (completion.prompt_tokens, completion.completion_tokens) == (7, 3)
    assert completion.cached_tokens is None
    assert completion.text == "café" * 3


def test_the_usage_decides_how_many_tokens_an_event_has() -> None:
    completion = read_completion(0.0, [(1.0, TEXT), (2.0, TEXT), (3.0, USAGE + DONE)])
    assert completion.tokens_per_event == 1.5
    assert completion.counts == (1.5, 1.5)


def test_usage_in_every_event_says_how_many_tokens_each_has() -> None:
    def event(text: str, total: int) -> bytes:
        usage = f'{{"prompt_tokens": 7, "completion_tokens": {total}}}'
        return f'data: {{"choices": [{{"delta": {{"content": "{text}"}}}}], "usage": {usage}}}\n\n'.encode()

    chunks = [(0.5, event("", 0)), (1.0, event("a", 1)), (2.0, event("b", 5)), (3.0, event("", 6) + DONE)]
    completion = read_completion(0.0, chunks)
    assert (completion.times, completion.counts, completion.completion_tokens) == ((1.0, 2.0), (1, 4), 6)


def test_what_a_model_thinks_is_text_too() -> None:
    thought = b'data: {"choices": [{"delta": {"reasoning_content": "hm", "content": null}}]}\n\n'
    assert read_completion(0.0, [(1.0, thought), (2.0, USAGE + DONE)]).times == (1.0,)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (TEXT + USAGE, "without \\[DONE\\]"),
        (TEXT + DONE, "no usage"),
        (LAST + USAGE + DONE, "no text"),
        (TEXT + b'data: {"error": {"message": "lost"}}\n\n', "lost"),
        (b"data: {half an ev\n\n" + DONE, "not OpenAI's: '{half an ev"),
        (b'data: {"answer": 42}\n\n' + DONE, "not OpenAI's"),
        (b"data: 7\n\n" + DONE, "not OpenAI's"),
        (b'data: {"choices": [3]}\n\n' + DONE, "not OpenAI's"),
        (TEXT + b'data: {"choices": [], "usage": {"completion_tokens": 3}}\n\n' + DONE, "usage is not"),
    ],
)
def test_a_broken_stream_is_no_measurement(stream: bytes, message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        read_completion(0.0, [(1.0, stream)])
