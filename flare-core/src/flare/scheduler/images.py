"""Images of a prompt: which are encoded next, and where prefill may be cut.

The features of one request are in place at a time: those of the request that is being prefilled, one image
behind the other from row 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from flare.contract import PreparedContract, Program, ProgramKind
from flare.scheduler.refusal import Refusal
from flare.scheduler.request import ImageSpec, Request


class Images:
    """What a core's vision programs and state do with images."""

    def __init__(self, contract: PreparedContract) -> None:
        self._programs = contract.of_kind(ProgramKind.VISION)
        self._features = contract.capacities.image_features
        self._largest_chunk = contract.capacities.prefill_tokens[-1]
        self._atomic = any(scheme.atomic_spans for scheme in contract.schemes)

    def refusal(self, images: Sequence[ImageSpec], prompt_length: int) -> Refusal | None:
        """Why the core cannot serve a prompt with these images, or None."""
        if not images:
            return None
        if not self._programs:
            return _beyond("this model takes no images")
        end = 0
        for image in images:
            if image.start < end or image.tokens < 1 or image.start + image.tokens > prompt_length:
                return Refusal("invalid_request", "image placeholders overlap or lie outside the prompt")
            end = image.start + image.tokens
            if patches(image) > self._programs[-1].tokens:
                most = self._programs[-1].tokens
                return _beyond(f"an image has {patches(image)} patches; this core takes {most}")
            if self._atomic and image.tokens > self._largest_chunk:
                return _beyond(f"an image has {image.tokens} tokens; this core takes {self._largest_chunk}")
        features = sum(image.tokens for image in images)
        if features > self._features:
            return _beyond(f"the images have {features} tokens together; this core takes {self._features}")
        return None

    def next(self, request: Request) -> tuple[int, Program] | None:
        """The first image behind what was consumed that is not encoded, with the program that does it."""
        for number, image in enumerate(request.spec.images):
            if image.start + image.tokens > request.consumed and number not in request.features:
                program = next(p for p in self._programs if p.tokens >= patches(image))
                return number, program
        return None

    def place(self, request: Request, number: int) -> None:
        """Image `number` goes behind the request's features so far."""
        images = request.spec.images
        request.features[number] = sum(images[other].tokens for other in request.features)

    def cut(self, request: Request, end: int) -> tuple[int, bool]:
        """Where a chunk that could end at `end` ends, and whether it must be that long: behind the last token
        that can be separated from the next one."""
        if self._atomic:
            for image in request.spec.images:
                if image.start < end < image.start + image.tokens:
                    whole = image.start <= request.consumed
                    return (image.start + image.tokens, True) if whole else (image.start, False)
        return end, False


def _beyond(message: str) -> Refusal:
    return Refusal("capacity_exceeded", message)


def patches(image: ImageSpec) -> int:
    """Patches of an image."""
    time, rows, columns = image.grid
    return time * rows * columns
