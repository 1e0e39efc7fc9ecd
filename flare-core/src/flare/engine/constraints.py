"""Grammars of live requests: compiled beside the steps, followed as tokens come, asked for masks.

A matcher stands behind the tokens that were committed: whatever a request went through meanwhile (preemption,
readmission, a restored prefix, drafts that were rejected), its output only ever grows. Drafts are tried on
the matcher and taken back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flare.contract import PreparedContract
from flare.device.base import Bytes
from flare.engine.messages import Submit
from flare.errors import FlareError
from flare.grammar import GrammarError, Matcher, Vocabulary
from flare.scheduler import Lane, ProposalSource, Request

_REMEMBERED = 32  # grammars, of the last requests
_EVERYTHING = np.int32(-1)


class Constraints:
    """Grammars of one engine. `begin` compiles a request's on a thread of its own (`beside`) or at once;
    `compiled` returns the requests whose grammars are ready, or why they are not. `wake` is called from the
    thread when there are some. `failures` has requests that cannot go on, and why."""

    def __init__(self, contract: PreparedContract, tokenizer: Bytes, beside: bool = False) -> None:
        self._contract = contract
        self._tokenizer = tokenizer
        self._vocabulary: Vocabulary | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flare-grammar") if beside else None
        self._grammars: OrderedDict[str, Matcher] = OrderedDict()  # touched by the compiling thread only
        self._ready: SimpleQueue[tuple[Submit, Matcher | FlareError]] = SimpleQueue()
        self._compiling: dict[str, Submit] = {}
        self._matchers: dict[str, Matcher] = {}
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

    def compiled(self) -> list[tuple[Submit, str | None]]:
        """Requests that `begin` was called for and that have their grammar, or a problem instead."""
        done: list[tuple[Submit, str | None]] = []
        while True:
            try:
                submit, made = self._ready.get_nowait()
            except Empty:
                return done
            if self._compiling.get(submit.request_id) is not submit:
                continue  # withdrawn
            del self._compiling[submit.request_id]
            if isinstance(made, Matcher):
                self._matchers[submit.request_id] = made
                done.append((submit, None))
            else:
                done.append((submit, str(made)))

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._matchers.pop(request_id, None)
        self.failures.pop(request_id, None)

    def close(self) -> None:
        """Compile nothing more."""
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _compile(self, submit: Submit) -> None:
        try:
            made: Matcher | FlareError = self._compiled(submit.grammar).copy(submit.stop_token_ids)
        except FlareError as error:
            made = error
        self._ready.put((submit, made))
        self.wake()

    def _compiled(self, grammar: str) -> Matcher:
        if self._vocabulary is None:
            frontend = self._contract.frontend
            self._vocabulary = Vocabulary(bytes(self._tokenizer), frontend.vocab_size, frontend.eos_token_ids)
        known = self._grammars.get(grammar)
        if known is None:
            known = self._grammars[grammar] = Matcher.compile(self._vocabulary, grammar)
            if len(self._grammars) > _REMEMBERED:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(grammar)
        return known

    # Steps.

    def fill(self, lane: Lane, target: NDArray[Any]) -> None:
        """What the lane may draw, i32[words]; of a speculative program i32[W, words], also behind each of its
        proposals. When that is not known, everything, and the request is among the `failures`."""
        request = lane.request
        try:
            matcher = self._following(request)
            if target.ndim == 1:
                matcher.fill(target)
            else:
                target[...] = _EVERYTHING
                matcher.fill_drafts(target, lane.proposals)
        except GrammarError as error:
            target[...] = _EVERYTHING
            self._fail(request, error)

    def admissible(self, request: Request, drafts: Sequence[int]) -> int:
        """How many of `drafts` may follow the request's output."""
        try:
            return self._following(request).admissible(drafts)
        except GrammarError as error:
            self._fail(request, error)
            return 0

    def _following(self, request: Request) -> Matcher:
        """The matcher of `request`, behind everything that was committed."""
        matcher = self._matchers[request.id]
        matcher.advance(request.tokens[request.prompt_length + matcher.position :])
        return matcher

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
