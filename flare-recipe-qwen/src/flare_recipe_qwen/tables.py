"""The n-gram tables: their hash, their rows, and where a checkpoint has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flare.contract import DType, TableResource
from flare.prepare import Checkpoint, CheckpointError, NumberFormat, TableRule
from flare_components.modules import HashConstants, hash_constants
from flare_recipe_qwen.config import ModelConfig

_SHARD = re.compile(r"shard_(\d+)")


@dataclass(frozen=True)
class NgramTable:
    """The table of decoder layer `layer`. `shards` are its modules in the checkpoint, in the order of their
    rows; `packed` says that they are NVFP4 (a row is its codes, then its scales), else `stored` is the type
    of their elements. `embedding` names it in the checkpoint."""

    layer: int
    embedding: str
    shards: tuple[str, ...]
    packed: bool
    stored: DType
    constants: HashConstants
    resource: TableResource

    @property
    def rule(self) -> TableRule:
        """Where its rows come from."""
        parts = ("weight", "weight_scale") if self.packed else ("weight",)
        return TableRule(tuple(tuple(f"{shard}.{part}" for part in parts) for shard in self.shards))

    @property
    def global_scales(self) -> tuple[str, ...]:
        """The tensors that scale all rows of a shard, of packed tables."""
        return tuple(f"{shard}.weight_scale_2" for shard in self.shards) if self.packed else ()

    @property
    def stored_constants(self) -> dict[str, list[int]]:
        """The constants of the hash by the names under which a checkpoint may repeat them."""
        hashed = self.constants
        return {
            f"{self.embedding}.layer_multipliers": hashed.multipliers.tolist(),
            f"{self.embedding}.ngram_heads_vocab_sizes": hashed.moduli.tolist(),
            f"{self.embedding}.ngram_heads_offsets": hashed.offsets.tolist(),
        }


def ngram_tables(config: ModelConfig) -> tuple[NgramTable, ...]:
    """Every table, by layer. Raises CheckpointError when shards are missing or in a format not served."""
    return tuple(_table(config, index, layer - 1) for index, layer in enumerate(config.text.ple_layer_ids))


def _table(config: ModelConfig, index: int, layer: int) -> NgramTable:
    text = config.text
    embedding = f"{config.prefix}.layers.{layer}.ple.ple_embedding"
    constants = hash_constants(
        order=text.ngram_size,
        heads=text.heads_per_ngram,
        vocabulary=text.vocab_size,
        smallest_modulus=text.ngram_vocab_size_base,
        seed=text.seed,
        table=index,
    )
    heads = (text.ngram_size - 1) * text.heads_per_ngram
    divisor = text.make_ngram_vocab_size_divisible_by
    shards = _shards(config, f"{embedding}.ngram_embedding")
    packed, stored = _format(config, shards)
    width = text.ple_embed_dim // heads
    resource = TableResource(
        name=f"ngrams.{layer}",
        tensor=f"tables/ngrams.{layer}",
        rows=-(-constants.rows // divisor) * divisor,
        row_bytes=width // 2 + width // 16 if packed else width * stored.itemsize,
        lookup="ngram",
        parameters=(
            text.ngram_size,
            text.heads_per_ngram,
            config.boundary,
            *constants.multipliers.tolist(),
            *constants.moduli.tolist(),
            *constants.offsets.tolist(),
        ),
    )
    return NgramTable(layer, embedding, shards, packed, stored, constants, resource)


def _shards(config: ModelConfig, module: str) -> tuple[str, ...]:
    if f"{module}.weight" in config.tensors:
        return (module,)
    numbered: dict[int, str] = {}
    for name in config.tensors:
        shard = name.removeprefix(f"{module}.").removesuffix(".weight")
        if name == f"{module}.{shard}.weight" and (match := _SHARD.fullmatch(shard)):
            numbered[int(match[1])] = f"{module}.{shard}"
    wanted = range(config.text.split_ngram_parts)
    if missing := sorted(set(wanted) ^ set(numbered)):
        raise CheckpointError(
            f"{module} has {len(wanted)} shards by split_ngram_parts; shard_{missing[0]} is "
            f"{'missing' if missing[0] in wanted else 'one too many'}",
            field=module,
        )
    return tuple(numbered[number] for number in wanted)


def _format(config: ModelConfig, shards: tuple[str, ...]) -> tuple[bool, DType]:
    first = config.tensors[f"{shards[0]}.weight"]
    if first.dtype == DType.U8.value:
        # The configuration says so of the table itself, or of its modules like of any other.
        declared = config.table_dtype == "nvfp4"
        found = None if declared else config.formats.shared(shards)
        if declared or (found is not None and found.number is NumberFormat.NVFP4 and not found.compressed):
            return True, DType.U8
    elif first.dtype in (DType.BF16.value, DType.F32.value, DType.F16.value):
        return False, DType(first.dtype)
    raise CheckpointError(
        f"{shards[0]} is stored as {first.dtype}, in a format that is not served for tables", field=shards[0]
    )


def check_tables(tables: tuple[NgramTable, ...], checkpoint: Checkpoint) -> None:
    """Raise CheckpointError where the checkpoint repeats constants of the hash, and not those computed, or
    where shards have global scales of their own: what a row means must not depend on where it was."""
    for table in tables:
        for name, values in table.stored_constants.items():
            if name in checkpoint.tensors and checkpoint.load(name).tolist() != values:
                raise CheckpointError(f"{name} is not what follows from config.json", field=name)
        scales = {name: float(checkpoint.load(name)) for name in table.global_scales}
        for name, scale in scales.items():
            if scale != scales[table.global_scales[0]]:
                raise CheckpointError(
                    f"{name} is not the global scale of the first shard; a table has one", field=name
                )
