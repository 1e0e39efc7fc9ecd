"""Configurations of ModelOpt: an algorithm for every listed layer, or one for all.

`quantized_layers` maps module names to `{"quant_algo", "group_size", "weight_scale_encoding"}` where the main
`quant_algo` is MIXED_PRECISION; `ignore` (or `exclude_modules`) are patterns of modules that stay plain.
Source: https://github.com/NVIDIA/Model-Optimizer, `modelopt/torch/export`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flare.errors import CheckpointError
from flare.prepare.module_names import lineage, matches
from flare.prepare.number_formats import Declarations, Declared, NumberFormat

_ALGORITHMS = {
    "NVFP4": (NumberFormat.NVFP4, True),
    "W4A16_NVFP4": (NumberFormat.NVFP4, False),
    "MXFP8": (NumberFormat.MXFP8, True),
    "FP8_BLOCK_SCALES": (NumberFormat.FP8_BLOCK, True),
    "FP8_PB_WO": (NumberFormat.FP8_BLOCK, False),
}
_GROUPS = {NumberFormat.NVFP4: 16, NumberFormat.MXFP8: 32, NumberFormat.FP8_BLOCK: 128}
_PLAIN = (None, "NONE", "UNQUANTIZED")


class LayerDeclarations(Declarations):
    """Raises CheckpointError when a field has another form."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._ignored = tuple(config.get("ignore") or config.get("exclude_modules") or ())
        algorithm = config.get("quant_algo")
        self._all: Declared | None = None
        self._layers: dict[str, Declared | None] = {}
        if algorithm == "MIXED_PRECISION":
            layers = config.get("quantized_layers")
            if not isinstance(layers, Mapping) or not all(
                isinstance(one, Mapping) for one in layers.values()
            ):
                raise CheckpointError("MIXED_PRECISION needs quantized_layers", field="quantized_layers")
            self._layers = {name: _declared(layer, listed=True) for name, layer in layers.items()}
        else:
            self._all = _declared(config, listed=False)

    def of(self, module: str) -> Declared | None:
        """The nearest listed layer at or above `module`, else what all have."""
        if any(matches(module, pattern) for pattern in self._ignored):
            return None
        for name in lineage(module):
            if name in self._layers:
                return self._layers[name]
        return self._all


def _declared(layer: Mapping[str, Any], *, listed: bool) -> Declared | None:
    algorithm = layer.get("quant_algo")
    if algorithm in _PLAIN:
        return None
    if algorithm not in _ALGORITHMS:
        known = ", ".join(_ALGORITHMS)
        return Declared(None, listed=listed, refusal=f"algorithm {algorithm} is not served; {known} are")
    number, quantized_input = _ALGORITHMS[algorithm]
    size = layer.get("group_size", _GROUPS[number])
    block = None
    if number is NumberFormat.FP8_BLOCK:
        block = (size, size)
    elif size != _GROUPS[number]:
        return Declared(None, listed=listed, refusal=f"{algorithm} in groups of {size} is not served")
    encoding = layer.get("weight_scale_encoding")
    if encoding not in (None, "csf") or (encoding == "csf" and number is not NumberFormat.NVFP4):
        return Declared(
            None, listed=listed, refusal=f"scales of {algorithm} encoded as {encoding} are not served"
        )
    return Declared(number, quantized_input, block, compressed=encoding == "csf", listed=listed)
