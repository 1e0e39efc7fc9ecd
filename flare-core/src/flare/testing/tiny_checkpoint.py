"""Most of a recipe's oracle: writing a small random checkpoint, and loading Transformers' model from one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn

from flare.contract import DType
from flare.prepare import Checkpoint, serving_dtype
from flare.testing.tiny_text import CHAT_TEMPLATE, END, START, TEXT_END

M = TypeVar("M", bound=nn.Module)

_SPECIAL = (TEXT_END, START, END)
TINY_VOCABULARY = 256 + len(_SPECIAL)
"""Tokens of a tiny checkpoint: three special ones, then one per byte."""


def write_tiny_checkpoint(model: nn.Module, directory: Path, *, seed: int = 0) -> Path:
    """Write the small Transformers model `model` in the hub's layout; returns `directory`.

    Its weights are drawn anew from `seed`, wide enough that a mistake anywhere shows in the logits. Tied
    tensors are stored once. The tokenizer has `TINY_VOCABULARY` tokens, one per byte after `<|endoftext|>`,
    `<|im_start|>` and `<|im_end|>`; the first and the last of these end a text.
    """
    directory.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())  # every tied tensor under its first name
    tensors = {name: _random(name, tensor, generator) for name, tensor in parameters.items()}
    tied = dict(model.named_parameters(remove_duplicate=False)).keys()
    tensors |= {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config: dict[str, Any] = {
        **model.config.to_dict(),
        "architectures": [type(model).__name__],
        "dtype": "float32",
    }
    _write_json(directory / "config.json", config)
    _write_json(directory / "generation_config.json", {"eos_token_id": [2, 0]})
    _write_json(directory / "tokenizer_config.json", {"bos_token": START, "eos_token": END})
    (directory / "tokenizer.json").write_text(_byte_tokenizer().to_str(), encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return directory


def load_reference(model: M, checkpoint: Checkpoint, dtype: DType) -> M:
    """Load `checkpoint`, whose tensor names are Transformers', into `model`; returns it in evaluation mode.

    Parameters take the serving precision; buffers stay as they are, as `from_pretrained` leaves them (rotary
    frequencies in float32). Raises AssertionError naming tensors that one side lacks.
    """
    for parameter in model.parameters():
        parameter.data = parameter.data.to(serving_dtype(dtype))
    tied = dict(model.named_parameters(remove_duplicate=False)).keys() - dict(model.named_parameters()).keys()
    state = {name: checkpoint.load(name) for name in checkpoint.tensors}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if lacking := sorted(set(missing) - tied):
        raise AssertionError(f"reference: the checkpoint lacks {', '.join(lacking)}")
    if unexpected:
        raise AssertionError(f"reference: the model has no place for {', '.join(unexpected)}")
    model.eval()
    return model


def _random(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    # As initialised, norms are all ones and attention is nearly uniform: mistakes there would not show.
    if tensor.ndim == 1 and name.endswith("weight"):
        return torch.rand(tensor.shape, generator=generator) + 0.5
    return torch.randn(tensor.shape, generator=generator) * 0.12


def _byte_tokenizer() -> Tokenizer:
    symbols = (*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()))
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL])
    return tokenizer


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, default=str), encoding="utf-8")
