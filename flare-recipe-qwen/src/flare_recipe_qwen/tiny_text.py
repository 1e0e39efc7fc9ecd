"""Tokenizer of the tiny checkpoint: the real one's marks and way with text, and a token for every byte."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from transformers import Qwen3_5Tokenizer

_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
TOKENS = {token: index for index, token in enumerate((*_SPECIAL, *_PLAIN))}
"""Ids of the added tokens; bytes follow."""


_LONGER = (
    "e r",
    "i n",
    "Ġ t",
    "o n",
    "Ġ a",
    "s t",
    "e n",
    "Ġt h",
    "er e",
    "in g",
    "Ċ Ċ",
    "Ã ¼",
    "Ø §",
    "Ù Ħ",
)
_MERGES = [tuple(pair.split()) for pair in _LONGER]
"""Of Latin and Arabic letters, so that a text has other tokens when it is cut or normalised otherwise."""


def tokenizer() -> Tokenizer:
    """Added tokens first, then one for every byte, then some longer ones. Text is normalised and cut into
    words as by the canonical tokenizer."""
    symbols = (*TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, _MERGES))
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    made: Tokenizer = Qwen3_5Tokenizer(vocab=vocabulary, merges=_MERGES).backend_tokenizer
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIAL])
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in _PLAIN])
    return made
