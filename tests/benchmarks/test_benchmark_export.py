"""The exported directory is the same model: Transformers reads weights, tokenizer and template from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from export_hf import export
from transformers import AutoModelForCausalLM, AutoTokenizer

from flare.contract import DType
from flare.prepare import CheckpointError
from flare_recipe_smollm.recipe import RECIPE


def test_transformers_reads_the_same_model(tiny_checkpoint: Path, tmp_path: Path) -> None:
    checkpoint = RECIPE.loader.open(tiny_checkpoint)
    export(checkpoint, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    assert model.dtype == torch.bfloat16
    reference = RECIPE.oracle.reference(checkpoint, DType.F32)
    # Parameters only: a model cast as a whole would round its rotary frequencies too.
    for parameter in reference.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, reference(ids).logits)

    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    messages = [{"role": "user", "content": "hi"}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer("hello")["input_ids"]) == "hello"


def test_nothing_is_written_without_a_template(tiny_checkpoint: Path, tmp_path: Path) -> None:
    checkpoint = RECIPE.loader.open(tiny_checkpoint)
    checkpoint.assets = replace(checkpoint.assets, chat_template=None)
    with pytest.raises(CheckpointError, match="no chat template"):
        export(checkpoint, tmp_path / "model")
    assert not (tmp_path / "model").exists()
