"""Random service of the tiny model: whatever was shared, restored, cancelled or put back, every drawn token
has the log-probability that Transformers gives it behind the same text."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import torch
from prepared_cores import tiny_request

from flare.contract import DType
from flare.device import LoadOptions
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Event, Finished, Sampling, Submit, TokenLogprobs, Tokens
from flare.prepare import CapacityRequest, Progress
from flare.prepare.session import PreparationSession
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE

# Room for two contexts and a few checkpoints: three requests compete for it.
CAPACITIES = CapacityRequest(
    context=128, concurrency=3, prefill_chunk_size=48, page_tokens=16, snapshot_rows=18
)
CACHE_TOKENS = 288
BOUND = 1e-3  # nats


class Service:
    """An engine, and what became of every request."""

    def __init__(self, core: Path, seed: int) -> None:
        self.numbers = random.Random(seed)
        self.engine = Engine(load_core(str(core), LoadOptions(cache_tokens=CACHE_TOKENS)), self._note)
        # What a program took decides about chunks: without measurements every run is the same.
        self.engine.scheduler.costs.observe = lambda name, elapsed_us: None  # type: ignore[method-assign]
        self.texts: dict[str, list[int]] = {}
        self.drawn: dict[str, list[TokenLogprobs]] = defaultdict(list)
        self.live: list[str] = []
        self.cached = 0

    def _note(self, event: Event) -> None:
        if isinstance(event, Tokens):
            self.texts[event.request_id] += event.tokens
            self.drawn[event.request_id] += event.logprobs
        elif isinstance(event, Finished):
            self.live.remove(event.request_id)
            self.cached += event.cached_tokens

    def submit(self) -> None:
        """A prompt that continues, or branches from, a text that was served before; or a new one."""
        numbers, name = self.numbers, f"r{len(self.texts)}"
        prompt: list[int] = []
        if self.texts and numbers.random() < 0.8:
            known = self.texts[numbers.choice(list(self.texts)[-6:])]
            prompt = known[: numbers.choice([len(known), numbers.randint(1, len(known))])][:90]
        prompt = prompt + [numbers.randrange(288) for _ in range(numbers.choice([0, 1, 3, 20]))]
        prompt = prompt or [numbers.randrange(288)]
        ends = {numbers.randint(1, len(prompt)) for _ in range(2)} - {len(prompt)}
        submit = Submit(
            request_id=name,
            prompt=tuple(prompt),
            sampling=Sampling(temperature=1.0, seed=numbers.randrange(1 << 32)),
            max_tokens=numbers.choice([1, 2, 4, 8, 128 - len(prompt)]),
            logprobs=0,
            endpoints=tuple(sorted(ends)),
        )
        self.texts[name] = prompt
        self.live.append(name)
        self.engine.submit(submit)

    def run(self, steps: int) -> None:
        """Steps with new requests and cancellations between them; then everything to its end."""
        for _ in range(steps):
            if len(self.live) < 6 and self.numbers.random() < 0.25:
                self.submit()
            if self.live and self.numbers.random() < 0.02:
                self.engine.cancel(self.numbers.choice(self.live))
            self.engine.step()
        while self.engine.step():
            pass


def is_near_tie(reference: torch.nn.Module, text: list[int], place: int) -> bool:
    """Whether rounding decides about an expert or a group: Transformers' own value moves as far when
    embeddings change in their last bits."""
    embedding = reference.get_input_embeddings()
    weight, generator = embedding.weight.data, torch.Generator().manual_seed(0)
    values = []
    for _ in range(12):
        embedding.weight.data = weight * (1 + 3e-6 * torch.randn(weight.shape, generator=generator))
        logits = reference(torch.tensor([text[: place + 1]])).logits[0, place - 1]
        values.append(float(logits.float().log_softmax(-1)[text[place]]))
    embedding.weight.data = weight
    return max(values) - min(values) > BOUND


@torch.inference_mode()
def test_every_drawn_token_has_the_likelihood_of_transformers(
    flare_tiny_checkpoint: TinyCheckpoints, tmp_path: Path, complete: bool
) -> None:
    checkpoint = RECIPE.loader.open(flare_tiny_checkpoint(RECIPE))
    core = tmp_path / "core.safetensors"
    request = replace(tiny_request(DType.F32, CAPACITIES), calibrate=False)
    PreparationSession(RECIPE, request, Progress()).prepare(checkpoint, core)
    service = Service(core, seed=3)
    service.run(2000 if complete else 600)
    preemptions = service.engine.scheduler.preemptions
    service.engine.close()
    assert not service.live
    reference = RECIPE.oracle.reference(checkpoint, DType.F32)
    compared = 0
    for name, drawn in service.drawn.items():
        text = service.texts[name]
        logits = reference(torch.tensor([text])).logits[0].float().log_softmax(-1)
        begin = len(text) - len(drawn)
        for place, found in enumerate(drawn, begin):
            difference = abs(found.logprob - float(logits[place - 1, text[place]]))
            assert difference < BOUND or is_near_tie(reference, text, place), (name, place, difference)
            compared += 1
    print(
        f"{len(service.texts)} requests, {compared} tokens, {service.cached} reused, {preemptions} put back"
    )
    assert compared > 500
    assert service.cached > 200
    assert preemptions > 0
