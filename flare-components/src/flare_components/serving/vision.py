"""Vision programs: one image to features, where prefill finds them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flare.contract import ValueSource
from flare_components.serving.module import ProgramModule
from flare_components.serving.storage import Storage

S = ValueSource
flare = torch.ops.flare


class VisionProgram(ProgramModule):
    """Encodes an image of at most `patches` patches into the feature buffer, from row FEATURE_OFFSET."""

    probes = ("features",)
    SOURCES = (S.PATCHES, S.IMAGE_GRID, S.FEATURE_OFFSET)

    def __init__(self, storage: Storage, model: nn.Module, patches: int) -> None:
        super().__init__(storage.shape(1, patches).bind(self.SOURCES))
        assert storage.encoder is not None
        assert storage.features is not None
        self.merge = storage.encoder.merge
        self.model = model
        self.place("features", storage.features)

    def forward(self) -> tuple[Tensor]:
        u = self.upload
        grid = u[S.IMAGE_GRID]
        features = self.model.image_encoder(u[S.PATCHES], grid)
        time, rows, columns = grid.split(1)
        count = time * rows * columns // self.merge**2
        numbers = torch.arange(features.shape[0], dtype=torch.int32)
        places = torch.where(numbers < count, numbers + u[S.FEATURE_OFFSET], -1).to(torch.int32)
        flare.scatter_rows(self.features, places, features)
        return (features,)
