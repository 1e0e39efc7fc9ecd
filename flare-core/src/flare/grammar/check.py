"""The checking process: `python -m flare.grammar.check`, started by `flare.grammar.checker`.

Reads requests from standard input (four bytes of length, big end first, then a constraint's grammar) and
answers each with a line of JSON, the problem or null. A grammar is compiled against single bytes, which finds
everything that is wrong with it and needs no model; its first mask is computed as well. The system ends the
process when a check takes too much processor time (SIGPROF) or memory, and Rust does for a stack that is too
deep.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import BinaryIO

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from flare.grammar.bounds import COMPILE_BYTES, COMPILE_SECONDS, parser_limits
from flare.grammar.errors import in_one_line, of_keyword

_END = 256


class _Bytes:
    """Every byte is a token; one more ends an output."""

    eos_token_id = _END
    bos_token_id = None
    special_token_ids = (_END,)
    tokens = (*(bytes([value]) for value in range(256)), b"<end>")

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def problem_of(grammar: str, vocabulary: LLTokenizer) -> str | None:
    """What is wrong with a constraint's grammar; None when it can be served."""
    constraint = json.loads(grammar)
    text = json.dumps({"grammars": [constraint]})
    matcher = LLMatcher(vocabulary, text, log_level=0, limits=parser_limits())
    if matcher.is_error():
        problem = in_one_line(matcher.get_error())
        return of_keyword(problem) if "json_schema" in constraint else problem
    mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    if matcher.is_error() or not mask.any():
        return "no output is possible"
    return None


def byte_vocabulary() -> LLTokenizer:
    """What grammars are checked against."""
    return LLTokenizer(TokenizerWrapper(_Bytes()), n_vocab=_END + 1, eos_token=[_END], slices=[])


def main() -> None:
    """Serve until the end of standard input."""
    os.nice(10)  # whoever is served goes first
    vocabulary = byte_vocabulary()
    _limit_memory()
    while (grammar := _read(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_PROF, COMPILE_SECONDS)  # processor time; its signal ends the process
        answer = json.dumps(problem_of(grammar, vocabulary))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def _read(stream: BinaryIO) -> str | None:
    size = int.from_bytes(stream.read(4), "big")
    return stream.read(size).decode() if size else None


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + COMPILE_BYTES,) * 2)


if __name__ == "__main__":
    main()
