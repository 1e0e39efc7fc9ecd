"""The checkers that run a model fail on planted faults of the kind they look for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from flare.contract import DType
from flare.prepare import CapacityRequest, Checkpoint, TensorMap, TensorRule
from flare.recipes import BuiltModel, FrontendFiles, Recipe
from flare.testing import check_chunks, check_prompts, round_trip
from flare_components.serving import Batch, ModelState
from flare_recipe_smollm.recipe import RECIPE

SMALL = CapacityRequest(context=160, concurrency=1, prefill_chunk_size=64, page_tokens=16, snapshot_rows=0)


def test_a_right_core_passes(tiny_core: Path, tiny_checkpoint: Path) -> None:
    assert 0 < check_chunks(tiny_core, RECIPE, tiny_checkpoint) < 2e-5


class Shifted:
    """The example's model with other positions in programs of more (`prefill`) or fewer than 8 rows."""

    def __init__(self, shift: Callable[[Tensor], Tensor], *, prefill: bool) -> None:
        self.shift, self.prefill = shift, prefill

    def build(self, config: Any, dtype: DType) -> BuiltModel:
        built = RECIPE.replacements.build(config, dtype)
        right = built.module.hidden

        def hidden(batch: Batch, state: ModelState) -> Tensor:
            if (len(batch.ids) > 8) is self.prefill:
                batch = dataclasses.replace(batch, positions=self.shift(batch.positions))
            return right(batch, state)

        built.module.hidden = hidden  # type: ignore[assignment]
        return built


def test_a_wrong_chunk_is_named(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Positions that count from the beginning of the chunk are right as long as a text is one chunk."""
    shifted = Shifted(lambda positions: positions - positions[:1], prefill=True)
    recipe = dataclasses.replace(RECIPE, replacements=shifted)
    core = round_trip(recipe, tiny_checkpoint, tmp_path / "core.safetensors", capacities=SMALL)
    with pytest.raises(
        AssertionError, match=r"prefill cut at 1: logits differ from the reference .* token 1;"
    ):
        check_chunks(core, recipe, tiny_checkpoint, ids=range(3, 60))
    with pytest.raises(AssertionError, match=r"prefill in one piece: .* first behind token 64;"):
        check_chunks(core, recipe, tiny_checkpoint)


def test_a_wrong_decode_step_is_named(tiny_checkpoint: Path, tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, replacements=Shifted(lambda positions: positions - 1, prefill=False))
    core = tmp_path / "core.safetensors"
    with pytest.raises(AssertionError, match=r"generation: token [1-9]\d* is \d+; the reference prefers \d+"):
        round_trip(recipe, tiny_checkpoint, core, capacities=SMALL)
    with pytest.raises(AssertionError, match=r"chunk equality: decode\.1, all lanes: logits of the last 6"):
        check_chunks(core, recipe, tiny_checkpoint)


class SwappedLoader(type(RECIPE.loader)):  # type: ignore[misc]
    """Stacks gate and up in the wrong order: every shape is right."""

    def tensor_map(self, config: Any) -> TensorMap:
        mapping = super().tensor_map(config)
        rules = {
            name: TensorRule(rule.sources[::-1], rule.transform) if "gate_up" in name else rule
            for name, rule in mapping.rules.items()
        }
        return TensorMap(rules, mapping.ignored)


def test_wrong_weights_generate_other_tokens(tiny_checkpoint: Path, tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, loader=SwappedLoader())
    with pytest.raises(AssertionError, match=r"generation: token \d+ is \d+; the reference prefers"):
        round_trip(recipe, tiny_checkpoint, tmp_path / "core.safetensors", capacities=SMALL)


class OtherTemplate:
    """Changes the template on the way into the core."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def assets(self, checkpoint: Checkpoint, config: Any, sampling: Any) -> FrontendFiles:
        files = RECIPE.frontend.assets(checkpoint, config, sampling)
        name = files.frontend.template_asset or ""
        template = files.assets[name].decode()
        assert self.old in template
        changed = {**files.assets, name: template.replace(self.old, self.new).encode()}
        return dataclasses.replace(files, assets=changed)


def with_template(old: str, new: str) -> Recipe:
    return dataclasses.replace(RECIPE, frontend=OtherTemplate(old, new))


def test_a_wrong_template_is_named(tiny_checkpoint: Path) -> None:
    recipe = with_template("<|im_end|>\n", "<|im_end|>")
    with pytest.raises(AssertionError, match=r"prompt bytes: conversation 0: from byte 57 .*b'<\|im_start"):
        check_prompts(recipe, tiny_checkpoint)


def test_a_template_that_refuses_is_named(tiny_checkpoint: Path) -> None:
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{% for"
    recipe = with_template("{% for", refusal)
    with pytest.raises(AssertionError, match=r"prompt bytes: conversation 1 is refused: .*no"):
        check_prompts(recipe, tiny_checkpoint)
