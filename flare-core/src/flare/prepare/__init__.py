"""Preparation: checkpoint reading, memory plan, tracing, tuning and export of a core.

The names here are the preparation side of the recipe API. They load lazily, so that importing the package
stays cheap for the parts of Flare that never trace anything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flare.errors import CapacityError, CheckpointError
    from flare.prepare.checkpoint import Checkpoint, TensorInfo
    from flare.prepare.definition import ProgramDefinition, ProgramSet
    from flare.prepare.layout import BufferLayout, Window
    from flare.prepare.plan import CapacityRequest, ServingPlan
    from flare.prepare.tensor_map import TensorMap
    from flare.prepare.trace import TraceError, meta_tensor
    from flare.prepare.weights import serving_dtype

_HOME = {
    "BufferLayout": "flare.prepare.layout",
    "CapacityError": "flare.errors",
    "CapacityRequest": "flare.prepare.plan",
    "Checkpoint": "flare.prepare.checkpoint",
    "CheckpointError": "flare.errors",
    "ProgramDefinition": "flare.prepare.definition",
    "ProgramSet": "flare.prepare.definition",
    "ServingPlan": "flare.prepare.plan",
    "TensorInfo": "flare.prepare.checkpoint",
    "TensorMap": "flare.prepare.tensor_map",
    "TraceError": "flare.prepare.trace",
    "Window": "flare.prepare.layout",
    "meta_tensor": "flare.prepare.trace",
    "serving_dtype": "flare.prepare.weights",
}

__all__ = [
    "BufferLayout",
    "CapacityError",
    "CapacityRequest",
    "Checkpoint",
    "CheckpointError",
    "ProgramDefinition",
    "ProgramSet",
    "ServingPlan",
    "TensorInfo",
    "TensorMap",
    "TraceError",
    "Window",
    "meta_tensor",
    "serving_dtype",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
