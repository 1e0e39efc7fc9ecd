"""The tensors of a large checkpoint of the Qwen recipe's structure: names, types, shapes, kinds of contents.

Layers, projections and experts have the published model's shapes; there are four layers of the kinds it has,
and as many experts as the wanted size needs. Under two gibibytes widths are divided, so that experts stay the
most of it. The vocabulary and the vision tower are those of the tiny checkpoint.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from transformers import Qwen4ExpConfig, Qwen4ExpForConditionalGeneration

from flare_components.testing import quantization_config
from flare_components.testing.stored_modules import Choice
from flare_recipe_qwen.tiny import CONFIG, TEXT

EXPERTS, SHARDS = "*.mlp.experts.*", "*.ngram_embedding.shard_*"
_MXFP8 = dict.fromkeys(("*.linear_attn.in_proj_*", "*.linear_attn.out_proj", "*.self_attn.*_proj"), "MXFP8")
_BLOCKED = ("*.in_proj_qkv", "*.in_proj_z", "*.out_proj", "*.self_attn.?_proj", "*.shared_expert.*")
FORMATS: dict[str, dict[str, str]] = {
    "bf16-fused": {},
    "bf16": {},
    "fp8": dict.fromkeys((EXPERTS, *_BLOCKED), "FP8_BLOCK_SCALES"),
    "nvfp4": {EXPERTS: "NVFP4", **_MXFP8, SHARDS: "W4A16_NVFP4"},
    "nvfp4-csf": {EXPERTS: "NVFP4-CSF", **_MXFP8, SHARDS: "W4A16_NVFP4"},
}
"""Algorithms by patterns of modules; of BF16, experts are stored together or one by one."""

PARTS = 16
BLOCK = (128, 128)
EXCEPTIONS = 256
"""Block scales for one that compressed scales keep apart."""
GIB = 1 << 30


@dataclass(frozen=True)
class Entry:
    """One stored tensor. `content` says which bytes are valid for it (`large_contents`)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    content: str

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * {"BF16": 2, "F32": 4, "U32": 4}.get(self.dtype, 1)


def large_config(name: str, size: float, table: float) -> tuple[dict[str, Any], list[Entry]]:
    """`config.json` and the tensors of a checkpoint in format `name` with `size` bytes beside a table of
    `table` bytes. Raises ValueError where a size is too small for this structure."""
    row = 160 // 2 + 160 // 16 if SHARDS in FORMATS[name] else 2 * 160
    base = int(table / (16 * row))
    if base < 64:
        raise ValueError(f"a table of {table} bytes is too small; 1 MiB is not")
    sizes = [_weights(_entries(_config(size, number, base), name)) for number in (16, 32)]
    each = (sizes[1] - sizes[0]) / 16
    number = round(16 + (size - sizes[0]) / each)
    if number < 12:
        raise ValueError(f"{size} bytes are too few for {name}; {int(sizes[0])} are not")
    config = _config(size, number, base)
    entries = list(_entries(config, name))
    _describe(config, name, entries)
    return config, entries


def _weights(entries: Iterator[Entry]) -> int:
    return sum(entry.nbytes for entry in entries if ".ngram_embedding." not in entry.name)


def _config(size: float, experts: int, base: int) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    part = 1 if size >= 2 * GIB else 5 if size < GIB else 2
    config["text_config"] = TEXT | {
        "hidden_size": 2560 // part,
        "num_attention_heads": 24 // (1 if part == 1 else 6),
        "num_key_value_heads": 2,
        "head_dim": 256,
        "max_position_embeddings": 262144,
        "linear_num_key_heads": 16 // (1 if part == 1 else 4),
        "linear_num_value_heads": 48 // (1 if part == 1 else 4),
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "moe_intermediate_size": 640,
        "shared_expert_intermediate_size": 640,
        "num_experts": experts,
        "num_experts_per_tok": 10,
        "hc_lowrank": 320 // part,
        "ple_embed_dim": 2560,
        "heads_per_ngram": 8,
        "ngram_vocab_size_base": base,
        "make_ngram_vocab_size_divisible_by": 128,
        "split_ngram_parts": PARTS,
        "indexer_n_heads": 4,
        "indexer_head_dim": 128,
        "indexer_budget": 2048,
        "rope_parameters": TEXT["rope_parameters"]
        | {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]},
    }
    config["vision_config"]["out_hidden_size"] = 2560 // part
    return config | {"dtype": "bfloat16"}


