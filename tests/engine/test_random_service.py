"""Random service on the hash model: every stream equals the oracle, and nothing leaks or is reused early."""

from engine_harness import Harness, request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flare.scheduler import Settings
from flare.testing.hash_model import HashModel
from flare.testing.hash_oracle import HashShape

VOCABULARY = 23
MODELS = [
    HashModel(context=40, page_tokens=4, pages=11, vocab_size=VOCABULARY),
    HashModel(context=40, page_tokens=4, pages=25, snapshot_rows=24, vocab_size=VOCABULARY),
    HashModel(context=40, page_tokens=4, snapshot_rows=12, vocab_size=VOCABULARY),
    HashModel(
        context=37,
        page_tokens=5,
        pages=20,
        snapshot_rows=40,
        prefill_tokens=(3, 7),
        vocab_size=VOCABULARY,
        shape=HashShape(group=5, overlap=0, window=1, taps=1, history=1),
    ),
    HashModel(context=40, page_tokens=16, concurrency=2, decode_lanes=(2,), vocab_size=VOCABULARY),
    HashModel(
        context=24,
        page_tokens=1,
        pages=50,
        prefill_tokens=(5,),
        vocab_size=VOCABULARY,
        shape=HashShape(group=1, overlap=3, window=9),
    ),
    HashModel(context=40, page_tokens=4, vocab_size=VOCABULARY, host_fed=True),
]
DELAYS_US = {"none": 0, "short": 60, "long": 400}
tokens = st.integers(0, VOCABULARY - 1)


class RandomService(RuleBasedStateMachine):
    @initialize(
        model=st.sampled_from(MODELS),
        max_frames=st.sampled_from([1, 2]),
        delay=st.sampled_from(sorted(DELAYS_US)),
        max_passes=st.sampled_from([0, 1, 16]),
        inter_token_ms=st.sampled_from([0.01, 0.3, 150.0]),
    )
    def start(self, model, max_frames, delay, max_passes, inter_token_ms):
        step_us = DELAYS_US[delay]
        self.harness = Harness(
            model,
            max_frames=max_frames,
            settings=Settings(max_waiting=4, max_passes=max_passes, inter_token_ms=inter_token_ms),
            delay_s=(lambda frame, program: frame * 7919 % 4 * step_us * 1e-6) if step_us else None,
        )
        self.count = 0
        self.histories = [()]

    @rule(
        suffix=st.lists(tokens, min_size=0, max_size=45).map(tuple),
        choice=st.integers(0, 10**6),
        cut=st.sampled_from([0, 0, 0, 1, 4, 9]),
        endpoints=st.lists(st.integers(1, 40), max_size=4).map(tuple),
        max_tokens=st.integers(1, 45),
        stops=st.lists(tokens, max_size=4, unique=True).map(tuple),
        min_tokens=st.sampled_from([0, 0, 3]),
        seed=st.integers(0, 2**64 - 1),
    )
    def submit(self, suffix, choice, cut, endpoints, max_tokens, stops, min_tokens, seed):
        """A new prompt, or one that continues, branches from or repeats an earlier history."""
        history = self.histories[choice % len(self.histories)]
        prompt = history[: len(history) - cut] + suffix or (1,)
        self.count += 1
        name = f"r{self.count}"
        self.harness.submit(request(name, prompt, max_tokens, stops, min_tokens, seed, endpoints))
        if len(prompt) < self.harness.model.context:
            self.histories += [prompt, prompt + tuple(self.harness.expected(name))]

    @rule(choice=st.integers(0, 10**6))
    def cancel(self, choice):
        if self.count:
            self.harness.engine.cancel(f"r{1 + choice % self.count}")

    @rule(count=st.integers(1, 12))
    def step(self, count):
        for _ in range(count):
            self.harness.engine.step()

    @rule()
    def finish_everything(self):
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
            finally:
                self.harness.close()


RandomService.TestCase.settings = settings(
    max_examples=int(__import__("os").environ.get("N", "120")), stateful_step_count=30, deadline=None
)
TestRandomService = RandomService.TestCase
