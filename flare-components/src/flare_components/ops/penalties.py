"""Repetition, presence and frequency penalties from per-slot token counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int32]


def apply_penalties(
    row: NDArray[np.float32],
    prompt_counts: Counts,
    output_counts: Counts,
    repetition: float,
    presence: float,
    frequency: float,
) -> None:
    """Penalise `row` f32[V] in place; neutral at 1, 0 and 0.

    Repetition (Keskar et al., "CTRL", 2019, section 4.1): a token of prompt or output has a positive logit
    divided and a negative one multiplied by `repetition`. Presence and frequency count the output only:
    logit - count * frequency - (count > 0) * presence, as the OpenAI API defines them.
    """
    if repetition != 1.0:
        seen = np.flatnonzero((prompt_counts | output_counts) != 0)
        values, factor = row[seen], np.float32(repetition)
        row[seen] = np.where(values > 0, values / factor, values * factor)
    if presence != 0.0 or frequency != 0.0:
        drawn = np.flatnonzero(output_counts != 0)
        counts = output_counts[drawn].astype(np.float32)
        row[drawn] = row[drawn] - counts * np.float32(frequency) - np.float32(presence)
