"""What vision programs are uploaded, and what tells token rows which features and positions are theirs."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from flare.contract import PreparedContract, Program, ProgramKind, ValueBinding, ValueSource
from flare.engine.messages import Image, Submit
from flare.engine.token_rows import TokenRows
from flare.errors import CoreError
from flare.scheduler import Lane, Plan, Request

View = NDArray[Any]


class ImageContents:
    """Checks what a request brings for its images against what the core's vision programs take."""

    def __init__(self, contract: PreparedContract) -> None:
        self._patch_bytes = max(
            (
                binding.view.nbytes // program.tokens
                for program in contract.of_kind(ProgramKind.VISION)
                for binding in program.bindings
                if binding.source is ValueSource.PATCHES
            ),
            default=0,
        )

    def problem(self, submit: Submit) -> str | None:
        """What does not fit together, or None. That there are vision programs, others check."""
        for image in submit.images:
            time, rows, columns = image.grid
            count = time * rows * columns
            if self._patch_bytes and (count < 1 or len(image.patches) != count * self._patch_bytes):
                return f"an image of {count} patches has {len(image.patches)} bytes"
        if submit.rope_positions and len(submit.rope_positions) != 3 * 4 * len(submit.prompt):
            return f"rope positions have {len(submit.rope_positions)} bytes for {len(submit.prompt)} tokens"
        return None


def check_patches(binding: ValueBinding, program: Program, where: str) -> None:
    """Raise CoreError unless PATCHES are bound to rows of one patch each, as many as the program takes."""
    shape = binding.view.shape
    if program.kind is not ProgramKind.VISION or len(shape) != 2 or shape[0] != program.tokens:
        raise CoreError(f"{where} is bound to {list(shape)}, not to a patch a token row", field=where)


def patches(view: View, plan: Plan) -> None:
    """PATCHES as bytes u8[N * patch bytes]: those of the image, then zeros."""
    content = np.frombuffer(_image(plan).patches, dtype=np.uint8)
    view[: len(content)] = content
    view[len(content) :] = 0


def image_grid(view: View, plan: Plan) -> None:
    """IMAGE_GRID i32[3]."""
    view[:] = _image(plan).grid


def feature_offset(view: View, plan: Plan) -> None:
    """FEATURE_OFFSET i32[1]."""
    lane = plan.lanes[0]
    assert lane.image is not None
    view[0] = lane.request.features[lane.image]


def _image(plan: Plan) -> Image:
    lane = plan.lanes[0]
    assert lane.image is not None
    return _submit(lane.request).images[lane.image]


def _submit(request: Request) -> Submit:
    return cast(Submit, request.spec)


class FeatureIndices:
    """Packs FEATURE_INDICES i32[N] of one program: -1 for rows that are no image's."""

    def __init__(self, program: Program) -> None:
        self._rows = TokenRows(program)

    def __call__(self, view: View, plan: Plan) -> None:
        """Fill `view` for the tokens of `plan`."""
        view[:] = -1
        for lane, rows in self._rows.of(plan):
            for number, offset in lane.request.features.items():
                image = lane.request.spec.images[number]
                first = max(image.start, lane.consumed)
                end = min(image.start + image.tokens, lane.consumed + lane.length)
                if first < end:
                    start = rows.start + first - lane.consumed
                    features = offset + first - image.start
                    view[start : start + end - first] = np.arange(features, features + end - first)


class RopePositions:
    """Packs ROPE_POSITIONS i32[3, N] of one program."""

    def __init__(self, program: Program) -> None:
        self._rows = TokenRows(program)

    def __call__(self, view: View, plan: Plan) -> None:
        """Fill `view` for the tokens of `plan`."""
        view[:] = 0
        for lane, rows in self._rows.of(plan):
            view[:, rows] = _positions(lane)


def _positions(lane: Lane) -> View:
    """[3, length]: those of the prompt, and behind it one after the other, as text has them."""
    submit = _submit(lane.request)
    places = np.arange(lane.consumed, lane.consumed + lane.length, dtype=np.int32)
    if not submit.rope_positions:
        return np.broadcast_to(places, (3, lane.length))
    count = len(submit.prompt)
    prompt = np.frombuffer(submit.rope_positions, dtype=np.int32).reshape(3, count)
    behind = int(prompt.max()) + 1 - count
    known = prompt[:, lane.consumed : lane.consumed + lane.length]
    rest = np.broadcast_to(places[known.shape[1] :] + behind, (3, lane.length - known.shape[1]))
    return np.concatenate([known, rest], axis=1)
