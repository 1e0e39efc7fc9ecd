"""A core of the hybrid model: traced programs on the CPU device, every division of a text and every lane."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from canonical import canonical, schemes
from hybrid import Served

from flare.contract import DType, ValueSource
from flare.corefile import CoreReader, read_contract
from flare.device.cpu import CpuDevice
from flare.device.direct import DirectRunner
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


def logits_of(runner, request, tokens):
    """Feed known tokens, one a step; the logits after each."""
    pending = runner.device.storage("state/pending").view(torch.int32)
    logits = []
    for token in tokens:
        pending[request.slot] = token
        upload = runner.staging(runner.programs["decode.1"], runner.decode_values([request]))
        logits.append(runner.device.probe("decode.1", upload)["logits"][0])
    return logits


def test_a_snapshot_of_any_count_continues_with_the_same_bits(core, complete):
    """By the programs that serving copies state with; of the live state nothing is left."""
    reader = CoreReader(core)
    device = CpuDevice(read_contract(reader), reader)
    capacities = device.contract.capacities
    live, frozen = capacities.live_row(0), (capacities.rows - 1, capacities.pages - 1)
    text = torch.randint(0, 259, (60,), generator=torch.Generator().manual_seed(5)).tolist()
    runner, hold = DirectRunner(device), {ValueSource.MIN_TOKENS: [100]}
    rows = device.storage("rows").view(capacities.rows, -1)
    pages = device.storage("pages").view(capacities.pages, -1)
    for count in range(1, 51) if complete else (1, 2, 3, 4, 5, 15, 16, 17, 19, 20, 21, 32, 50):
        runner.reuse_pages()
        first = runner.start(0, text[:count], extra=hold)
        runner.prefill_all(first, text[:count])
        shared = count // 16
        runner.run("snapshot", transfer((live, first.pages[shared]), frozen))
        want = logits_of(runner, first, text[count : count + 6])
        kept = {0, *first.pages[:shared], frozen[1]}
        pages[[page for page in range(capacities.pages) if page not in kept]] = 0xFF
        rows[1 : frozen[0]] = 0xFF
        table = [*first.pages[:shared], *range(9, 9 + len(first.pages) - shared)]
        second = runner.start(2, text[:count], extra={**hold, ValueSource.PAGE_TABLE_ROW: table})
        restore = transfer(frozen, (capacities.live_row(2), table[shared]))
        slot = {ValueSource.LANE_SLOTS: [2], ValueSource.CONSUMED_COUNTS: [count]}
        runner.run("restore", restore | slot)
        got = logits_of(runner, second, text[count : count + 6])
        assert all(map(torch.equal, got, want)), count
    device.close()


def transfer(source, target):
    """Values that copy a row and a page."""
    return {
        ValueSource.SOURCE_ROW: [source[0]],
        ValueSource.DESTINATION_ROW: [target[0]],
        ValueSource.SOURCE_PAGE: [source[1]],
        ValueSource.DESTINATION_PAGE: [target[1]],
    }
