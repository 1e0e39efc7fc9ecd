"""Configurations of compressed-tensors: groups of modules by name, pattern or class, each with its
arithmetic.

`config_groups` holds `{"targets", "weights", "input_activations"}`; `ignore` are names or patterns that stay
plain. Source: https://github.com/vllm-project/compressed-tensors, `quantization/quant_args.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flare.errors import CheckpointError
from flare.prepare.module_names import matches
from flare.prepare.number_formats import Declarations, Declared, NumberFormat

_CLASSES = ("Linear", "RoutedExperts", "FusedMoE")
"""Targets that mean modules by their class: linear layers and experts."""


class GroupDeclarations(Declarations):
    """Raises CheckpointError when a field has another form."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        groups = config.get("config_groups")
        if not isinstance(groups, Mapping) or not all(
            isinstance(group, Mapping) for group in groups.values()
        ):
            raise CheckpointError("compressed-tensors needs config_groups", field="config_groups")
        self._ignored = tuple(config.get("ignore") or ())
        self._named: list[tuple[str, Declared | None]] = []
        self._all: Declared | None = None
        for group in groups.values():
            for target in group.get("targets") or ():
                if target in _CLASSES:
                    self._all = _declared(group, listed=False)
                else:
                    # A pattern may reach modules that were never quantised, such as norms.
                    self._named.append((target, _declared(group, listed=not target.startswith("re:"))))

    def of(self, module: str) -> Declared | None:
        """The first group that names `module`, else the one of its class."""
        if any(matches(module, pattern) for pattern in self._ignored):
            return None
        return next((found for target, found in self._named if matches(module, target)), self._all)


def _declared(group: Mapping[str, Any], *, listed: bool) -> Declared | None:
    weights = group.get("weights")
    if weights is None:
        return None
    inputs = group.get("input_activations")
    kind = weights.get("type"), weights.get("num_bits"), weights.get("strategy")
    size = weights.get("group_size")
    number: NumberFormat | None = None
    block = None
    if kind == ("float", 4, "tensor_group") and size == 16:
        number = NumberFormat.NVFP4
    elif kind == ("float", 8, "group") and size == 32:
        number = NumberFormat.MXFP8
    elif kind == ("float", 8, "block"):
        number = NumberFormat.FP8_BLOCK
        rows, columns = weights.get("block_structure") or (128, 128)
        block = (rows, columns)
    if number is None:
        described = ", ".join(
            f"{name} {weights.get(name)}" for name in ("type", "num_bits", "strategy", "group_size")
        )
        return Declared(None, listed=listed, refusal=f"weights of {described} are not served")
    if inputs is not None and inputs.get("num_bits") != weights.get("num_bits"):
        refusal = f"{inputs.get('num_bits')}-bit inputs of {number.value} weights are not served"
        return Declared(None, listed=listed, refusal=refusal)
    return Declared(number, inputs is not None, block, listed=listed)
