"""Random service of tiny models: whatever was shared, restored, evicted, brought back, cancelled or put
back, every drawn token has the log-probability that Transformers gives it behind the same text and images.

2,000 steps of each kind with `--complete`; FLARE_SERVICES is how many seeds there are of each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest
from image_prompts import frontend_of, message
from likelihoods import Likelihoods
from tiny_service import Service

from flare.contract import DType
from flare.corefile import CoreReader, read_contract
from flare.frontend.images import PreparedImage
from flare.recipes import Recipe
from flare.testing.pictures import picture
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_glm.recipe import RECIPE as GLM
from flare_recipe_glm.tiny import TEXT as GLM_TEXT
from flare_recipe_glm.tiny_text import TOKENS as GLM_TOKENS
from flare_recipe_qwen.recipe import RECIPE as QWEN
from flare_recipe_qwen.tiny import TEXT as QWEN_TEXT

BOUND = 1e-4  # nats
SEEDS = int(os.environ.get("FLARE_SERVICES", "1"))
# Two of the same size: only their contents differ.
PICTURES = [picture(64, 64, 1), picture(64, 64, 2), picture(100, 90, 3), picture(40, 200, 4)]


# Images and frames of videos share a placeholder there, and these marks tell the reference which is which.
VIDEO = tuple(GLM_TOKENS[mark] for mark in ("<|begin_of_video|>", "<|end_of_video|>", "<|video|>"))
MODELS: dict[str, tuple[Recipe, int, tuple[int, ...]]] = {
    "qwen": (QWEN, QWEN_TEXT["indexer_compress_ratio"], ()),
    "glm": (GLM, GLM_TEXT["index_kpool"], VIDEO),
}
"""Recipe, tokens of a group, marks that texts are kept free of."""


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, flare_tiny_checkpoint: TinyCheckpoints) -> Model:
    recipe, group, marks = MODELS[request.param]
    checkpoint = flare_tiny_checkpoint(recipe)
    reference = recipe.oracle.reference(recipe.loader.open(checkpoint), DType.F32)
    frontend = frontend_of(recipe, checkpoint)
    return Model(
        core=request.getfixturevalue(f"{request.param}_core"),
        marks=marks,
        likelihoods=Likelihoods(reference, group),
        pictures=[frontend.from_messages([message(one)]).images[0].image for one in PICTURES],
    )


@dataclass(frozen=True)
class Model:
    """A core, what its reference finds likely, and images as its frontend prepares them."""

    core: Path
    marks: tuple[int, ...]
    likelihoods: Likelihoods
    pictures: list[PreparedImage]


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["text", "images", "tiers"])
def test_every_drawn_token_has_the_likelihood_of_transformers(
    model: Model, tmp_path: Path, kind: str, seed: int, complete: bool
) -> None:
    with CoreReader(model.core) as reader:
        profile = read_contract(reader).frontend.images
    assert profile is not None
    marks = {profile.placeholder, *model.marks}
    steps = 2000 if complete else 300
    service = Service(
        model.core,
        seed,
        profile,
        marks,
        model.pictures if kind != "text" else (),
        tmp_path if kind == "tiers" else None,
    )
    service.run(steps)
    counts, compared, turned = service.counts, 0, 0
    for name, submit in service.submitted.items():
        drawn, found = service.drawn[name], service.logprobs[name]
        if submit.images:  # to which the reference would count what is drawn
            drawn = list(takewhile(lambda token: token not in marks, drawn))
            found = found[: len(drawn)]
        if not drawn:
            continue
        text = [*submit.prompt, *drawn]
        difference, ties = model.likelihoods.difference(text, submit.images, found, BOUND)
        assert difference < BOUND, (name, difference)
        compared += len(drawn)
        turned += ties
    print(f"{len(service.submitted)} requests, {compared} tokens, {turned} choices turned, {dict(counts)}")
    assert compared > steps / 4  # what images leave room for
    assert turned <= 1 + compared / 10_000
    assert min(counts[name] for name in ("cached", "cancelled", "evicted")) > 0
    assert counts["preempted"] > 0 or kind != "text"
    assert counts["images"] > 20 or kind == "text"
    if kind == "tiers":
        assert min(counts[name] for name in ("restarts", "restored", "host", "disk", "dropped")) > 0
