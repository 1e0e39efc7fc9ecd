"""The example recipe's formats: a GGUF file and the hub's directory give the same checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from smollm_samples import CONTROL, TOKENS, tiny_config, tiny_tensors, write_gguf
from tokenizers import Tokenizer
from transformers import LlamaConfig

from flare.errors import CheckpointError
from flare.recipes import LocalCheckpoint
from flare_recipe_smollm.checkpoint import open_checkpoint


@pytest.mark.parametrize("tied", [True, False])
def test_both_formats_give_the_same_tensors_and_configuration(tmp_path: Path, tied: bool) -> None:
    config = tiny_config(tied=tied)
    tensors = tiny_tensors(config)
    hub = tmp_path / "hub"
    hub.mkdir()
    save_file(tensors, hub / "model.safetensors")
    (hub / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": ["LlamaForCausalLM"]}))
    one = open_checkpoint(hub)
    other = open_checkpoint(write_gguf(tmp_path / "tiny.gguf", tensors))
    assert set(one.tensors) == set(other.tensors) == set(tensors)
    for name, expected in tensors.items():
        assert torch.equal(one.load(name), expected)
        assert torch.equal(other.load(name), expected)
        assert one.tensors[name].shape == other.tensors[name].shape
    assert one.config["architectures"] == other.config["architectures"]
    read = [
        LlamaConfig(**{key: value for key, value in c.config.items() if key != "dtype"}) for c in (one, other)
    ]
    differing = {
        key
        for key, value in read[0].to_dict().items()
        if key != "architectures" and read[1].to_dict()[key] != value
    }
    assert differing <= {"dtype"}  # the precision that the weights were published in is not in a GGUF file


def test_floats_are_the_decimals_that_were_meant(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "tiny.gguf", tiny_tensors(tiny_config())))
    assert checkpoint.config["rms_norm_eps"] == 1e-5
    assert checkpoint.config["rope_theta"] == 100000.0


def test_assets_and_revision(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_tensors(tiny_config()))
    checkpoint = open_checkpoint(LocalCheckpoint(path=path, revision="pinned", uri="u"))
    assert checkpoint.revision == "pinned"
    assert checkpoint.assets.chat_template == "{{ messages[0].content }}"
    assert checkpoint.assets.special_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }
    tokenizer = Tokenizer.from_str((checkpoint.assets.tokenizer or b"").decode())
    assert tokenizer.get_vocab_size() == len(TOKENS)
    assert tokenizer.encode("x the<|im_end|>").tokens == ["x", "Ġthe", "<|im_end|>"]
    assert tokenizer.encode("".join(CONTROL)).ids == [0, 1, 2]
    assert tokenizer.decode(tokenizer.encode("über the 12 3").ids) == "über the 12 3"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"general.architecture": "mamba"}, "architecture mamba"),
        ({"llama.block_count": None}, r"llama\.block_count"),
        ({"llama.rope.scaling.type": "yarn"}, r"llama\.rope\.scaling\.type"),
        ({"llama.expert_count": 4}, r"llama\.expert_count"),
        ({"tokenizer.ggml.eos_token_id": None}, r"tokenizer\.ggml\.eos_token_id"),
        ({"tokenizer.ggml.model": "bert"}, r"tokenizer\.ggml\.model is bert"),
        ({"tokenizer.ggml.pre": "default"}, r"tokenizer\.ggml\.pre is default"),
        ({"tokenizer.ggml.token_type": [6] * len(TOKENS)}, r"token types \[6\]"),
        ({"llama.attention.head_count": 5}, r"q_proj.*5 heads"),
        ({"llama.block_count": 3}, r"missing: .*blk\.2\.attn_k\.weight"),
        ({"llama.block_count": 1}, r"not mapped: .*blk\.1\.attn_k\.weight"),
    ],
)
def test_metadata_that_is_missing_or_means_another_model(tmp_path: Path, changes: dict, named: str) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_tensors(tiny_config()), changes=changes)
    with pytest.raises(CheckpointError, match=named):
        open_checkpoint(path)


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    extra = {"rope_freqs.weight": np.ones(3, dtype=np.float32)}
    path = write_gguf(tmp_path / "tiny.gguf", tiny_tensors(tiny_config()), extra=extra)
    with pytest.raises(CheckpointError, match=r"not mapped: rope_freqs\.weight"):
        open_checkpoint(path)
