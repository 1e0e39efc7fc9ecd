"""The same pseudo-random steps for the process that captured a core and for those that replay it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from small_contract import TOKENS

INPUTS = 1000


def steps() -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Program and token ids, `INPUTS` times; `start` once at first."""
    random = np.random.default_rng(20260)
    yield "start", np.empty(0, np.int32)
    for _ in range(INPUTS):
        name = ("prefill", "decode")[int(random.integers(2))]
        yield name, random.integers(0, 512, TOKENS[name], np.int32)
