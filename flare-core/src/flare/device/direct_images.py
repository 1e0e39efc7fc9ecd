"""Images of a prompt that runs directly: what its token rows bring besides their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]


class EncodableImage(Protocol):
    """An image at its placeholders: `tokens` of them from token `start`; `patches` F32 of a `grid`."""

    @property
    def start(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def grid(self) -> tuple[int, int, int]: ...

    @property
    def patches(self) -> bytes: ...


@dataclass(frozen=True)
class SeenImages:
    """Of a prompt of T tokens: feature rows i32[T], -1 for text, and positions i32[3, T]. Behind the prompt
    text counts on in all axes."""

    features: Rows
    positions: Rows

    @staticmethod
    def of(images: Sequence[EncodableImage], rope_positions: bytes) -> SeenImages:
        """Features of `images` lie behind each other, from row 0."""
        positions = np.frombuffer(rope_positions, np.int32).reshape(3, -1)
        features = np.full(positions.shape[1], -1, np.int32)
        first = 0
        for image in images:
            features[image.start : image.start + image.tokens] = np.arange(first, first + image.tokens)
            first += image.tokens
        return SeenImages(features, positions)

    def rows(self, begin: int, length: int) -> tuple[Rows, Rows]:
        """feature rows i32[length] and positions i32[3, length] of tokens from `begin`."""
        known = self.positions.shape[1]
        behind = int(self.positions.max(initial=-1)) + 1 - known
        text = np.arange(max(begin, known), max(begin + length, known), dtype=np.int32) + np.int32(behind)
        positions = np.concatenate(
            [self.positions[:, begin : begin + length], np.broadcast_to(text, (3, len(text)))], axis=1
        )
        features = np.full(length, -1, np.int32)
        part = self.features[begin : begin + length]
        features[: len(part)] = part
        return features, positions


TEXT = SeenImages(np.zeros(0, np.int32), np.zeros((3, 0), np.int32))
"""Of a prompt without images."""
