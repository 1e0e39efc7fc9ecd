"""Logit biases: token ids that a client wants more or less of."""

from __future__ import annotations

import math
from collections.abc import Mapping

from flare.errors import RequestError

MOST_ENTRIES = 300
LARGEST_BIAS = 100.0


def resolve_logit_bias(bias: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    """`(token, bias)` pairs by ascending token, from JSON keys in decimal, at most 300, values -100 to 100
    (https://platform.openai.com/docs/api-reference/chat/create). Raises RequestError naming the entry."""
    if len(bias) > MOST_ENTRIES:
        raise RequestError(
            f"logit_bias has {len(bias)} entries, at most {MOST_ENTRIES} are taken", field="logit_bias"
        )
    pairs: dict[int, float] = {}
    for key, value in bias.items():
        where = f"logit_bias[{key!r}]"
        # len: int() of a very long digit string is an error of its own
        token = int(key) if key.isascii() and key.isdigit() and len(key) < 20 else -1
        if not 0 <= token < vocab_size:
            raise RequestError(f"{where} is not a token id below {vocab_size}", field="logit_bias")
        if token in pairs:
            raise RequestError(f"{where} names token {token} twice", field="logit_bias")
        if not math.isfinite(value) or abs(value) > LARGEST_BIAS:
            raise RequestError(
                f"{where} must be between -{LARGEST_BIAS:g} and {LARGEST_BIAS:g}, got {value}",
                field="logit_bias",
            )
        pairs[token] = float(value)
    return tuple(sorted(pairs.items()))
