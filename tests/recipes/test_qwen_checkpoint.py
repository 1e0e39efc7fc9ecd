"""What the Qwen loader reads and what it refuses: fields, names, shards, tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from changed_checkpoints import changed_config, changed_tensors
from transformers import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextNGramEmbedding

from flare.contract import DType
from flare.prepare import CheckpointError, TensorInfo
from flare.prepare.published import read_published
from flare.prepare.weights import check_targets
from flare.testing.plugin import TinyCheckpoints
from flare_recipe_qwen.config import REQUIRED, REQUIRED_ROPE, ModelConfig, read_config
from flare_recipe_qwen.descriptor import DESCRIPTOR
from flare_recipe_qwen.recipe import RECIPE
from flare_recipe_qwen.tables import ngram_tables

LANGUAGE = "model.language_model"
TABLE = f"{LANGUAGE}.layers.1.ple.ple_embedding"


@pytest.fixture
def tiny(flare_tiny_checkpoint: TinyCheckpoints) -> Path:
    return flare_tiny_checkpoint(RECIPE)


def read(path: Path) -> ModelConfig:
    return RECIPE.loader.config(RECIPE.loader.open(path))


@pytest.mark.parametrize("name", [*REQUIRED, *REQUIRED_ROPE])
def test_a_missing_field_is_an_error_that_names_it(tiny: Path, tmp_path: Path, name: str) -> None:
    def remove(config: dict[str, Any]) -> None:
        fields = config["text_config"]
        del (fields["rope_parameters"] if name in REQUIRED_ROPE else fields)[name]

    with pytest.raises(CheckpointError, match=f"config.json lacks {name}") as caught:
        read(changed_config(tiny, tmp_path / "c", remove))
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not served; silu is"),
        ({"norm_topk_prob": False}, "norm_topk_prob False is not served"),
        ({"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype 'bfloat16'"),
        ({"indexer_kv_heads": 2}, "indexer_kv_heads=1"),
        ({"indexer_budget": 18}, "divisible by indexer_compress_ratio"),
        ({"model_type": "qwen3_5_text"}, "text model 'qwen3_5_text' is not read"),
        ({"split_ngram_parts": 5}, "5 shards by split_ngram_parts; shard_4 is missing"),
        ({"split_ngram_parts": 3}, "shard_3 is one too many"),
        ({"seed": 4}, "layer_multipliers is not what follows from config.json"),
        ({"ngram_vocab_size_base": 98}, "ngram_heads_vocab_sizes is not what follows"),
    ],
)
def test_what_is_not_served_is_refused(
    tiny: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    changed = changed_config(tiny, tmp_path / "c", lambda config: config["text_config"].update(change))
    with pytest.raises(CheckpointError, match=message):
        read(changed)


def test_another_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    changed = changed_config(tiny, tmp_path / "c", lambda config: config.update(model_type="llama"))
    with pytest.raises(CheckpointError, match="model_type 'llama' is none of qwen4_exp, qwen3_8_flash_next"):
        read(changed)


def test_a_re_export_has_other_names_and_is_the_same_model(tiny: Path, tmp_path: Path) -> None:
    def rename(config: dict[str, Any]) -> None:
        config["model_type"] = "qwen3_8_flash_next"
        config["architectures"] = ["Qwen3_8FlashNextForConditionalGeneration"]
        config["text_config"]["model_type"] = "qwen3_8_flash_next_text"
        config["vision_config"]["model_type"] = "qwen3_5_vision"

    renamed = read(changed_config(tiny, tmp_path / "c", rename))
    assert renamed.text.to_dict() == read(tiny).text.to_dict()


def test_a_text_model_alone_is_read(tiny: Path, tmp_path: Path) -> None:
    def alone(config: dict[str, Any]) -> None:
        fields = config.pop("text_config")
        config.clear()
        config |= {**fields, "architectures": ["Qwen4ExpForCausalLM"]}

    def names(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensor = tensors.pop(name)
            if not name.startswith(("model.visual.", "mtp.")):
                tensors[name.replace(LANGUAGE, "model")] = tensor

    path = changed_config(changed_tensors(tiny, tmp_path / "t", names), tmp_path / "c", alone)
    RECIPE.loader.tensor_map(read(path)).check(RECIPE.loader.open(path))


def test_the_interval_of_full_attention_says_as_much_as_the_types(tiny: Path, tmp_path: Path) -> None:
    def interval(config: dict[str, Any]) -> None:
        del config["text_config"]["layer_types"]
        config["text_config"]["full_attention_interval"] = 4

    changed = read(changed_config(tiny, tmp_path / "c", interval))
    assert (
        changed.text.layer_types
        == read(tiny).text.layer_types
        == ["linear_attention"] * 3 + ["indexed_attention"]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update({f"{LANGUAGE}.norm.weight": torch.zeros(64)}), f"not mapped: {LANGUAGE}.norm"),
        (lambda t: t.pop(f"{LANGUAGE}.layers.3.self_attn.k_norm.weight"), "missing: .*k_norm.weight"),
        (lambda t: t.pop("lm_head.weight"), "missing: lm_head.weight"),
    ],
)
def test_every_tensor_is_mapped_or_named(tiny: Path, tmp_path: Path, change: Any, message: str) -> None:
    path = changed_tensors(tiny, tmp_path / "c", change)
    with pytest.raises(CheckpointError, match=message):
        RECIPE.loader.tensor_map(read(path)).check(RECIPE.loader.open(path))


def test_what_is_left_out_is_named_with_its_reason(tiny: Path) -> None:
    ignored = RECIPE.loader.tensor_map(read(tiny)).ignored
    assert ignored["mtp.fc_hidden.weight"] == "multi-token prediction is not prepared"
    beginnings = {name.split(".")[1] for name in ignored if not name.startswith("mtp.")}
    assert beginnings == {"language_model"}  # constants of the hash


def test_a_table_in_one_piece_is_the_same_table(tiny: Path, tmp_path: Path) -> None:
    def join(tensors: dict[str, torch.Tensor]) -> None:
        shards = [tensors.pop(f"{TABLE}.ngram_embedding.shard_{index}.weight") for index in range(4)]
        tensors[f"{TABLE}.ngram_embedding.weight"] = torch.cat(shards)

    whole = changed_tensors(tiny, tmp_path / "c", join)
    pieces = {}
    for path in (tiny, whole):
        (table,) = ngram_tables(read(path))
        pieces[path] = b"".join(table.rule.pieces(RECIPE.loader.open(path)))
    assert pieces[tiny] == pieces[whole]


def test_experts_one_by_one_are_mapped(tiny: Path, tmp_path: Path) -> None:
    from flare_components.testing import split_experts

    def split(tensors: dict[str, torch.Tensor]) -> None:
        parts = split_experts(tensors)
        tensors.clear()
        tensors |= parts

    path = changed_tensors(tiny, tmp_path / "c", split)
    checkpoint, config = RECIPE.loader.open(path), read(path)
    mapping = RECIPE.loader.tensor_map(config)
    mapping.check(checkpoint)
    check_targets(RECIPE.replacements.build(config, DType.F32), mapping)
    together = RECIPE.loader.tensor_map(read(tiny))
    for name in ("gate_up", "down"):
        target = f"model.layers.2.mlp.experts.{name}"
        stored = together.assemble(target, RECIPE.loader.open(tiny))
        assert torch.equal(mapping.assemble(target, checkpoint), stored)


def test_the_table_of_the_published_model() -> None:
    """Its shards stored as NVFP4."""
    published = read_published(DESCRIPTOR.models[0])
    names = [f"{TABLE}.ngram_embedding.shard_{index}.weight" for index in range(128)]
    published.tensors = {name: TensorInfo(name, (2_500_012, 80), "U8") for name in names}
    (table,) = ngram_tables(read_config(published))
    assert (table.resource.rows, table.resource.row_bytes) == (320_001_536, 90)
    assert table.packed
    # Transformers' own, without its embedding.
    fields = published.config["text_config"]
    text = Qwen4ExpTextConfig(**{k: v for k, v in fields.items() if k != "model_type"})
    with torch.device("meta"):
        theirs = Qwen4ExpTextNGramEmbedding(text, 2560, 1, 0)
    order, heads, boundary, *numbers = table.resource.parameters
    assert (order, heads, boundary) == (3, 8, 248044)
    assert numbers[3:] == [*theirs.head_vocab_sizes, *theirs.head_offsets]
