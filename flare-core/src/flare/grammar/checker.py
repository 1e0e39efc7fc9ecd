"""The front's side of the checking process: one grammar at a time, off the event loop and out of the
server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import OrderedDict

from flare.errors import UnavailableError
from flare.grammar.bounds import COMPILE_BYTES, COMPILE_SECONDS
from flare.grammar.constraint import Constraint
from flare.grammar.errors import GrammarError

_REMEMBERED = 128
_MOST_WAITING = 16
_PATIENCE_SECONDS = 60.0  # for a check on a machine with no time to spare, start of the process included


class GrammarChecker:
    """Says whether constraints can be served. The process starts with the first of them; one that dies over a
    constraint is started again for the next. Answers are remembered: agents ask for the same schema each
    turn.

    For one event loop.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, str | None] = OrderedDict()
        self._process: Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def check(self, constraint: Constraint) -> None:
        """Raises GrammarError naming the constraint's field, UnavailableError when too many others wait."""
        grammar = constraint.grammar
        if grammar not in self._answers:
            if self._waiting >= _MOST_WAITING:
                raise UnavailableError(f"{self._waiting} grammars wait to be compiled already")
            self._waiting += 1
            try:
                async with self._turn:
                    if grammar not in self._answers:
                        self._remember(grammar, await self._asked(grammar))
            finally:
                self._waiting -= 1
        self._answers.move_to_end(grammar)
        problem = self._answers[grammar]
        if problem is not None:
            raise GrammarError(f"{constraint.where}: {problem}", field=constraint.where)

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _remember(self, grammar: str, problem: str | None) -> None:
        self._answers[grammar] = problem
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)

    async def _asked(self, grammar: str) -> str | None:
        """The process's answer, or why there is none."""
        if self._process is None:
            arguments = sys.executable, "-m", "flare.grammar.check"
            self._process = await asyncio.create_subprocess_exec(
                *arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        data = grammar.encode()
        try:
            process.stdin.write(len(data).to_bytes(4, "big") + data)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), _PATIENCE_SECONDS)
        except TimeoutError:
            await self.close()
            return _TOO_LONG
        except BaseException:  # cancelled: the next answer would be to this question
            await self.close()
            raise
        if line:
            answer: str | None = json.loads(line)
            return answer
        self._process = None
        ended = await process.wait()
        return _TOO_LONG if ended == -signal.SIGPROF else _TOO_LARGE


_TOO_LONG = f"compiling the grammar takes more than {COMPILE_SECONDS:g} s of processor time"
_TOO_LARGE = f"compiling the grammar takes more than {COMPILE_BYTES >> 20} MiB of memory"
