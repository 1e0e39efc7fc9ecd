"""A core of the hybrid model: traced programs on the CPU device, every division of a text and every lane."""

import copy
import dataclasses
from pathlib import Path

import pytest
from canonical import canonical, schemes
from hybrid import Served

from flare.contract import DType
from flare.prepare import CapacityRequest, TensorMap
from flare.recipes import BuiltModel
from flare.testing import check_chunks, round_trip
from flare_recipe_smollm.recipe import RECIPE

CAPACITIES = CapacityRequest(
    context=128, concurrency=3, prefill_chunk_size=32, page_tokens=16, snapshot_rows=1
)


class Loader:
    """Opens a tiny checkpoint for its tokenizer alone: every tensor of the model is a constant."""

    open = staticmethod(RECIPE.loader.open)
    config = staticmethod(RECIPE.loader.config)

    def tensor_map(self, config):
        return TensorMap({}, dict.fromkeys(self.names(config), "the model has its own"))

    def names(self, config):
        mapping = RECIPE.loader.tensor_map(config)
        return {name for rule in mapping.rules.values() for name in rule.sources} | set(mapping.ignored)


class Replacements:
    def build(self, config, dtype):
        filled = Served(canonical(config.vocab_size))
        constants = dict(filled.named_parameters()) | dict(filled.named_buffers())
        return BuiltModel(module=copy.deepcopy(filled).to("meta"), context=4096, constants=constants)


class Schemes:
    def schemes(self, config, dtype):
        return schemes(canonical(config.vocab_size).config)


class Oracle:
    tiny_checkpoint = RECIPE.oracle.tiny_checkpoint
    prompt = staticmethod(RECIPE.oracle.prompt)

    def reference(self, checkpoint, dtype):
        return canonical(RECIPE.loader.config(checkpoint).vocab_size)


HYBRID = dataclasses.replace(
    RECIPE, loader=Loader(), replacements=Replacements(), cache_schemes=Schemes(), oracle=Oracle()
)


@pytest.fixture(scope="module")
def core(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hybrid") / "core.safetensors"
    return round_trip(HYBRID, tiny_checkpoint, path, dtype=DType.F32, capacities=CAPACITIES)


def test_every_division_and_lane_gives_the_canonical_logits(core, tiny_checkpoint):
    assert 0 < check_chunks(core, HYBRID, tiny_checkpoint, bound=1e-4) < 1e-4
