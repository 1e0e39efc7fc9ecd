"""Tokenizer of the tiny checkpoint: the real one's marks and way with text, and a token for every byte."""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

_SPECIAL = (
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|begin_of_image|>",
    "<|end_of_image|>",
    "<|begin_of_video|>",
    "<|end_of_video|>",
    "<|image|>",
    "<|video|>",
)
_PLAIN = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
)
TOKENS = {token: index for index, token in enumerate((*_SPECIAL, *_PLAIN))}
"""Ids of the added tokens; bytes follow."""

# Contractions, words with what is in front of them, up to three digits, other signs, line ends, space.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MERGES = [
    ("e", "r"),
    ("i", "n"),
    ("Ġ", "t"),
    ("o", "n"),
    ("Ġ", "a"),
    ("Ġt", "h"),
    ("er", "e"),
    ("in", "g"),
    ("Ċ", "Ċ"),
    ("1", "2"),
    ("Ã", "¼"),
    ("Ø", "§"),
]
"""Of Latin and Arabic letters, so that a text has other tokens when it is cut otherwise."""


def tokenizer() -> Tokenizer:
    """Added tokens first, then one for every byte, then some longer ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    symbols = (*TOKENS, *alphabet, *map("".join, _MERGES))
    made = Tokenizer(models.BPE(vocab={symbol: id for id, symbol in enumerate(symbols)}, merges=_MERGES))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIAL])
    made.add_tokens([AddedToken(text, special=False, normalized=False) for text in _PLAIN])
    return made
