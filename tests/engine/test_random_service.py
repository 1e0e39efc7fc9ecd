"""Random service on the hash model: every stream equals the oracle, and nothing leaks or is reused early.

At least 20,000 Hypothesis steps, each a submission, a cancellation or up to twelve steps of the engine. With
`--complete` it is half a million, in rounds: about a quarter of an hour.
"""

import pytest
from engine_harness import Harness, request
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from service_models import GRAMMARS, LONG, MASKED, MODELS, SPECULATIVE, VOCABULARY

from flare.engine.messages import Finished
from flare.scheduler import Settings
from flare.testing import hash_images

STEPS = 20_000
STEPS_PER_SERVICE = 50  # at most
DELAYS_US = {"none": 0, "short": 60, "long": 400}
tokens = st.integers(0, VOCABULARY - 1)


class Totals:
    """What all services did together."""

    rounds = steps = frames = drafted = accepted = preemptions = hits = images = constrained = 0


class RandomService(RuleBasedStateMachine):
    @initialize(
        model=st.sampled_from([*MODELS, *LONG, *SPECULATIVE, *MASKED]),
        max_frames=st.sampled_from([1, 2]),
        delay=st.sampled_from(sorted(DELAYS_US)),
        max_passes=st.sampled_from([0, 1, 16]),
        inter_token_ms=st.sampled_from([0.01, 0.3, 150.0]),
        drafts=st.sampled_from([None, None, None, 0, 1]),
        proposal_key=st.sampled_from([None, 1, 2, 3]),
    )
    def start(self, model, max_frames, delay, max_passes, inter_token_ms, drafts, proposal_key):
        step_us = DELAYS_US[delay]
        if drafts:  # the fewest that are prepared for as many requests as are served
            widths = [width for lanes, _, width, _ in model.speculative if lanes >= model.concurrency]
            drafts = min(widths, default=1) - 1
        self.harness = Harness(
            model,
            max_frames=max_frames,
            settings=Settings(
                max_waiting=4, max_passes=max_passes, inter_token_ms=inter_token_ms, draft_tokens=drafts
            ),
            proposal_key=proposal_key,
            delay_s=(lambda frame, program: frame * 7919 % 4 * step_us * 1e-6) if step_us else None,
        )
        self.count = 0
        self.histories = [((), ())]

    @rule(
        suffix=st.lists(tokens, min_size=0, max_size=45).map(tuple),
        choice=st.integers(0, 10**6),
        repeat=st.sampled_from([1, 1, 6]),
        cut=st.sampled_from([0, 0, 0, 1, 4, 9]),
        endpoints=st.lists(st.integers(1, 40), max_size=4).map(tuple),
        max_tokens=st.integers(1, 45),
        stops=st.lists(tokens, max_size=4, unique=True).map(tuple),
        min_tokens=st.sampled_from([0, 0, 3]),
        seed=st.integers(0, 2**64 - 1),
        picture=st.one_of(st.none(), st.tuples(st.sampled_from("abc"), st.integers(1, 2), st.integers(1, 3))),
        grammar=st.sampled_from(["", *GRAMMARS]),
    )
    def submit(
        self, suffix, choice, repeat, cut, endpoints, max_tokens, stops, min_tokens, seed, picture, grammar
    ):
        """A new prompt, or one that continues, branches from or repeats an earlier history."""
        Totals.steps += 1
        if self.harness.model.context > 100:
            suffix *= repeat
        history, images = self.histories[choice % len(self.histories)]
        prompt = history[: len(history) - cut]
        if any(one.start < len(prompt) < one.start + one.tokens for one in images):
            prompt = history
        images = tuple(one for one in images if one.start < len(prompt))
        if picture is not None and self.harness.model.image_features:
            images += (hash_images.image(picture[0], len(prompt), *picture[1:]),)
            prompt += (hash_images.PLACEHOLDER,) * images[-1].tokens
        prompt = prompt + suffix or (1,)
        self.count += 1
        name = f"r{self.count}"
        if not self.harness.model.tokenizer:
            grammar = ""
        if grammar:
            stops, min_tokens = (0,), 0
        self.harness.submit(
            request(name, prompt, max_tokens, stops, min_tokens, seed, endpoints, images, grammar)
        )
        if len(prompt) < self.harness.model.context and self.harness.takes(images):
            output = tuple(self.harness.expected(name))
            self.histories += [(prompt, images), (prompt + output, images)]

    @rule(choice=st.integers(0, 10**6))
    def cancel(self, choice):
        Totals.steps += 1
        if self.count:
            self.harness.engine.cancel(f"r{1 + choice % self.count}")

    @rule(count=st.integers(1, 12))
    def step(self, count):
        Totals.steps += 1
        for _ in range(count):
            self.harness.engine.step()

    @rule()
    def finish_everything(self):
        Totals.steps += 1
        self.harness.run()
        self.harness.check()

    @invariant()
    def no_page_has_two_holders(self):
        if hasattr(self, "harness"):
            scheduler = self.harness.scheduler
            held = [page for request in scheduler._running for page in request.pages[request.shared :]]
            for checkpoint in scheduler.tree:
                tail = checkpoint.storage.tail_page
                held += [*checkpoint.pages, *(() if tail is None else (tail,))]
            assert len(held) == len(set(held))
            assert 0 not in held

    def teardown(self):
        if hasattr(self, "harness"):
            try:
                self.harness.run()
                self.harness.check()
                self.harness.check_empty()
                self.count_up()
            finally:
                self.harness.close()

    def count_up(self):
        scheduler = self.harness.scheduler
        Totals.frames += self.harness.engine._steps
        ended = [self.harness.requests[e.request_id] for e in self.harness.events if isinstance(e, Finished)]
        Totals.images += sum(len(submit.images) for submit in ended)
        Totals.constrained += sum(bool(submit.grammar) for submit in ended)
        Totals.drafted += scheduler.drafted[0]
        Totals.accepted += scheduler.drafted[1]
        Totals.preemptions += scheduler.preemptions
        Totals.hits += scheduler.prefix.hits


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
def test_random_service(complete, capsys):
    services, rounds = STEPS // 40, 25 if complete else 1
    # Hypothesis remembers all choices of a round: one long one takes gigabytes. It may also draw no model
    # with images in all of a round.
    while rounds > 0 or (rounds > -2 and Totals.images <= 10):
        rounds -= 1
        run_state_machine_as_test(
            RandomService,
            settings=settings(
                max_examples=services,
                stateful_step_count=STEPS_PER_SERVICE,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        Totals.rounds += 1
    counts = {name: count for name, count in vars(Totals).items() if isinstance(count, int)}
    with capsys.disabled():
        print(f"\n{Totals.rounds * services} services: {counts}")
    assert Totals.steps >= Totals.rounds * STEPS
    # Far below what seeds give: models are drawn at random too.
    assert min(Totals.accepted, Totals.drafted - Totals.accepted, Totals.hits) > 100
    assert Totals.preemptions > 10
    assert Totals.images > 10
    assert Totals.constrained > 30
