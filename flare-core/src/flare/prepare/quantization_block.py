"""Configurations with `quant_method` "fp8": every linear layer in FP8 with square blocks, but for named ones.

Fields: `weight_block_size`, `activation_scheme`, `modules_to_not_convert` (or `ignored_layers`), `fmt`.
Source: Transformers, `FineGrainedFP8Config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flare.errors import CheckpointError
from flare.prepare.module_names import ends_with
from flare.prepare.number_formats import Declarations, Declared, NumberFormat


class BlockDeclarations(Declarations):
    """Raises CheckpointError for scales per tensor, static input scales, or another element type."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        block = config.get("weight_block_size")
        if not isinstance(block, list) or len(block) != 2 or not all(isinstance(size, int) for size in block):
            raise CheckpointError(
                f"FP8 weights with one scale per tensor are not served; weight_block_size is {block}",
                field="weight_block_size",
            )
        scheme = config.get("activation_scheme", "dynamic")
        if scheme != "dynamic":
            raise CheckpointError(f"activation scheme {scheme!r} is not served", field="activation_scheme")
        if config.get("fmt", "e4m3") != "e4m3":
            raise CheckpointError(f"FP8 of {config['fmt']} is not served", field="fmt")
        self._ignored = tuple(config.get("modules_to_not_convert") or config.get("ignored_layers") or ())
        self._all = Declared(NumberFormat.FP8_BLOCK, True, (block[0], block[1]), listed=False)

    def of(self, module: str) -> Declared | None:
        """FP8 unless `module` or something above it is excepted."""
        return None if ends_with(module, self._ignored) else self._all
