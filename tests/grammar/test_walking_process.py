"""Grammars are followed in a process of their own: by the same masks, and without stopping whoever asks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psutil
import pytest
from gil_hold import longest_hold

from flare.errors import CoreError, UnavailableError
from flare.grammar import (
    GrammarError,
    LocalWalks,
    RemoteWalks,
    Start,
    compose,
    json_schema,
    regex,
)
from flare.testing.tiny_text import byte_level, tiny_tokenizer

TINY = Start(tiny_tokenizer().to_str().encode(), 450, (0, 2))
SCHEMA = compose(json_schema({"type": "object", "properties": {"a": {"type": "integer"}}}, "s"))
SOON = 60.0  # seconds, on a machine with no time to spare


@contextmanager
def remote(start: Start = TINY) -> Iterator[RemoteWalks]:
    walks = RemoteWalks(lambda: start)
    try:
        yield walks
    finally:
        walks.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[RemoteWalks]:
    with remote() as walks:
        yield walks


def local() -> LocalWalks:
    return LocalWalks(lambda: TINY)


@pytest.mark.parametrize("grammar", [SCHEMA, compose(regex("[ab]{1,9}c?", "r"))])
def test_masks_are_those_of_a_matcher_here(shared: RemoteWalks, grammar: str) -> None:
    words = -(-TINY.vocab_size // 32)
    for seed in range(8):
        rng, here = random.Random(seed), local()
        for walks in (here, shared):
            walks.begin(seed, grammar, (0, 2, 70))
        gained: list[int] = []
        for _ in range(12):
            masks = np.zeros((2, words), np.int32)
            for mask, walks in zip(masks, (here, shared), strict=True):
                walks.fill(seed, gained, mask)
            assert (masks[0] == masks[1]).all()
            bits = np.flatnonzero(np.unpackbits(masks[0].view(np.uint8), bitorder="little"))
            usable = [int(token) for token in bits if token not in (0, 2, 70)]
            if not usable:
                break
            drafts = [rng.choice(usable), rng.randrange(3, 450)]
            counts = {walks.admissible(seed, [], drafts) for walks in (here, shared)}
            (count,) = counts
            many = np.full((2, count + 1, words), 7, np.int32)
            many[0] = -1
            here.fill_drafts(seed, [], drafts[:count], many[0])
            shared.fill_drafts(seed, [], drafts[:count], many[1])
            assert (many[0] == many[1]).all()
            gained = [rng.choice(usable)]
        shared.forget(seed)
        with pytest.raises(GrammarError, match="not known any more"):
            shared.fill(seed, [], np.zeros(words, np.int32))


def test_errors_are_those_of_here(shared: RemoteWalks) -> None:
    bad = '{"grammars": [{"lark_grammar": "start: x"}]}'
    said = []
    for walks in (local(), shared):
        with pytest.raises(GrammarError) as caught:
            walks.begin(1000, bad, ())
        said.append(str(caught.value))
    assert said[0] == said[1]
    shared.begin(1001, SCHEMA, ())
    with pytest.raises(GrammarError):
        shared.fill(1001, [70, 70, 70], np.zeros(15, np.int32))
    with remote(
        Start(b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}', 1, (0,))
    ) as walks:
        with pytest.raises(CoreError, match="this tokenizer") as wrong:
            walks.begin(0, SCHEMA, ())
        assert wrong.value.field == "frontend.tokenizer_asset"


def test_after_its_end_there_is_another_one() -> None:
    mask = np.zeros(15, np.int32)
    with remote() as walks:
        walks.begin(1, SCHEMA, ())
        walks.fill(1, [], mask)
        assert walks._process is not None
        os.kill(walks._process._popen.pid, signal.SIGTERM)  # of a group, it is not for it
        walks.fill(1, [], mask)
        os.kill(walks._process._popen.pid, signal.SIGKILL)
        with pytest.raises(GrammarError, match="ended"):
            walks.fill(1, [], mask)
        with pytest.raises(GrammarError, match="ended"):
            walks.fill(1, [], mask)
        walks.begin(2, SCHEMA, ())
        with pytest.raises(GrammarError, match="not known any more"):
            walks.fill(1, [], mask)
        walks.fill(2, [], mask)
        assert mask.any()


def test_closing_ends_a_compilation_on_its_way() -> None:
    problems: list[BaseException] = []

    def begin() -> None:
        try:
            walks.begin(1, SCHEMA, ())
        except UnavailableError as error:
            problems.append(error)

    with remote() as walks:
        thread = threading.Thread(target=begin)
        thread.start()
        while walks._process is None:
            pass
        walks.close()
        thread.join(SOON)
        assert not thread.is_alive()
    assert len(problems) <= 1  # it may have been done
    with pytest.raises(UnavailableError):
        walks.begin(2, SCHEMA, ())


def test_it_ends_with_whoever_asked_however_that_ends() -> None:
    code = """
import os, signal
from flare.grammar import RemoteWalks, Start
from flare.testing.tiny_text import tiny_tokenizer
walks = RemoteWalks(lambda: Start(tiny_tokenizer().to_str().encode(), 450, (0, 2)))
walks.begin(1, '{"grammars": [{"lark_grammar": "start: /a/"}]}', ())
print(walks._process._popen.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    output = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False).stdout
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(output)).wait(SOON)


def test_the_process_starts_without_what_it_does_not_need() -> None:
    code = "import sys, flare.grammar.walker, flare.grammar.check; assert 'pydantic' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_vocabulary_of_a_model_stops_nobody() -> None:
    """Made here it would, which is why it is not."""
    rng = random.Random(0)
    words = {"".join(rng.choices("etaoinshrdlu ", k=rng.randrange(2, 10))) for _ in range(50_000)}
    tokenizer = byte_level(["<end>", *sorted(words)]).encode()
    start = Start(tokenizer, len(words) + 257, (0,))

    def in_process() -> None:
        LocalWalks(lambda: start).begin(1, SCHEMA, ())

    def beside() -> None:
        with remote(start) as walks:
            walks.begin(1, SCHEMA, ())

    assert longest_hold(in_process, 0.0, runs=1) > 0.05
    assert longest_hold(beside, 0.02) < 0.02
