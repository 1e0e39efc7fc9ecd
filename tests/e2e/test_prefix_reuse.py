"""SmolLM2 continues from checkpoints of any length: all of the prefix is reused, and nothing changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from flare_run import FlareRun

from flare.device import LoadOptions
from flare.engine.loading import load_core
from flare.engine.loop import Engine
from flare.engine.messages import Event, Finished, Sampling, Submit, TokenLogprobs, Tokens

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

LENGTHS = (1, 17, 62, 63, 64, 65, 66, 126, 127, 128, 129, 130, 1000)
SUFFIX = 20
TOKENS = [random.Random(0).randrange(1000, 40000) for _ in range(max(LENGTHS) + SUFFIX)]
BOUND = 0.35  # nats, between one prefill and a split one in BF16; see test_logits.py for the same in FP32


@pytest.fixture(scope="module")
def real_client(smollm_core: Path) -> Iterator[openai.OpenAI]:
    with FlareRun(smollm_core, threads=None) as server, server.client() as client:
        yield client.with_options(timeout=300)


def ask(client: openai.OpenAI, prompt: list[int], salt: str, max_tokens: int = 4):
    response = client.completions.create(
        model=client.models.list().data[0].id,
        prompt=prompt,
        max_tokens=max_tokens,
        temperature=0.05,
        seed=7,
        logprobs=5,
        extra_body={"cache_salt": salt, "ignore_eos": True},
    )
    assert response.usage is not None
    details = response.usage.prompt_tokens_details
    return response.choices[0].logprobs, 0 if details is None else details.cached_tokens


@pytest.mark.parametrize("length", LENGTHS)
def test_a_second_request_reuses_the_first_prompt_whole(real_client: openai.OpenAI, length: int) -> None:
    prompt = TOKENS[: length + SUFFIX]
    _, cached = ask(real_client, prompt[:length], f"reuse {length}")
    assert cached == 0
    reused, cached = ask(real_client, prompt, f"reuse {length}", max_tokens=1)
    assert cached == length
    whole, cached = ask(real_client, prompt, f"whole {length}", max_tokens=1)
    assert cached == 0
    for token, logprob in whole.top_logprobs[0].items():
        if token in reused.top_logprobs[0]:
            assert abs(reused.top_logprobs[0][token] - logprob) < BOUND
    assert set(whole.top_logprobs[0]) & set(reused.top_logprobs[0])


def test_an_exact_repeat_computes_no_token_of_its_prompt(real_client: openai.OpenAI) -> None:
    prompt = TOKENS[:70]
    first, _ = ask(real_client, prompt, "repeat")
    again, cached = ask(real_client, prompt, "repeat")
    assert cached == 70
    assert again == first  # the same saved vector, so the same bits


def test_nothing_is_shared_across_salts(real_client: openai.OpenAI) -> None:
    ask(real_client, TOKENS[:70], "mine")
    assert ask(real_client, TOKENS[:70], "yours")[1] == 0


class Service:
    """An engine in this process, with fixed program costs so that equal prompts get equal chunks."""

    def __init__(self, core: Path) -> None:
        self.events: list[Event] = []
        self.engine = Engine(load_core(str(core), LoadOptions()), self.events.append)
        self.engine.scheduler.costs.observe = lambda name, elapsed_us, depth=0: None  # type: ignore[method-assign]

    def logprobs(self, prompt: list[int], salt: str, endpoints: tuple[int, ...] = ()) -> TokenLogprobs:
        """What is reported for the first token drawn behind `prompt`."""
        self.events.clear()
        sampling = Sampling(temperature=0.05, seed=3)
        submit = Submit(
            request_id="r",
            prompt=tuple(prompt),
            sampling=sampling,
            max_tokens=2,
            logprobs=20,
            endpoints=endpoints,
            cache_salt=salt,
        )
        self.engine.submit(submit)
        while self.engine.step():
            pass
        self.cached = next(event.cached_tokens for event in self.events if isinstance(event, Finished))
        return next(event.logprobs[0] for event in self.events if isinstance(event, Tokens))


@pytest.fixture(scope="module")
def service(smollm_core: Path) -> Iterator[Service]:
    service = Service(smollm_core)
    yield service
    service.engine.close()


@pytest.mark.parametrize("length", LENGTHS)
def test_restored_state_continues_with_the_bits_of_the_live_row(service: Service, length: int) -> None:
    prompt = TOKENS[: length + SUFFIX]
    # The live row goes on behind the endpoint, where a snapshot is taken in passing.
    live = service.logprobs(prompt, f"live {length}", endpoints=(length,))
    assert service.cached == 0
    service.logprobs(prompt[:length], f"restored {length}")
    restored = service.logprobs(prompt, f"restored {length}")
    assert service.cached == length
    assert restored == live
