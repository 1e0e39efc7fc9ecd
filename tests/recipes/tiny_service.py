"""Random service of a tiny model: branching texts, with images and stores behind the device where asked."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from image_prompts import placed
from later import Later

from flare.cache.stores import DiskStore, HostStore, core_state
from flare.contract import ImageProfile
from flare.device import LoadOptions
from flare.engine.loading import content_name, load_core
from flare.engine.loop import Engine
from flare.engine.messages import Admitted, Event, Finished, Sampling, Submit, Tokens
from flare.engine.tiers import TierTransfers
from flare.frontend.images import PreparedImage, expand

# Room for two texts and a few checkpoints: three requests compete for it.
LOAD = LoadOptions(cache_tokens=288, snapshot_rows=18, threads=1)
LONGEST = 128
_MOST_PROMPT = 90
_VOCABULARY = 288


@dataclass(frozen=True)
class Text:
    """Tokens with one placeholder for an image, and the images."""

    tokens: tuple[int, ...]
    images: tuple[PreparedImage, ...] = ()

    def cut(self, length: int, placeholder: int) -> Text:
        """The first `length` tokens."""
        tokens = self.tokens[:length]
        return Text(tokens, self.images[: tokens.count(placeholder)])


class Service:
    """An engine, and what became of every request. With `directory`, there are stores of host memory and disk
    behind the device, and the engine is started anew now and then; `pictures` come into prompts. Tokens that
    are `marks` are in no prompt but as placeholders: a reference makes more of them than a served model."""

    def __init__(
        self,
        core: Path,
        seed: int,
        profile: ImageProfile,
        marks: Collection[int],
        pictures: Sequence[PreparedImage] = (),
        directory: Path | None = None,
    ) -> None:
        self.numbers = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.submitted: dict[str, Submit] = {}
        self.drawn: dict[str, list[int]] = defaultdict(list)
        self.logprobs: dict[str, list[float]] = defaultdict(list)
        self._core, self._profile, self._pictures = core, profile, pictures
        self._directory, self._marks = directory, {profile.placeholder, *marks}
        self._known: dict[str, Text] = {}
        self._live: list[str] = []
        self._start()

    def run(self, steps: int) -> None:
        """Steps of the engine, and between them requests, cancellations, transfers and restarts; then
        everything to its end."""
        numbers = self.numbers
        for _ in range(steps):
            if len(self._live) < 6 and numbers.random() < 0.25:
                self._submit()
            if self._live and numbers.random() < 0.02:
                self.engine.cancel(numbers.choice(self._live))
            self._transfer(0.3)
            if self._directory is not None and numbers.random() < 0.01:
                self._restart()
            self.engine.step()
        while self.engine.step() or self._transfer(1.0):
            pass
        assert not self._live
        self.close()

    def close(self) -> None:
        """End the engine, however far it is."""
        scheduler = self.engine.scheduler
        evicted = scheduler.tree.counts
        self.counts["preempted"] += scheduler.preemptions
        self.counts["evicted"] += evicted.thinned + evicted.evicted_for_pages + evicted.evicted_for_rows
        if self._transfers is not None:
            self.counts["restored"] += self._transfers.counts.restores
            for store in self._transfers.stores:
                self.counts[store.name] += store.counts.hits
                self.counts["dropped"] += store.counts.evicted
        self.engine.close()

    def _start(self) -> None:
        device = load_core(str(self._core), LOAD)
        self._restores, self._saves = Later(), Later()
        self._transfers: TierTransfers | None = None
        if self._directory is not None:
            state = core_state(device.contract, content_name(str(self._core)))
            block = state.row_bytes + state.page_bytes
            stores = [
                HostStore(state, 6 * block + 8 * state.page_bytes),
                DiskStore(self._directory, state, 40 * (block + 1024)),
            ]
            self._transfers = TierTransfers(device, stores, restoring=self._restores, saving=self._saves)
        self.engine = Engine(device, self._note, transfers=self._transfers)
        # What a program took decides about chunks: with costs of its size alone every run is the same.
        costs = self.engine.scheduler.costs
        costs.observe = lambda name, elapsed_us, depth=0: None  # type: ignore[method-assign]
        sizes = {program.name: program.tokens for program in device.contract.programs}
        costs.of = lambda name, depth=0: 10_000.0 + 400.0 * sizes[name]  # type: ignore[method-assign]

    def _restart(self) -> None:
        """What was not written is lost, and so are the requests."""
        while self.numbers.random() < 0.8 and self._saves.run_one():
            pass
        self.close()
        self._live.clear()
        self.counts["restarts"] += 1
        self._start()

    def _transfer(self, chance: float) -> bool:
        ran = False
        for jobs in (self._restores, self._saves):
            if self.numbers.random() < chance:
                ran |= jobs.run_one()
        return ran

    def _note(self, event: Event) -> None:
        if isinstance(event, Tokens):
            name = event.request_id
            self.drawn[name] += event.tokens
            self.logprobs[name] += (one.logprob for one in event.logprobs)
            known = self._known[name]
            if self._marks.isdisjoint(event.tokens):
                self._known[name] = Text((*known.tokens, *event.tokens), known.images)
        elif isinstance(event, Finished):
            self._live.remove(event.request_id)
            self.counts["cached"] += event.cached_tokens
            self.counts[event.reason] += 1
        else:
            assert isinstance(event, Admitted), event

    def _submit(self) -> None:
        """A prompt that continues, or branches from, a text that was served before; or a new one."""
        numbers, name = self.numbers, f"r{len(self.submitted)}"
        text = self._text()
        expanded = expand(text.tokens, (), text.images, self._profile)
        prompt = expanded.tokens
        ends = {numbers.randint(1, len(prompt)) for _ in range(2)} - {len(prompt)}
        submit = Submit(
            request_id=name,
            prompt=prompt,
            sampling=Sampling(temperature=1.0, seed=numbers.randrange(1 << 32)),
            max_tokens=numbers.choice([1, 2, 4, 8, LONGEST - len(prompt)]),
            logprobs=0,
            endpoints=tuple(sorted(ends)),
            images=tuple(placed(expanded)),
            rope_positions=expanded.rope_positions if text.images else b"",
        )
        self.counts["images"] += len(text.images)
        self.submitted[name], self._known[name] = submit, text
        self._live.append(name)
        self.engine.submit(submit)

    def _text(self) -> Text:
        numbers, placeholder = self.numbers, self._profile.placeholder
        while True:
            text = Text(())
            if self._known and numbers.random() < 0.8:
                known = self._known[numbers.choice(list(self._known)[-6:])]
                whole = len(known.tokens)
                text = known.cut(numbers.choice([whole, numbers.randint(1, whole)]), placeholder)
            tokens, images = list(text.tokens), list(text.images)
            for _ in range(numbers.choice([0, 1, 1, 2]) if self._pictures else 0):
                # The reference takes images without a token between them for one.
                tokens += [*self._words(numbers.choice([1, 1, 3])), placeholder]
                images.append(numbers.choice(self._pictures))
            tokens += self._words(numbers.choice([0, 1, 3, 20])) or ([] if tokens else self._words(1))
            if sum(image.features - 1 for image in images) + len(tokens) <= _MOST_PROMPT:
                return Text(tuple(tokens), tuple(images))

    def _words(self, count: int) -> list[int]:
        words: list[int] = []
        while len(words) < count:
            word = self.numbers.randrange(_VOCABULARY)
            words += [word] if word not in self._marks else []
        return words