def _entries(config: dict[str, Any], name: str) -> Iterator[Entry]:
    fields = {key: value for key, value in config.items() if key not in ("architectures", "dtype")}
    with torch.device("meta"):
        shapes = Qwen4ExpForConditionalGeneration(Qwen4ExpConfig(**fields)).state_dict()
    for stored, tensor in shapes.items():
        if tensor.dtype == torch.int64:
            continue  # constants of the hash, which follow from the configuration
        for one, shape in _parts(stored, tuple(tensor.shape), fused=name == "bf16-fused"):
            module = one.removesuffix(".weight")
            yield from _stored(one, module, shape, _algorithm(module, name) if module != one else None)


def _parts(name: str, shape: tuple[int, ...], *, fused: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A tensor of Transformers' model as checkpoints have it: shards of a table, and experts."""
    if name.endswith(".ngram_embedding.weight"):
        module = name.removesuffix(".weight")
        for part in range(PARTS):
            yield f"{module}.shard_{part}.weight", (shape[0] // PARTS, *shape[1:])
    elif ".experts." in name and not fused:
        experts, _, last = name.rpartition(".")
        rows = shape[1] // (2 if last == "gate_up_proj" else 1)
        for expert in range(shape[0]):
            for part in ("gate_proj", "up_proj") if last == "gate_up_proj" else ("down_proj",):
                yield f"{experts}.{expert}.{part}.weight", (rows, shape[2])
    else:
        yield name, shape


def _algorithm(module: str, name: str) -> str | None:
    return next((found for pattern, found in FORMATS[name].items() if fnmatchcase(module, pattern)), None)


def _stored(name: str, module: str, shape: tuple[int, ...], algorithm: str | None) -> Iterator[Entry]:
    if algorithm is None:
        yield Entry(name, "BF16", shape, "bf16")
        return
    rows, columns = shape
    if algorithm == "FP8_BLOCK_SCALES":
        yield Entry(name, "F8_E4M3", shape, "e4m3")
        grid = -(-rows // BLOCK[0]), -(-columns // BLOCK[1])
        yield Entry(f"{module}.weight_scale_inv", "F32", grid, "scale")
    elif algorithm == "MXFP8":
        yield Entry(name, "F8_E4M3", shape, "e4m3")
        yield Entry(f"{module}.weight_scale", "U8", (rows, columns // 32), "e8m0")
    else:
        yield Entry(name, "U8", (rows, columns // 2), "bytes")
        yield Entry(f"{module}.weight_scale_2", "F32", (), "scale")
        if algorithm.endswith("-CSF"):
            blocks = columns // 16
            fixed = rows // 16, 16 * (1 + blocks // 2)
            yield Entry(f"{module}.weight_scale.nvfp4_csf_fixed", "U8", fixed, "csf")
            count = (rows * blocks // EXCEPTIONS,)
            yield Entry(f"{module}.weight_scale.nvfp4_csf_exceptions", "U32", count, "exceptions")
        else:
            yield Entry(f"{module}.weight_scale", "F8_E4M3", (rows, columns // 16), "e4m3 scale")
        if not algorithm.startswith("W4A16"):
            yield Entry(f"{module}.input_scale", "F32", (), "scale")


def _describe(config: dict[str, Any], name: str, entries: Sequence[Entry]) -> None:
    matrices = {e.name.removesuffix(".weight") for e in entries if e.name.endswith(".weight")}
    chosen = {
        module: Choice(found.removesuffix("-CSF"), found.endswith("-CSF"), BLOCK)
        for module in matrices
        if (found := _algorithm(module, name)) is not None
    }
    if chosen:
        producer = quantization_config.fp8 if name == "fp8" else quantization_config.modelopt
        config["quantization_config"] = producer(chosen, matrices - chosen.keys(), BLOCK)
