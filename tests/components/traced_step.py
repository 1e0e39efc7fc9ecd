"""A step of a module as a program: a function of its buffers alone, traced by `torch.export`."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from flare_components.serving import Batch, ModelState


class _Step(nn.Module):
    def __init__(self, module: nn.Module, x: Tensor, batch: Batch, state: ModelState) -> None:
        super().__init__()
        self.module, self.batch = module, batch
        self.register_buffer("x", x)
        self.fields = [
            f.name for f in dataclasses.fields(batch) if isinstance(getattr(batch, f.name), Tensor)
        ]
        for name in self.fields:
            self.register_buffer(name, getattr(batch, name))
        self.views = {"pages": state.pages, "rows": state.rows}
        for kind, schemes in self.views.items():
            for scheme, views in schemes.items():
                for layer, view in enumerate(views):
                    self.register_buffer(_name(kind, scheme, layer), view)

    def forward(self) -> Tensor:
        batch = dataclasses.replace(self.batch, **{name: getattr(self, name) for name in self.fields})
        state = {
            kind: {
                scheme: [getattr(self, _name(kind, scheme, layer)) for layer in range(len(views))]
                for scheme, views in schemes.items()
            }
            for kind, schemes in self.views.items()
        }
        out: Tensor = self.module(self.x, batch, ModelState(**state))
        return out


def _name(kind: str, scheme: str, layer: int) -> str:
    return f"{kind}_{scheme.replace('.', '_')}_{layer}"


def traced_step(module: nn.Module, x: Tensor, batch: Batch, state: ModelState) -> Any:
    """What `module(x, batch, state)` is when it is traced; called without arguments, it writes `state`."""
    return torch.export.export(_Step(module, x, batch, state), (), strict=False).module()
