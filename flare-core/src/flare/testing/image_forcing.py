"""Teacher forcing of a text with images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from flare.device.direct import DirectRequest
from flare.device.direct_images import EncodableImage
from flare.testing.teacher_forcing import Forced


class ForcedImages(Forced):
    """`ids` with images among them, against a Transformers model for conditional generation. Placeholders are
    already repeated; `images` and `rope_positions` are what the frontend makes of a prompt."""

    def __init__(
        self,
        path: Path,
        reference: nn.Module,
        ids: Sequence[int],
        images: Sequence[EncodableImage],
        rope_positions: bytes,
    ) -> None:
        self.images, self.rope_positions = tuple(images), rope_positions
        super().__init__(path, reference, ids)

    def start(self, slot: int) -> DirectRequest:
        """A request that no drawn token can end, with its images encoded."""
        request = super().start(slot)
        self.runner.encode(request, self.images, self.rope_positions)
        return request

    def canonical_logits(self, reference: nn.Module) -> Tensor:
        """The logits [T, V] of the whole text."""
        logits: Tensor = reference(**canonical_inputs(self.ids, self.images), use_cache=False).logits[0]
        return logits


def canonical_inputs(ids: Sequence[int], images: Sequence[EncodableImage]) -> dict[str, Tensor]:
    """The arguments of a Transformers model for conditional generation for one text."""
    inputs = {"input_ids": torch.tensor([ids])}
    if not images:
        return inputs
    kinds = torch.zeros(1, len(ids), dtype=torch.int32)
    for image in images:
        kinds[0, image.start : image.start + image.tokens] = 1
    patches = [
        np.frombuffer(image.patches, np.float32).reshape(int(np.prod(image.grid)), -1) for image in images
    ]
    return inputs | {
        "pixel_values": torch.from_numpy(np.concatenate(patches)),
        "image_grid_thw": torch.tensor([image.grid for image in images]),
        "mm_token_type_ids": kinds,
    }
