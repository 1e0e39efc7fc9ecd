"""Routed experts of a checkpoint, one by one or together: hubs store both."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)\.weight")


def split_experts(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Experts stored together taken apart, everything else as it is."""
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        prefix, _, last = name.rpartition(".")
        if not prefix.endswith("experts") or last not in ("gate_up_proj", "down_proj") or tensor.ndim != 3:
            result[name] = tensor
            continue
        for index, matrix in enumerate(tensor):
            if last == "down_proj":
                result[f"{prefix}.{index}.down_proj.weight"] = matrix
            else:
                gate, up = matrix.chunk(2)
                result |= {f"{prefix}.{index}.gate_proj.weight": gate, f"{prefix}.{index}.up_proj.weight": up}
    return result


def stack_experts(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Experts stored one by one put together, as Transformers has them, everything else as it is."""
    result: dict[str, Tensor] = {}
    experts: dict[str, dict[tuple[int, str], Tensor]] = {}
    for name, tensor in tensors.items():
        if match := _EXPERT.fullmatch(name):
            experts.setdefault(match[1], {})[int(match[2]), match[3]] = tensor
        else:
            result[name] = tensor
    for name, own in experts.items():
        number = range(1 + max(index for index, _ in own))
        pairs = [torch.cat((own[index, "gate_proj"], own[index, "up_proj"])) for index in number]
        result[f"{name}.gate_up_proj"] = torch.stack(pairs)
        result[f"{name}.down_proj"] = torch.stack([own[index, "down_proj"] for index in number])
    return result
