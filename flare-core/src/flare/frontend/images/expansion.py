"""Placeholders: one token of the template becomes as many as the image has features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flare.contract import ImageProfile
from flare.errors import RequestError
from flare.frontend.images.patches import PreparedImage


@dataclass(frozen=True, slots=True)
class PlacedImage:
    """An image whose features stand at tokens from `start` of a prompt."""

    start: int
    image: PreparedImage


@dataclass(frozen=True, slots=True)
class Expanded:
    """A prompt with the images in place. `rope_positions` i32[3, len(tokens)] as bytes: text counts on in all
    three axes; rows and columns of an image's features count from where it begins; the text behind it goes on
    from there by its longer side (multimodal rotary positions)."""

    tokens: tuple[int, ...]
    endpoints: tuple[int, ...]
    images: tuple[PlacedImage, ...]
    rope_positions: bytes


def expand(
    tokens: Sequence[int], endpoints: Sequence[int], images: Sequence[PreparedImage], profile: ImageProfile
) -> Expanded:
    """Put `images` where `tokens` has placeholders, in order; `endpoints` move along.

    Raises RequestError when there are more or fewer placeholders than images: the text of a message contains
    the placeholder, or the template does not write it.
    """
    places = [place for place, token in enumerate(tokens) if token == profile.placeholder]
    if len(places) != len(images):
        raise RequestError(
            f"the prompt has {len(places)} image placeholders for {len(images)} images; text must not "
            "contain the placeholder",
            field="messages",
        )
    out: list[int] = []
    placed: list[PlacedImage] = []
    lengths = [0]  # of the expanded prompt, by tokens before
    waiting = iter(images)
    for token in tokens:
        if token == profile.placeholder:
            image = next(waiting)
            placed.append(PlacedImage(len(out), image))
            out += [token] * image.features
        else:
            out.append(token)
        lengths.append(len(out))
    return Expanded(
        tokens=tuple(out),
        endpoints=tuple(lengths[end] for end in endpoints),
        images=tuple(placed),
        rope_positions=_positions(len(out), placed, profile.merge).tobytes(),
    )


def _positions(
    length: int, images: Sequence[PlacedImage], merge: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """i32[3, length]"""
    positions = np.empty((3, length), dtype=np.int32)
    done = at = 0
    for placed in images:
        image = placed.image
        text = placed.start - done
        positions[:, done : placed.start] = np.arange(at, at + text)
        at += text
        rows, columns = image.grid[1] // merge, image.grid[2] // merge
        done = placed.start + image.features
        positions[0, placed.start : done] = at
        positions[1, placed.start : done] = at + np.repeat(np.arange(rows), columns)
        positions[2, placed.start : done] = at + np.tile(np.arange(columns), rows)
        at += max(rows, columns)
    positions[:, done:] = np.arange(at, at + length - done)
    return positions
