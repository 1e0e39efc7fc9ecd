"""Weights: placed in the layout by name, streamed from the checkpoint into the core file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from flare.contract import BufferView, DType, Initial, Region
from flare.corefile import Role, TensorSpec
from flare.device.torch_types import CONTRACT_DTYPES, TORCH_DTYPES
from flare.errors import CheckpointError
from flare.prepare.layout import BufferLayout

if TYPE_CHECKING:
    from flare.prepare.checkpoint import Checkpoint
    from flare.prepare.definition import ProgramSet
    from flare.prepare.tensor_map import TensorMap
    from flare.recipes.recipe import BuiltModel


def model_tensors(built: BuiltModel) -> dict[str, torch.Tensor]:
    """Every parameter and buffer of the model by its first name (tied weights appear once)."""
    named = dict(built.module.named_parameters())
    named |= dict(built.module.named_buffers())
    return named


def place_weights(built: BuiltModel, layout: BufferLayout) -> dict[str, BufferView]:
    """Place a constant buffer for every model tensor; tied names share one view."""
    views: dict[str, BufferView] = {}
    for name, tensor in model_tensors(built).items():
        views[name] = layout.add(
            f"weights/{name}",
            Region.WEIGHTS,
            CONTRACT_DTYPES[tensor.dtype],
            tuple(tensor.shape),
            initial=Initial.BYTES,
            tensor=name,
            role="weight",
        )
    owners = {id(tensor): name for name, tensor in model_tensors(built).items()}
    every = [*built.module.named_parameters(remove_duplicate=False)]
    every += built.module.named_buffers(remove_duplicate=False)
    for name, tensor in every:
        views.setdefault(name, views[owners[id(tensor)]])
    return views


def check_targets(built: BuiltModel, mapping: TensorMap) -> None:
    """Compare the recipe's map with the model: every tensor mapped or computed, nothing else mapped.

    Raises CheckpointError naming the difference.
    """
    needed = set(model_tensors(built)) - set(built.constants)
    if unmapped := sorted(needed - set(mapping.rules)):
        raise CheckpointError(f"the recipe maps nothing to {', '.join(unmapped)}", field=unmapped[0])
    if foreign := sorted(set(mapping.rules) - needed):
        raise CheckpointError(
            f"the recipe maps to tensors the model lacks: {', '.join(foreign)}", field=foreign[0]
        )


def stream_weights(
    built: BuiltModel, mapping: TensorMap, checkpoint: Checkpoint
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield `(name, contiguous tensor)` one at a time, converted to the model's type.

    Raises CheckpointError when a produced tensor does not have the declared shape, or holds codes whose
    values only their scales tell.
    """
    for name, meta in model_tensors(built).items():
        if name in built.constants:
            tensor = built.constants[name]
        else:
            tensor = mapping.assemble(name, checkpoint)
        if tensor.shape != meta.shape:
            raise CheckpointError(
                f"{name}: checkpoint gives shape {tuple(tensor.shape)}, the model has {tuple(meta.shape)}",
                field=name,
            )
        if tensor.dtype != meta.dtype and tensor.dtype in _CODES:
            raise CheckpointError(
                f"{name}: the checkpoint gives {tensor.dtype}, the model has {meta.dtype}; codes of a number "
                "format are not converted, so the recipe must build this module for the stored format",
                field=name,
            )
        yield name, tensor.to(meta.dtype).contiguous()


_CODES = (torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2)


def table_specs(programs: ProgramSet, mapping: TensorMap, checkpoint: Checkpoint) -> list[TensorSpec]:
    """Core tensors of the tables. Raises CheckpointError unless the mapped tables are those of the
    programs."""
    declared = {table.tensor: (table.rows, table.row_bytes) for table in programs.tables}
    mapped = {name: rule.shape(checkpoint) for name, rule in mapping.tables.items()}
    if declared != mapped:
        raise CheckpointError(
            f"the programs read tables {declared} (rows, bytes of a row), the checkpoint gives {mapped}",
            field="tables",
        )
    return [TensorSpec(name, DType.U8, shape, Role.TABLE) for name, shape in mapped.items()]


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor, zero copy."""
    if not tensor.numel():
        return memoryview(b"")
    # A single element may be contiguous with any stride; a view of its bytes wants 1.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return memoryview(flat.view(torch.uint8).numpy())


def weight_bytes(built: BuiltModel) -> int:
    """Bytes of all weights in their serving types."""
    return sum(tensor.numel() * tensor.element_size() for tensor in model_tensors(built).values())


def serving_dtype(dtype: DType) -> torch.dtype:
    """The torch type of a serving precision. Raises CheckpointError for one that is not served."""
    if dtype not in (DType.BF16, DType.F32):
        raise CheckpointError(
            f"precision {dtype.value} is not served; use bfloat16 or float32", field="dtype"
        )
    return TORCH_DTYPES[dtype]
