"""Grammars of live requests: compiled beside the steps, followed as tokens come, asked for masks.

A matcher stands behind the tokens that were committed: whatever a request went through meanwhile (preemption,
readmission, a restored prefix, drafts that were rejected), its output only ever grows. Drafts are tried on
the matcher and taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import PreparedContract
from flare.device.base import Bytes
from flare.engine.messages import Submit
from flare.errors import FlareError
from flare.grammar import GrammarError, LocalWalks, RemoteWalks, Start, Walks
from flare.scheduler import Lane, ProposalSource, Request

_EVERYTHING = np.int32(-1)


@dataclass(slots=True)
class _Walk:
    """See `flare.grammar.Walks`; `told` tokens of its output it knows of."""

    number: int
    told: int = 0


class Constraints:
    """Grammars of one engine. `begin` compiles a request's at once, or `beside` the steps: then a process of
    its own has vocabulary and grammars, and a thread waits for it. `compiled` returns the requests whose
    grammars are ready, or why they are not; `wake` is called from the thread when there are some. `failures`
    has requests that cannot go on, and why."""

    def __init__(self, contract: PreparedContract, tokenizer: Bytes, beside: bool = False) -> None:
        self._contract = contract
        self._tokenizer = tokenizer
        self._walks: Walks = (RemoteWalks if beside else LocalWalks)(self._start)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flare-grammar") if beside else None
        self._ready: SimpleQueue[tuple[Submit, _Walk, FlareError | None]] = SimpleQueue()
        self._numbers = count()
        self._compiling: dict[str, Submit] = {}
        self._following: dict[str, _Walk] = {}
        self.wake: Callable[[], None] = lambda: None
        self.failures: dict[str, str] = {}

    # Coming and going.

    @property
    def compiling(self) -> Collection[str]:
        """Ids of requests whose grammars are on their way, in order of arrival."""
        return self._compiling

    def begin(self, submit: Submit) -> None:
        """Compile the grammar of a request."""
        self._compiling[submit.request_id] = submit
        if self._thread is None:
            self._compile(submit)
        else:
            self._thread.submit(self._compile, submit)

    def withdraw(self, request_id: str) -> Submit:
        """The request does not want its grammar any more."""
        return self._compiling.pop(request_id)

    def compiled(self) -> list[tuple[Submit, FlareError | None]]:
        """Requests that `begin` was called for and that have their grammar, or a problem instead."""
        done: list[tuple[Submit, FlareError | None]] = []
        while True:
            try:
                submit, walk, problem = self._ready.get_nowait()
            except Empty:
                return done
            if self._compiling.get(submit.request_id) is not submit:
                self._walks.forget(walk.number)  # withdrawn
                continue
            del self._compiling[submit.request_id]
            if problem is None:
                self._following[submit.request_id] = walk
            done.append((submit, problem))

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        if (walk := self._following.pop(request_id, None)) is not None:
            self._walks.forget(walk.number)
        self.failures.pop(request_id, None)

    def close(self) -> None:
        """Compile nothing more."""
        self._walks.close()
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _compile(self, submit: Submit) -> None:
        walk, problem = _Walk(next(self._numbers)), None
        try:
            self._walks.begin(walk.number, submit.grammar, submit.stop_token_ids)
        except FlareError as error:
            problem = error
        self._ready.put((submit, walk, problem))
        self.wake()

    def _start(self) -> Start:
        frontend = self._contract.frontend
        return Start(bytes(self._tokenizer), frontend.vocab_size, tuple(frontend.eos_token_ids))

    # Steps.

    def fill(self, lane: Lane, target: NDArray[Any]) -> None:
        """What the lane may draw, i32[words]; of a speculative program i32[W, words], also behind each of its
        proposals. When that is not known, everything, and the request is among the `failures`."""
        request = lane.request
        try:
            walk, tokens = self._gained(request)
            if target.ndim == 1:
                self._walks.fill(walk, tokens, target)
            else:
                target[...] = _EVERYTHING
                drafts = lane.proposals
                self._walks.fill_drafts(walk, tokens, drafts, target[: len(drafts) + 1])
        except GrammarError as error:
            target[...] = _EVERYTHING
            self._fail(request, error)

    def admissible(self, request: Request, drafts: Sequence[int]) -> int:
        """How many of `drafts` may follow the request's output."""
        try:
            return self._walks.admissible(*self._gained(request), drafts)
        except GrammarError as error:
            self._fail(request, error)
            return 0

    def _gained(self, request: Request) -> tuple[int, Sequence[int]]:
        """The number of the request's walk, and what was committed since the walk was last told."""
        walk = self._following[request.id]
        told, walk.told = walk.told, request.generated
        return walk.number, request.tokens[request.prompt_length + told :]

    def _fail(self, request: Request, error: GrammarError) -> None:
        self.failures[request.id] = (
            f"the output cannot be continued as the request's grammar demands: {error}"
        )


class AdmissibleProposals:
    """Proposals of `source` as far as the grammars of their requests admit them."""

    def __init__(self, source: ProposalSource, constraints: Constraints) -> None:
        self._source = source
        self._constraints = constraints

    def propose(self, request: Request, limit: int) -> Sequence[int]:
        """See `flare.scheduler.ProposalSource`."""
        found = self._source.propose(request, limit)
        return found[: self._constraints.admissible(request, found)] if request.constrained else found
