"""In which number format a checkpoint stores each module's weight: configuration and headers together.

A recipe reads it once, builds every module for the format its weight is stored in, and maps tensors by
`packed_rules`. What the configuration says and what the headers show must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flare.errors import CheckpointError
from flare.prepare.checkpoint import Checkpoint, TensorInfo
from flare.prepare.number_formats import Declarations, Declared, NumberFormat, StoredNames, WeightFormat
from flare.prepare.quantization_block import BlockDeclarations
from flare.prepare.quantization_groups import GroupDeclarations
from flare.prepare.quantization_layers import LayerDeclarations


class WeightFormats:
    """The formats of a checkpoint's weights, by module name as the checkpoint has it."""

    def __init__(self, declarations: Declarations | None, tensors: Mapping[str, TensorInfo]) -> None:
        self._declarations = declarations
        self._tensors = tensors

    def of(self, module: str) -> WeightFormat | None:
        """The format of the weight of `module` ("model.layers.0.self_attn.q_proj"); None for a plain one.

        Raises CheckpointError when the format is not served, or headers contradict the configuration.
        """
        declared = None if self._declarations is None else self._declarations.of(module)
        stored = self._stored(module)
        if declared is None or (stored is None and not declared.listed):
            if stored is not None:
                raise _contradiction(module, "names no number format for it", f"{stored.codes} has scales")
            return None
        if declared.number is None:
            raise CheckpointError(f"{module}: {declared.refusal}", field="quantization_config")
        if stored is None:
            raise _contradiction(module, f"says {declared.number.value}", "no scales are stored")
        return self._agreed(module, declared, stored)

    def shared(self, modules: Sequence[str]) -> WeightFormat | None:
        """The format of all `modules`, whose weights are to be stacked.

        Raises CheckpointError when they have different ones.
        """
        formats = {module: self.of(module) for module in modules}
        first = formats[modules[0]]
        for module, other in formats.items():
            if other != first:
                raise CheckpointError(
                    f"{modules[0]} and {module} are stored in different number formats and cannot be stacked",
                    field=module,
                )
        return first

    def exceptions(self, modules: Sequence[str]) -> int:
        """How many exceptions the compressed scales of `modules` have together."""
        formats = [(module, self.of(module)) for module in modules]
        return sum(
            self._tensors[f"{module}.{found.names.exceptions}"].shape[0]
            for module, found in formats
            if found is not None and found.compressed
        )

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a tensor `name`."""
        return name in self._tensors

    def _stored(self, module: str) -> StoredNames | None:
        """The names under which codes and scales of `module` are stored; None for a plain weight."""
        for names in _NAMES:
            codes = self._tensors.get(f"{module}.{names.codes}")
            scales = any(f"{module}.{part}" in self._tensors for part in (names.scales, names.fixed))
            if scales and codes is not None and codes.dtype not in _PLAIN:
                return names
        return None

    def _agreed(self, module: str, declared: Declared, names: StoredNames) -> WeightFormat:
        number = declared.number
        assert number is not None
        said = f"says {number.value}"
        codes = self._tensors[f"{module}.{names.codes}"]
        if codes.dtype not in _CODES[number]:
            raise _contradiction(module, said, f"{names.codes} is stored as {codes.dtype}")
        compressed = f"{module}.{names.fixed}" in self._tensors
        if compressed != declared.compressed:
            raise _contradiction(
                module,
                f"{said} with{'' if declared.compressed else 'out'} compressed scales",
                "others are stored",
            )
        needed = [names.exceptions] if compressed else []
        if number is NumberFormat.NVFP4:
            needed += [names.global_scale, *([names.input_scale] if declared.quantized_input else [])]
        for part in needed:
            if f"{module}.{part}" not in self._tensors:
                raise _contradiction(module, said, f"{module}.{part} is missing")
        if not compressed and self._tensors[f"{module}.{names.scales}"].dtype not in _SCALES[number]:
            dtype = self._tensors[f"{module}.{names.scales}"].dtype
            raise _contradiction(module, said, f"{names.scales} is stored as {dtype}")
        block = declared.block or _BLOCKS[number]
        return WeightFormat(number, block, declared.quantized_input, compressed, names)


# ModelOpt, compressed-tensors, and the two names that scales of FP8 blocks have.
_NAMES = (
    StoredNames("weight", "weight_scale", "weight_scale_2", "input_scale"),
    StoredNames(
        "weight_packed", "weight_scale", "weight_global_scale", "input_global_scale", reciprocal=True
    ),
    StoredNames("weight", "weight_scale_inv"),
    StoredNames("weight", "scale"),
)
_PLAIN = ("BF16", "F16", "F32", "F64")  # a plain weight may stand beside a scale of another kind
_CODES = {
    NumberFormat.NVFP4: ("U8",),
    NumberFormat.MXFP8: ("F8_E4M3",),
    NumberFormat.FP8_BLOCK: ("F8_E4M3",),
}
_SCALES = {
    NumberFormat.NVFP4: ("F8_E4M3",),
    NumberFormat.MXFP8: ("U8", "F8_E8M0"),
    NumberFormat.FP8_BLOCK: ("F32", "BF16", "F8_E8M0"),
}
_BLOCKS = {NumberFormat.NVFP4: (1, 16), NumberFormat.MXFP8: (1, 32), NumberFormat.FP8_BLOCK: (128, 128)}


_PRODUCERS: dict[Any, Callable[[Mapping[str, Any]], Declarations]] = {
    "fp8": BlockDeclarations,
    "modelopt": LayerDeclarations,
    "compressed-tensors": GroupDeclarations,
}


def read_weight_formats(checkpoint: Checkpoint) -> WeightFormats:
    """The formats of `checkpoint`, from `quantization_config` of its configuration or of the text model's.

    Raises CheckpointError for a producer or a setting that is not read.
    """
    config = checkpoint.config
    text = config.get("text_config")
    found = config.get("quantization_config") or (text or {}).get("quantization_config")
    return WeightFormats(None if found is None else _parse(found), checkpoint.tensors)


def _parse(config: Mapping[str, Any]) -> Declarations:
    method = config.get("quant_method")
    if method not in _PRODUCERS:
        raise CheckpointError(
            f"quantization method {method!r} is not read; {', '.join(_PRODUCERS)} are", field="quant_method"
        )
    cache = config.get("kv_cache_scheme") or config.get("kv_cache_quant_algo")
    if cache:
        raise CheckpointError(
            f"the checkpoint asks for a quantized key-value cache ({cache}), which is not served; "
            "remove kv_cache_scheme or kv_cache_quant_algo from its configuration to keep BF16",
            field="kv_cache_scheme",
        )
    return _PRODUCERS[method](config)


def _contradiction(module: str, said: str, seen: str) -> CheckpointError:
    return CheckpointError(f"{module}: quantization_config {said}, but {seen}", field=module)
