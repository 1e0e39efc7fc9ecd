"""The other way: a checkpoint in number formats decoded, for references that know none of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from flare.prepare import Checkpoint, NumberFormat, SafetensorsCheckpoint, WeightFormat, read_weight_formats
from flare_components.quant import csf, fp8_block, mxfp8, nvfp4
from flare_components.testing.quantized_checkpoint import WEIGHTS


def write_plain_checkpoint(source: Path, target: Path) -> Path:
    """Write what the codes of checkpoint `source` stand for to `target`, in FP32 and without a
    `quantization_config`; experts stay one by one."""
    checkpoint = SafetensorsCheckpoint(source)
    formats = read_weight_formats(checkpoint)
    tensors: dict[str, Tensor] = {}
    rest = set(checkpoint.tensors)
    modules = {name.rsplit(".", 1)[0] for name in rest if name.endswith((".weight", ".weight_packed"))}
    for module in sorted(modules):
        found = formats.of(module)
        if found is not None:
            names = found.names
            parts = (
                names.codes,
                names.scales,
                names.fixed,
                names.exceptions,
                names.global_scale,
                names.input_scale,
            )
            rest -= {f"{module}.{part}" for part in parts}
            tensors[f"{module}.weight"] = _decode(checkpoint, module, found)
    tensors |= {name: checkpoint.load(name).clone() for name in sorted(rest)}
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(tensors, target / WEIGHTS, metadata={"format": "pt"})
    config = {key: value for key, value in checkpoint.config.items() if key != "quantization_config"}
    (target / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return target


def _decode(checkpoint: Checkpoint, module: str, found: WeightFormat) -> Tensor:
    def load(name: str) -> Tensor:
        return checkpoint.load(f"{module}.{name}")

    names = found.names
    codes = load(names.codes)
    if found.compressed:
        streams = csf.CsfScales(load(names.fixed).clone(), load(names.exceptions).clone())
        scales = csf.decode(streams).view(torch.float8_e4m3fn)
    else:
        scales = load(names.scales)
    if found.number is NumberFormat.NVFP4:
        scale = load(names.global_scale)
        return nvfp4.decode(nvfp4.Nvfp4(codes, scales, 1 / scale if names.reciprocal else scale))
    if found.number is NumberFormat.MXFP8:
        return mxfp8.decode(mxfp8.Mxfp8(codes, scales.view(torch.float8_e8m0fnu)))
    return fp8_block.decode(fp8_block.Fp8Block(codes, scales, found.block))
