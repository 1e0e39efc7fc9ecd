"""Graph passes before encoding: drop what does nothing, lower what operators of ours do faster."""

from __future__ import annotations

import torch
from torch import fx

aten = torch.ops.aten

_ALIASES = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)


def simplify(graph: fx.Graph) -> None:
    """Run every pass in order, then remove dead nodes. Operators with side effects always stay."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is aten._assert_tensor_metadata.default:
            graph.erase_node(node)
            continue
        if node.target is aten.to.device:
            _forget_device(node)
        if node.target in _ALIASES or _is_identity_cast(node) or _is_idle_dropout(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target is aten.linear.default and _is_matrix(node.args[0]):
            _lower_linear(graph, node)
    _fuse_residual_norms(graph)
    remove_dead(graph)
    graph.lint()


def remove_dead(graph: fx.Graph) -> None:
    """Remove nodes that nobody reads. Inputs and operators with side effects stay."""
    graph.eliminate_dead_code(is_impure_node=_is_impure)


def _forget_device(node: fx.Node) -> None:
    # A program runs on one device: only the type conversion (and a forced copy) is left.
    source, _, *rest = node.args
    node.target = aten.to.dtype
    node.args = (source, *rest)


def _is_impure(node: fx.Node) -> bool:
    if node.op in ("placeholder", "output"):
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and (schema.is_mutable or not schema.returns)


def _is_identity_cast(node: fx.Node) -> bool:
    if node.target not in (aten.to.dtype, aten.to.dtype_layout, aten.contiguous.default):
        return False
    source, result = node.args[0].meta["val"], node.meta["val"]
    if node.target is aten.contiguous.default:
        return bool(source.is_contiguous())
    copies = node.kwargs.get("copy", len(node.args) > 3 and node.args[3])
    return bool(source.dtype == result.dtype and not copies)


def _is_idle_dropout(node: fx.Node) -> bool:
    return node.target is aten.dropout.default and (node.args[1] == 0.0 or not node.args[2])


def _is_matrix(node: fx.Node) -> bool:
    return bool(node.meta["val"].dim() == 2)


def _lower_linear(graph: fx.Graph, node: fx.Node) -> None:
    # flare::linear has load-time weight packing; a bias is optional in both.
    x, weight, *rest = node.args
    bias = rest[0] if rest else node.kwargs.get("bias")
    with graph.inserting_before(node):
        lowered = graph.call_function(torch.ops.flare.linear.default, (x, weight, bias))
    lowered.meta = node.meta
    node.replace_all_uses_with(lowered)
    graph.erase_node(node)


def _fuse_residual_norms(graph: fx.Graph) -> None:
    """`norm(residual + x)` with both the sum and the norm used becomes one operator that adds in place.

    The residual's storage may be reused only when the sum is its last use and it is a temporary of the
    same shape and type that no view aliases. The sum moves to where the norm is, so nothing in between may
    write, and a probe, which is copied when its value is produced, must not name the sum.
    """
    order = {node: index for index, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        if node.target is not torch.ops.flare.rms_norm.default or node.args[0].op != "call_function":
            continue
        total = node.args[0]
        if total.target is not aten.add.Tensor or total.kwargs:
            continue
        residual, x = total.args
        if not isinstance(residual, fx.Node) or not isinstance(x, fx.Node):
            continue
        if not _is_private_temporary(residual) or any(order[user] > order[total] for user in residual.users):
            continue
        if (
            residual.meta["val"].shape != x.meta["val"].shape
            or residual.meta["val"].dtype != x.meta["val"].dtype
        ):
            continue
        if any(order[user] < order[node] or user.op == "output" for user in total.users):
            continue
        if any(_writes(other) for other, index in order.items() if order[total] < index < order[node]):
            continue
        with graph.inserting_before(node):
            fused = graph.call_function(
                torch.ops.flare.add_rms_norm.default, (residual, x, node.args[1], node.args[2])
            )
        fused.meta = node.meta
        node.replace_all_uses_with(fused)
        graph.erase_node(node)
        # Every later use of the sum reads the updated residual.
        total.replace_all_uses_with(residual)
        graph.erase_node(total)
        order = {item: index for index, item in enumerate(graph.nodes)}


_FRESH = (
    "flare::linear",
    "flare::embedding",
    "flare::add_rms_norm",
    "aten::add",
    "aten::embedding",
)


def _is_private_temporary(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    fresh: bool = schema is not None and schema.name in _FRESH
    return fresh and not any(map(_aliases, node.users))


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _aliases(node: fx.Node) -> bool:
    """Whether the result may share storage with an operand."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)
