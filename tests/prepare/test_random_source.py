"""`random://`: any geometry, the same weights for the same words, and preparation to the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from prepared_cores import tiny_request
from tokenizers import Tokenizer

from flare.errors import CheckpointError
from flare.prepare import Checkpoint, SafetensorsCheckpoint, resolve_checkpoint
from flare.prepare.progress import Progress
from flare.prepare.random_tokenizer import byte_tokenizer
from flare.prepare.session import PreparationSession
from flare.recipes import LocalCheckpoint
from flare_recipe_smollm.recipe import RECIPE

SIZES = "layers=2&hidden=64&heads=4&kv_heads=2&ffn=96&vocab=300&context=512"
QUERY, NORM = "model.layers.1.self_attn.q_proj.weight", "model.norm.weight"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def resolved(uri: str) -> LocalCheckpoint:
    return resolve_checkpoint(uri, pin=None, progress=Progress())


def opened(query: str) -> Checkpoint:
    return RECIPE.loader.open(resolved(f"random://llama?{query}"))


def test_the_geometry_is_the_one_asked_for(cache: Path) -> None:
    checkpoint = opened(SIZES + "&tie_word_embeddings=false")
    assert checkpoint.tensors["model.layers.1.self_attn.k_proj.weight"].shape == (32, 64)
    assert checkpoint.tensors["lm_head.weight"].shape == (300, 64)
    assert "lm_head.weight" not in opened(SIZES + "&tie_word_embeddings=true").tensors
    assert checkpoint.config["max_position_embeddings"] == 512
    assert sum(file.stat().st_size for file in cache.rglob("*") if file.is_file()) < 200_000


def test_weights_follow_from_seed_and_name() -> None:
    one, again, other = (opened(f"{SIZES}&seed={seed}") for seed in (1, 1, 2))
    assert one.fingerprint() == again.fingerprint() != other.fingerprint()
    again.load(NORM)
    assert torch.equal(one.load(QUERY), again.load(QUERY))
    assert not torch.equal(one.load(QUERY), other.load(QUERY))
    assert not torch.equal(one.load(QUERY), one.load(QUERY.replace("layers.1", "layers.0")))
    assert one.load(QUERY).float().std().item() == pytest.approx(0.02, rel=0.1)
    assert torch.equal(one.load(NORM), torch.ones(64, dtype=torch.bfloat16))


def test_a_large_tensor_is_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flare.prepare.random_tensors._PIECE", 64 * 10)
    pieces = opened(SIZES).load(QUERY)
    assert pieces.shape == (64, 64)
    assert len(torch.unique(pieces, dim=0)) == 64  # no piece repeats another


def test_a_configuration_file(tmp_path: Path, tiny_checkpoint: Path) -> None:
    source = tiny_checkpoint / "config.json"
    checkpoint = SafetensorsCheckpoint(resolved(f"random://{source}?layers=3"))
    assert checkpoint.config["architectures"] == json.loads(source.read_text())["architectures"]
    assert checkpoint.config["num_hidden_layers"] == 3
    assert checkpoint.tensors["model.embed_tokens.weight"].shape == (259, 64)


def test_it_is_prepared_like_any_other(tmp_path: Path) -> None:
    session = PreparationSession(RECIPE, tiny_request(), Progress())
    contract = session.prepare(opened(SIZES), tmp_path / "core")
    assert contract.provenance.oracle is not None
    assert contract.frontend.vocab_size == 300


def test_every_id_of_the_tokenizer_means_bytes() -> None:
    tokenizer = Tokenizer.from_buffer(byte_tokenizer(70_000))
    assert tokenizer.get_vocab_size() == 70_000
    text = "<|im_start|>user\nnaïve 🦊<|im_end|>"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert max(ids) < 259
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode([69_999])


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("random://nothing?layers=1", "'nothing' is no model type of transformers; write random://TYPE"),
        (f"random://llama?{SIZES}&colour=3", "a configuration of llama has no field colour"),
        (f"random://llama?{SIZES}&seed=x", "seed is a whole number"),
        ("random://missing.json", "there is no file missing.json"),
        ("random://llama?layers=1&hidden=64&heads=0", "random://llama"),
        ("random://llama?layers=1&hidden=64&heads=4&vocab=20", "a vocabulary of 20: at least 259"),
    ],
)
def test_what_is_no_geometry_is_refused(uri: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message.replace("?", r"\?")):
        resolved(uri)


def test_random_weights_are_not_pinned() -> None:
    with pytest.raises(CheckpointError, match="no SHA-256 to pin"):
        resolve_checkpoint("random://llama", pin="0" * 64, progress=Progress())
