"""Streams of every protocol open at once: every event arrives, and the event loop is never held, as in all
of these tests. The figures of 64 streams are `scripts/stream-check`'s."""

from __future__ import annotations

import time

import pytest
from agent_model import agent_server
from live import TOKENIZER
from open_streams import REQUESTS, TEXT, percentile, read_streams

STREAMS = 12


@pytest.mark.parametrize("protocol", REQUESTS)
def test_streams_open_at_once(protocol: str) -> None:
    path, body = REQUESTS[protocol]
    with agent_server(TEXT) as server:
        alone = read_streams(server.address, path, body, 1)
        used = time.clock_gettime(server.clock)
        seen = read_streams(server.address, path, body, STREAMS)
        used = time.clock_gettime(server.clock) - used
    assert alone.ended == 1
    assert seen.ended == len(seen.first_bytes) == len(seen.first_events) == STREAMS
    # Tokens that were drawn while a stream was written come in one event.
    assert seen.events > STREAMS * len(TOKENIZER.encode(TEXT)) / 8
    assert used / seen.events < 0.002, "seconds of the event loop per event: ten times what it takes"


def test_percentiles() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1)) == (50, 99, 100)
    assert percentile([7.0], 0.99) == 7.0
