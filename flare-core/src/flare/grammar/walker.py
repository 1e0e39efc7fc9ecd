"""The walking process: `python -m flare.grammar.walker BEGINNING WALKING`, started by `flare.grammar.remote`.

The arguments are descriptors of two sockets. Grammars are begun on one, by a thread of its own, and walked on
the other. Making a vocabulary holds the interpreter lock for most of a second, compiling a grammar takes up
to one, and no schema can be trusted not to end the process: none of that touches the engine. The process ends
with the engine, whose ends of the sockets close then; signals to a whole group are the engine's.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

import numpy as np

from flare.errors import FlareError
from flare.grammar.questions import (
    Admissible,
    Answer,
    Begin,
    Count,
    Done,
    Fill,
    Forget,
    Masks,
    Problem,
    Question,
    Start,
    decode_question,
    receive,
    send,
)
from flare.grammar.walks import LocalWalks


class Walker:
    """Answers questions."""

    def __init__(self, start: Start) -> None:
        self._walks = LocalWalks(lambda: start)

    def answer(self, question: Question) -> Answer | None:
        """None where there is nothing to say."""
        try:
            match question:
                case Begin(walk, grammar, stop_tokens):
                    self._walks.begin(walk, grammar, stop_tokens)
                    return Done()
                case Fill():
                    return Masks(self._masks(question))
                case Admissible(walk, tokens, drafts):
                    return Count(self._walks.admissible(walk, tokens, drafts))
                case Forget(walk):
                    self._walks.forget(walk)
        except FlareError as error:
            return Problem(str(error), error.field)
        return None

    def _masks(self, question: Fill) -> bytes:
        walk, tokens, drafts = question.walk, question.tokens, question.drafts
        masks = np.full((len(drafts or ()) + 1, question.words), -1, np.int32)
        if drafts is None:
            self._walks.fill(walk, tokens, masks[0])
        else:
            self._walks.fill_drafts(walk, tokens, drafts, masks)
        return masks.tobytes()


def main() -> None:
    """Serve until the engine is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    beginning, walking = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    data = receive(beginning)
    if data is None:
        return
    start = decode_question(data)
    assert isinstance(start, Start)
    walker = Walker(start)
    threading.Thread(target=_serve, args=(beginning, walker.answer), daemon=True).start()
    _serve(walking, walker.answer)
    os._exit(0)  # whatever is compiled has nobody who waits for it


def _serve(connection: socket.socket, answer: Callable[[Question], Answer | None]) -> None:
    try:
        while (data := receive(connection)) is not None:
            if (said := answer(decode_question(data))) is not None:
                send(connection, said)
    except OSError:
        return


if __name__ == "__main__":
    main()
