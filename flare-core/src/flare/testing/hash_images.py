"""Images for the hash model: prompts that hold some, and what the oracle knows about their tokens."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence

from flare.device.sim_inputs import feature
from flare.device.sim_ops import mix
from flare.engine.messages import Image

PLACEHOLDER = 1
"""The token that stands for a feature."""


def image(name: str, start: int, rows: int, columns: int) -> Image:
    """The image called `name`, of `rows` by `columns` features: twice as many patches, of hashes."""
    grid = (1, rows, 2 * columns)
    count = 2 * rows * columns
    words = [
        int.from_bytes(hashlib.blake2b(f"{name}/{number}".encode(), digest_size=8).digest(), "little")
        for number in range(count)
    ]
    content = struct.pack(f"<{count}Q", *words)
    identity = hashlib.blake2b(content + bytes(grid), digest_size=16).digest()
    return Image(start=start, tokens=rows * columns, identity=identity, grid=grid, patches=content)


def positions(length: int, images: Sequence[Image]) -> list[tuple[int, int, int]]:
    """Of every prompt token: text counts on in all three axes; an image's rows and columns count from where
    it begins, and text goes on behind its longer side (multimodal rotary positions)."""
    found: list[tuple[int, int, int]] = []
    at = 0
    by_start = {one.start: one for one in images}
    while len(found) < length:
        one = by_start.get(len(found))
        if one is None:
            found.append((at, at, at))
            at += 1
            continue
        columns = one.grid[2] // 2
        found += [(at, at + place // columns, at + place % columns) for place in range(one.tokens)]
        at += max(one.grid[1], columns)
    return found


def packed(places: Sequence[tuple[int, int, int]]) -> bytes:
    """`Submit.rope_positions`."""
    return b"".join(struct.pack(f"<{len(places)}i", *axis) for axis in zip(*places, strict=True))


def extra(prompt_length: int, images: Sequence[Image]) -> Callable[[int], int]:
    """For the oracle: what the token at a place brings besides itself."""
    places = positions(prompt_length, images)
    behind = 1 + max(max(place) for place in places) - prompt_length
    features: dict[int, int] = {}
    for one in images:
        words = struct.unpack(f"<{2 * one.tokens}Q", one.patches)
        for index in range(one.tokens):
            features[one.start + index] = feature(words[2 * index], words[2 * index + 1])

    def of(place: int) -> int:
        axes = places[place] if place < prompt_length else (place + behind,) * 3
        time, row, column = axes
        return features.get(place, 0) + mix(3 * time + 5 * row + 7 * column)

    return of
