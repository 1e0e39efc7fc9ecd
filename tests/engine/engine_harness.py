"""An engine on the sim device whose every stream is compared with the oracle."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from llguidance import LLMatcher, LLTokenizer
from scripted_proposals import ScriptedProposals

from flare.contract import Record, Region
from flare.device.sim import SimDevice, SimOptions
from flare.engine.constraints import Constraints
from flare.engine.loop import Engine
from flare.engine.messages import (
    Admitted,
    Event,
    Failed,
    Finished,
    Image,
    Rejected,
    Sampling,
    Submit,
    Tokens,
)
from flare.engine.tiers import TierTransfers
from flare.scheduler import Request, Settings
from flare.testing import hash_images
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import oracle
from flare.testing.image import CoreImage

_oracle = lru_cache(maxsize=256)(oracle)
_extra = lru_cache(maxsize=256)(hash_images.extra)  # one object for equal images, so that _oracle knows it


@cache
def image(model: HashModel) -> CoreImage:
    return model.build()


def request(
    name: str,
    prompt: tuple[int, ...] = (5, 6, 7),
    max_tokens: int = 8,
    stops: tuple[int, ...] = (),
    min_tokens: int = 0,
    seed: int = 11,
    endpoints: tuple[int, ...] = (),
    images: tuple[Image, ...] = (),
    grammar: str = "",
    session: str = "",
) -> Submit:
    return Submit(
        request_id=name,
        prompt=prompt,
        sampling=Sampling(temperature=1.0, seed=seed),
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_token_ids=stops,
        endpoints=endpoints,
        images=images,
        grammar=grammar,
        session=session,
        rope_positions=hash_images.packed(hash_images.positions(len(prompt), images)) if images else b"",
    )


@cache
def admitting(
    model: HashModel, grammar: str, stops: tuple[int, ...]
) -> Callable[[tuple[int, ...]], frozenset[int]]:
    """What may follow an output: each time by a fresh matcher that reads all of it."""
    vocabulary = LLTokenizer(model.tokenizer, eos_token=[0])

    @cache
    def admits(output: tuple[int, ...]) -> frozenset[int]:
        matcher = LLMatcher(vocabulary, grammar, log_level=0)
        assert matcher.consume_tokens(list(output)), output
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        admitted = frozenset(np.flatnonzero(bits).tolist()) - frozenset(stops)
        return admitted | frozenset(stops) if matcher.is_accepting() else admitted

    return admits


class Harness:
    """Freed pages and rows are poisoned at once, after checking that nothing in flight can touch them."""

    def __init__(
        self,
        model: HashModel,
        *,
        max_frames: int = 2,
        settings: Settings | None = None,
        delay_s: Callable[[int, str], float] | None = None,
        fail_at: int | None = None,
        corrupt: dict[int, dict[Record, int]] | None = None,
        transfers: Callable[[SimDevice], TierTransfers] | None = None,
        proposal_key: int | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        self.model = model
        self.device = SimDevice(
            image(model),
            SimOptions(max_frames=max_frames, delay_s=delay_s, fail_at=fail_at, corrupt=corrupt or {}),
        )
        self.events: list[Event] = []
        self.requests: dict[str, Submit] = {}
        self.transfers = transfers(self.device) if transfers is not None else None
        proposals = ScriptedProposals(self.expected, proposal_key, model.vocab_size)
        self.engine = Engine(
            self.device,
            self.events.append,
            settings,
            transfers=self.transfers,
            proposals=proposals,
            constraints=constraints,
        )
        scheduler = self.engine.scheduler
        self.scheduler = scheduler
        scheduler.pages.on_free = self._pages_freed
        scheduler.slots.on_free = self._slots_freed
        scheduler.rows.on_free = self._rows_freed
        self.preempted: dict[str, list[int]] = {}
        self.engine.preempted = self._preempted  # type: ignore[method-assign]
        self.idle_pages, self.idle_slots = scheduler.pages.free, scheduler.slots.free
        self.idle_rows = scheduler.rows.free

    def submit(self, submit: Submit) -> None:
        self.requests[submit.request_id] = submit
        self.engine.submit(submit)

    def run(self) -> None:
        """Step until idle."""
        while self.engine.step():
            pass

    def output(self, name: str) -> list[int]:
        return [
            token
            for event in self.events
            if isinstance(event, Tokens) and event.request_id == name
            for token in event.tokens
        ]

    def end(self, name: str) -> Finished | Rejected | Failed | None:
        ends = [
            event
            for event in self.events
            if isinstance(event, Finished | Rejected | Failed) and event.request_id == name
        ]
        assert len(ends) <= 1, ends
        return ends[0] if ends else None

    def admissions(self) -> list[str]:
        return [event.request_id for event in self.events if isinstance(event, Admitted)]

    def expected(self, name: str) -> list[int]:
        submit = self.requests[name]
        extra = {}
        if self.model.image_features:
            extra = {"extra": _extra(len(submit.prompt), submit.images)}
        if submit.grammar:
            extra |= {"admits": admitting(self.model, submit.grammar, submit.stop_token_ids)}
        return _oracle(
            submit.prompt,
            submit.sampling.seed,
            min(submit.max_tokens, self.model.context - len(submit.prompt)),
            submit.stop_token_ids,
            submit.min_tokens,
            self.model.vocab_size,
            tuple(self.preempted.get(name, ())),
            self.model.shape,
            **extra,
        )

    def takes(self, images: tuple[Image, ...]) -> bool:
        """Whether the model takes images of this size."""
        return sum(one.tokens for one in images) <= self.model.image_features

    def check(self) -> None:
        """Every stream so far is right, and when idle everything is free."""
        for name, submit in self.requests.items():
            output, expected, end = self.output(name), self.expected(name), self.end(name)
            match end:
                case Finished(reason="cancelled") | None:
                    assert output == expected[: len(output)], name
                case Finished():
                    assert output == expected, name
                    stopped = output[-1] in submit.stop_token_ids
                    assert end.reason == ("stop" if stopped else "length")
                    assert end.stop_token == (output[-1] if stopped else None)
                    assert end.output_tokens == len(output)
                    assert end.prompt_tokens == len(submit.prompt)
                case _:
                    assert output == [], name
        if self.engine.idle:
            tree = self.scheduler.tree
            assert self.scheduler.pages.free + tree.held_pages == self.idle_pages
            assert self.scheduler.rows.free + len(tree) == self.idle_rows
            assert self.scheduler.slots.free == self.idle_slots
            assert all(self.end(name) is not None for name in self.requests)

    def close(self) -> None:
        self.engine.close()

    def check_empty(self) -> None:
        """Idle, nobody continues from any checkpoint: all of them can go, and nothing is left."""
        assert self.engine.idle
        self.scheduler.tree.clear()
        assert len(self.scheduler.tree) == 0
        assert self.scheduler.pages.free == self.idle_pages
        assert self.scheduler.rows.free == self.idle_rows

    def _preempted(self, request: Request) -> None:
        self.preempted.setdefault(request.id, []).append(request.generated)

    def in_flight(self):
        """Requests of submitted programs, once per lane."""
        return [lane.request for plan, *_ in self.engine._in_flight for lane in plan.lanes]

    def _pages_freed(self, pages) -> None:
        for live in self.in_flight():
            assert not set(live.pages) & set(pages), "a page is freed under a frame in flight"
        self.device.poison(Region.PAGES, self.device.contract.page.nbytes, pages)

    def _rows_freed(self, rows) -> None:
        for plan, *_ in self.engine._in_flight:
            for lane in plan.lanes:
                if lane.transfer is not None:
                    used = (lane.transfer.source_row, lane.transfer.destination_row)
                    assert not set(used) & set(rows), "a snapshot row is freed under a frame in flight"
        self.device.poison(Region.ROWS, self.device.contract.row.nbytes, rows)

    def _slots_freed(self, slots) -> None:
        for live in self.in_flight():
            assert live.slot.index not in slots, "a slot is freed under a frame in flight"
        capacities = self.device.contract.capacities
        first = [capacities.live_row(slot) for slot in slots]
        rows = [row + column for row in first for column in range(capacities.verification_width)]
        self.device.poison(Region.ROWS, self.device.contract.row.nbytes, rows)
