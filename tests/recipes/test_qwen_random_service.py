"""Random service of the tiny model: whatever was shared, restored, evicted, brought back, cancelled or put
back, every drawn token has the log-probability that Transformers gives it behind the same text and images.

2,000 steps of each kind with `--complete`; FLARE_SERVICES is how many seeds there are of each.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from qwen_likelihoods import Likelihoods
from qwen_pictures import message, prompts
from qwen_service import Service

from flare.contract import DType
from flare.corefile import CoreReader, read_contract
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tiny import TEXT

BOUND = 1e-4  # nats
SEEDS = int(os.environ.get("FLARE_SERVICES", "1"))
# Two of the same size: only their contents differ.
PICTURES = [picture(64, 64, 1), picture(64, 64, 2), picture(100, 90, 3), picture(40, 200, 4)]


@pytest.fixture(scope="module")
def likelihoods(flare_tiny_checkpoint: TinyCheckpoints) -> Likelihoods:
    checkpoint = RECIPE.loader.open(flare_tiny_checkpoint(RECIPE))
    return Likelihoods(RECIPE.oracle.reference(checkpoint, DType.F32), TEXT["indexer_compress_ratio"])


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["text", "images", "tiers"])
def test_every_drawn_token_has_the_likelihood_of_transformers(
    qwen_core: Path,
    flare_tiny_checkpoint: TinyCheckpoints,
    likelihoods: Likelihoods,
    tmp_path: Path,
    kind: str,
    seed: int,
    complete: bool,
) -> None:
    with CoreReader(qwen_core) as reader:
        profile = read_contract(reader).frontend.images
    assert profile is not None
    frontend = prompts(flare_tiny_checkpoint(RECIPE))
    pictures = [frontend.from_messages([message(one)]).images[0].image for one in PICTURES]
    steps = 2000 if complete else 300
    service = Service(
        qwen_core,
        seed,
        profile,
        pictures if kind != "text" else (),
        tmp_path if kind == "tiers" else None,
    )
    service.run(steps)
    counts, compared, turned = service.counts, 0, 0
    for name, submit in service.submitted.items():
        drawn, found = service.drawn[name], service.logprobs[name]
        if submit.images and profile.placeholder in drawn:  # which the reference takes for an image
            drawn = drawn[: drawn.index(profile.placeholder)]
            found = found[: len(drawn)]
        if not drawn:
            continue
        text = [*submit.prompt, *drawn]
        difference, ties = likelihoods.difference(text, submit.images, found, BOUND)
        assert difference < BOUND, (name, difference)
        compared += len(drawn)
        turned += ties
    print(f"{len(service.submitted)} requests, {compared} tokens, {turned} choices turned, {dict(counts)}")
    assert compared > steps / 2
    assert turned <= 1 + compared / 10_000
    assert min(counts[name] for name in ("cached", "cancelled", "evicted")) > 0
    assert counts["preempted"] > 0 or kind != "text"
    assert counts["images"] > 20 or kind == "text"
    if kind == "tiers":
        assert min(counts[name] for name in ("restarts", "restored", "host", "disk", "dropped")) > 0
