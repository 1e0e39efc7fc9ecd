"""The engine's side of the walking process."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np

from flare.errors import CoreError, FlareError, UnavailableError
from flare.grammar.errors import GrammarError
from flare.grammar.matcher import Mask
from flare.grammar.questions import (
    Admissible,
    Answer,
    Begin,
    Count,
    Fill,
    Forget,
    Masks,
    Problem,
    Question,
    Start,
    decode_answer,
    receive,
    send,
)

_PATIENCE_SECONDS = 20.0  # for a mask, which takes some 20 ms at most on a machine with time to spare


class RemoteWalks:
    """See `flare.grammar.walks.Walks`: in a process that starts with the first grammar. When it ends, outputs
    that it followed cannot go on, and the next grammar starts another one. `start` says what to walk with."""

    def __init__(self, start: Callable[[], Start]) -> None:
        self._start = start
        self._process: _Process | None = None
        self._lock = threading.Lock()  # of `_process`
        self._closed = False

    def begin(self, walk: int, grammar: str, stop_tokens: Sequence[int]) -> None:
        """See `Walks`. Raises UnavailableError when the process cannot be started, or ended meanwhile."""
        try:
            process = self._running()
            self._ask(process, process.beginning, Begin(walk, grammar, tuple(stop_tokens)))
        except (_LostError, OSError) as error:
            raise UnavailableError(f"no grammar can be compiled now: {error}") from None

    def fill(self, walk: int, tokens: Sequence[int], mask: Mask) -> None:
        """See `Walks`."""
        mask[...] = self._filled(Fill(walk, tuple(tokens), None, mask.shape[-1]))[0]

    def fill_drafts(self, walk: int, tokens: Sequence[int], drafts: Sequence[int], masks: Mask) -> None:
        """See `Walks`."""
        question = Fill(walk, tuple(tokens), tuple(drafts), masks.shape[-1])
        masks[: len(drafts) + 1] = self._filled(question)

    def admissible(self, walk: int, tokens: Sequence[int], drafts: Sequence[int]) -> int:
        """See `Walks`."""
        answer = self._walk(Admissible(walk, tuple(tokens), tuple(drafts)))
        assert isinstance(answer, Count)
        return answer.value

    def forget(self, walk: int) -> None:
        """See `Walks`."""
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                send(process.walking, Forget(walk))

    def close(self) -> None:
        """See `Walks`."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            self._end(process)

    def _filled(self, question: Fill) -> Mask:
        answer = self._walk(question)
        assert isinstance(answer, Masks)
        return np.frombuffer(answer.data, np.int32).reshape(-1, question.words)

    def _walk(self, question: Question) -> Answer:
        process = self._process
        if process is None:
            raise _LostError
        return self._ask(process, process.walking, question)

    def _ask(self, process: _Process, connection: socket.socket, question: Question) -> Answer:
        """Raises the error that the process answers with, or _LostError when it does not answer."""
        try:
            send(connection, question)
            data = receive(connection)
        except OSError:
            data = None
        if data is None:
            self._end(process)
            raise _LostError
        answer = decode_answer(data)
        if isinstance(answer, Problem):
            raise _error(answer)
        return answer

    def _running(self) -> _Process:
        with self._lock:
            if self._closed:
                raise _LostError
            if self._process is not None:
                return self._process
            process = self._process = _Process()
        # Nobody else asks before the first answer, and whoever ends it need not wait for it to listen.
        process.begin(self._start())
        return process

    def _end(self, process: _Process) -> None:
        with self._lock:
            if self._process is process:
                self._process = None
        process.end()


class _Process:
    """A running process and the sockets to it. `begin` comes first."""

    def __init__(self) -> None:
        self.beginning, its_beginning = socket.socketpair()
        self.walking, its_walking = socket.socketpair()
        self.walking.settimeout(_PATIENCE_SECONDS)
        theirs = (its_beginning, its_walking)
        numbers = [each.fileno() for each in theirs]
        command = [sys.executable, "-m", "flare.grammar.walker", *map(str, numbers)]
        self._popen = subprocess.Popen(
            command, pass_fds=numbers, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        for each in theirs:
            each.close()

    def begin(self, start: Start) -> None:
        """Say what to walk with."""
        with contextlib.suppress(OSError):  # the first question finds it gone
            send(self.beginning, start)

    def end(self) -> None:
        """Kill it; whoever waits for an answer gets none."""
        self._popen.kill()
        self._popen.wait()
        for each in (self.beginning, self.walking):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _LostError(GrammarError):
    def __init__(self) -> None:
        super().__init__("the process that follows grammars ended")


def _error(problem: Problem) -> FlareError:
    if problem.field is None:
        return GrammarError(problem.message)
    return CoreError(problem.message, field=problem.field)
