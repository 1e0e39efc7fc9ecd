"""Preparation: checkpoint reading, memory plan, tracing, tuning and export of a core.

The names here are the preparation side of the recipe API. They load lazily, so that importing the package
stays cheap for the parts of Flare that never trace anything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flare.errors import CapacityError, CheckpointError
    from flare.prepare.checkpoint import Assets, Checkpoint, TensorInfo
    from flare.prepare.checkpoint_gguf import GgufFile
    from flare.prepare.checkpoint_mapped import MappedCheckpoint
    from flare.prepare.checkpoint_safetensors import SafetensorsCheckpoint
    from flare.prepare.config_fields import check_present, check_served
    from flare.prepare.definition import ProgramDefinition, ProgramSet
    from flare.prepare.image_config import ImageConfig, read_image_config
    from flare.prepare.layout import BufferLayout, Window
    from flare.prepare.number_formats import NumberFormat, WeightFormat
    from flare.prepare.packed_rules import expert_modules, expert_rules, linear_rules, shard_rules
    from flare.prepare.plan import CapacityRequest, ServingPlan
    from flare.prepare.progress import Progress
    from flare.prepare.sources import resolve_checkpoint
    from flare.prepare.table_delivery import TableDelivery
    from flare.prepare.table_rules import TableRule
    from flare.prepare.tensor_map import TensorMap, TensorRule
    from flare.prepare.tensor_transforms import ConcatRows, FlattenRows, HeadRows, PairsToHalves
    from flare.prepare.trace import TraceError, meta_tensor
    from flare.prepare.weight_formats import WeightFormats, read_weight_formats
    from flare.prepare.weights import serving_dtype

_HOME = {
    "Assets": "flare.prepare.checkpoint",
    "BufferLayout": "flare.prepare.layout",
    "CapacityError": "flare.errors",
    "CapacityRequest": "flare.prepare.plan",
    "Checkpoint": "flare.prepare.checkpoint",
    "CheckpointError": "flare.errors",
    "ConcatRows": "flare.prepare.tensor_transforms",
    "FlattenRows": "flare.prepare.tensor_transforms",
    "GgufFile": "flare.prepare.checkpoint_gguf",
    "HeadRows": "flare.prepare.tensor_transforms",
    "ImageConfig": "flare.prepare.image_config",
    "MappedCheckpoint": "flare.prepare.checkpoint_mapped",
    "NumberFormat": "flare.prepare.number_formats",
    "PairsToHalves": "flare.prepare.tensor_transforms",
    "ProgramDefinition": "flare.prepare.definition",
    "ProgramSet": "flare.prepare.definition",
    "Progress": "flare.prepare.progress",
    "SafetensorsCheckpoint": "flare.prepare.checkpoint_safetensors",
    "ServingPlan": "flare.prepare.plan",
    "TableDelivery": "flare.prepare.table_delivery",
    "TableRule": "flare.prepare.table_rules",
    "TensorInfo": "flare.prepare.checkpoint",
    "TensorMap": "flare.prepare.tensor_map",
    "TensorRule": "flare.prepare.tensor_map",
    "TraceError": "flare.prepare.trace",
    "WeightFormat": "flare.prepare.number_formats",
    "WeightFormats": "flare.prepare.weight_formats",
    "Window": "flare.prepare.layout",
    "check_present": "flare.prepare.config_fields",
    "check_served": "flare.prepare.config_fields",
    "expert_modules": "flare.prepare.packed_rules",
    "expert_rules": "flare.prepare.packed_rules",
    "linear_rules": "flare.prepare.packed_rules",
    "meta_tensor": "flare.prepare.trace",
    "read_image_config": "flare.prepare.image_config",
    "read_weight_formats": "flare.prepare.weight_formats",
    "resolve_checkpoint": "flare.prepare.sources",
    "serving_dtype": "flare.prepare.weights",
    "shard_rules": "flare.prepare.packed_rules",
}

__all__ = [
    "Assets",
    "BufferLayout",
    "CapacityError",
    "CapacityRequest",
    "Checkpoint",
    "CheckpointError",
    "ConcatRows",
    "FlattenRows",
    "GgufFile",
    "HeadRows",
    "ImageConfig",
    "MappedCheckpoint",
    "NumberFormat",
    "PairsToHalves",
    "ProgramDefinition",
    "ProgramSet",
    "Progress",
    "SafetensorsCheckpoint",
    "ServingPlan",
    "TableDelivery",
    "TableRule",
    "TensorInfo",
    "TensorMap",
    "TensorRule",
    "TraceError",
    "WeightFormat",
    "WeightFormats",
    "Window",
    "check_present",
    "check_served",
    "expert_modules",
    "expert_rules",
    "linear_rules",
    "meta_tensor",
    "read_image_config",
    "read_weight_formats",
    "resolve_checkpoint",
    "serving_dtype",
    "shard_rules",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
