"""Tensor rules of modules whose weights may be stored in a number format.

They give the operands of `flare_components.modules.linear_for` and `experts_for` their names: "codes",
"scales", ... of a linear layer, "gate_up_codes", "down_codes", ... of experts; "weight", "gate_up" and "down"
of plain ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flare.contract import DType
from flare.errors import CheckpointError
from flare.prepare.csf_transforms import CsfExceptions, CsfStarts
from flare.prepare.expert_transforms import ExpertScales, SharedScales, StackExperts
from flare.prepare.number_formats import NumberFormat, WeightFormat
from flare.prepare.scale_transforms import BlockScales, Reinterpret, RowScales
from flare.prepare.table_rules import TableRule
from flare.prepare.tensor_map import TensorRule
from flare.prepare.tensor_transforms import ConcatRows, Identity, Transform
from flare.prepare.weight_formats import WeightFormats


def linear_rules(
    formats: WeightFormats, target: str, modules: Sequence[str], *, bias: bool = False
) -> dict[str, TensorRule]:
    """Rules of the linear layer `target`, whose weight is that of `modules` stacked by rows.

    Raises CheckpointError when the modules have different formats, or one that is not served.
    """
    found = formats.shared(modules)
    stack: Transform = Identity() if len(modules) == 1 else ConcatRows()
    rules = {f"{target}.bias": TensorRule(_each(modules, "bias"), stack)} if bias else {}
    if found is None:
        return {f"{target}.weight": TensorRule(_each(modules, "weight"), stack), **rules}
    if found.compressed:
        raise CheckpointError(
            f"{modules[0]}: compressed block scales are served for routed experts only", field=modules[0]
        )
    rules[f"{target}.codes"] = TensorRule(_each(modules, found.names.codes), stack)
    rules[f"{target}.scales"] = _scales(found, modules, len(modules), stack)
    if found.number is NumberFormat.NVFP4:
        numbers = _pairs(modules, found.names.codes, found.names.global_scale)
        rules[f"{target}.global_scale"] = TensorRule(numbers, RowScales(found.names.reciprocal))
        if found.quantized_input:
            inputs = SharedScales(len(modules), found.names.reciprocal)
            rules[f"{target}.input_scale"] = TensorRule(_each(modules, found.names.input_scale), inputs)
    return rules


def expert_rules(
    formats: WeightFormats,
    target: str,
    experts: str,
    number: int,
    *,
    gate_up: Sequence[str] = ("gate_proj", "up_proj"),
    down: Sequence[str] = ("down_proj",),
) -> dict[str, TensorRule]:
    """Rules of the routed experts `target`.

    experts: the checkpoint's name of them all; expert i is `{experts}.{i}`, with linear layers of the names
    `gate_up` and `down`. Plain weights may also be stored as `{experts}.gate_up_proj` and
    `{experts}.down_proj` for all experts at once. Raises CheckpointError as `linear_rules` does.
    """
    if formats.has(f"{experts}.gate_up_proj"):
        return {
            f"{target}.gate_up": TensorRule((f"{experts}.gate_up_proj",)),
            f"{target}.down": TensorRule((f"{experts}.down_proj",)),
        }
    rules: dict[str, TensorRule] = {}
    for name, parts in (("gate_up", gate_up), ("down", down)):
        modules = expert_modules(experts, number, parts)
        found = formats.shared(modules)
        if found is None:
            rules[f"{target}.{name}"] = TensorRule(_each(modules, "weight"), StackExperts(len(parts)))
        else:
            rules |= {
                f"{target}.{name}_{key}": rule for key, rule in _expert_operands(found, modules, len(parts))
            }
    return rules


def shard_rules(
    formats: WeightFormats, target: str, shards: Sequence[str]
) -> tuple[TableRule, dict[str, TensorRule]]:
    """The table whose rows are those of the weights of modules `shards`, and the rule of
    `{target}.global_scale`, which NVFP4 rows have. Such a row is its codes and then its scales, as
    `flare::nvfp4_rows` takes it.

    Raises CheckpointError when the shards have different formats, or another one.
    """
    found = formats.shared(shards)
    if found is None:
        return TableRule(tuple((name,) for name in _each(shards, "weight"))), {}
    if found.number is not NumberFormat.NVFP4 or found.compressed:
        raise CheckpointError(f"{shards[0]}: tables of {found.number.value} are not served", field=shards[0])
    names = found.names
    rows = tuple((f"{shard}.{names.codes}", f"{shard}.{names.scales}") for shard in shards)
    scale = TensorRule(_each(shards, names.global_scale), SharedScales(len(shards), names.reciprocal))
    return TableRule(rows), {f"{target}.global_scale": scale}


def expert_modules(experts: str, number: int, parts: Sequence[str]) -> list[str]:
    """Names of the linear layers `parts` of all experts, expert by expert."""
    return [f"{experts}.{index}.{part}" for index in range(number) for part in parts]


def _expert_operands(
    found: WeightFormat, modules: Sequence[str], parts: int
) -> Iterator[tuple[str, TensorRule]]:
    names = found.names
    stack = StackExperts(parts)
    yield "codes", TensorRule(_each(modules, names.codes), stack)
    if found.compressed:
        streams = _pairs(modules, names.fixed, names.exceptions)
        yield "fixed", TensorRule(streams[::2], stack)
        yield "exceptions", TensorRule(streams, CsfExceptions(parts))
        yield "starts", TensorRule(streams, CsfStarts(parts))
    else:
        yield "scales", _scales(found, modules, parts, stack)
    if found.number is NumberFormat.NVFP4:
        numbers = _each(modules, names.global_scale)
        yield "global", TensorRule(numbers, ExpertScales(parts, names.reciprocal))
        if found.quantized_input:
            inputs = _each(modules, names.input_scale)
            yield "input", TensorRule(inputs, SharedScales(parts, names.reciprocal))


def _scales(found: WeightFormat, modules: Sequence[str], parts: int, stack: Transform) -> TensorRule:
    names = found.names
    if found.number is NumberFormat.FP8_BLOCK:
        pairs = _pairs(modules, names.codes, names.scales)
        return TensorRule(pairs, BlockScales(found.block[0], parts, stack))
    if found.number is NumberFormat.MXFP8:
        stack = Reinterpret(stack, DType.F8_E8M0)
    return TensorRule(_each(modules, names.scales), stack)


def _each(modules: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for module in modules)


def _pairs(modules: Sequence[str], first: str, second: str) -> tuple[str, ...]:
    return tuple(f"{module}.{name}" for module in modules for name in (first, second))
