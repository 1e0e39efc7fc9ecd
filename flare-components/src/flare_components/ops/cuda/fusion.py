"""Rewriting a program's graph: sequences of operators become the operators of `flare_components.ops.fused`.

A program is rewritten when it has few rows; with more the separate operators are as fast. The graph is that
of `torch.export`, after the passes that lower linears to `flare::linear` and fuse residual norms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from flare_components.ops.cuda.linear import MOST_ROWS

aten, flare = torch.ops.aten, torch.ops.flare


def fuse(graph: fx.Graph) -> int:
    """Replace every sequence that one operator covers, in place; how many were replaced.

    A sequence is replaced only where nothing outside it sees its intermediates and nothing between its
    operators writes what it reads, so the graph computes what it did.
    """
    passes: tuple[Callable[[fx.Graph, fx.Node], bool], ...] = (_sum, _attention, _gate, _projection)
    count = sum(rewrite(graph, node) for rewrite in passes for node in list(graph.nodes))
    graph.lint()
    return count


def _sum(graph: fx.Graph, node: fx.Node) -> bool:
    """`residual + linear(x)`, alone or in `add_rms_norm`, which then becomes a norm of the new sum."""
    if node.target is aten.add.Tensor and not node.kwargs:
        residual, product = node.args
    elif node.target is flare.add_rms_norm.default:
        residual, product = node.args[:2]
    else:
        return False
    if not (_is_few(product, flare.linear.default) and isinstance(residual, fx.Node)):
        return False
    if set(product.users) != {node} or not _alike(residual, product) or _disturbed(product, node):
        return False
    in_place = node.target is flare.add_rms_norm.default
    if in_place and not _owns_storage(residual):
        return False
    later = [user for user in residual.users if user is not node and _follows(node, user)]
    with graph.inserting_before(node):
        total = _call(graph, flare.linear_add.default, (residual, *product.args), product)
        if in_place:
            gain, eps = node.args[2:]
            result = _call(graph, flare.rms_norm.default, (total, gain, eps), node)
        else:
            result = total
    for user in later if in_place else ():
        user.replace_input_with(residual, total)
    _replace(graph, node, result, (product,))
    return True


def _attention(graph: fx.Graph, node: fx.Node) -> bool:
    """Norm, projection, split, rotary, write to the pages, attention."""
    if node.target is not flare.paged_attention.default:
        return False
    q, k_pages, v_pages, table, starts, contexts, scale = node.args
    turned = _item(q, 0)
    if turned is None or turned.target is not flare.rotary.default or len(turned.users) != 2:
        return False
    k = next((user for user in turned.users if _item(user, 1) is turned), None)
    write = _only_user(k)
    if write is None or write.target is not flare.paged_kv_write.default or _only_user(q) is not node:
        return False
    if write.args[0] is not k or write.args[2:4] != (k_pages, v_pages):
        return False
    raw_q, raw_k, cos, sin = turned.args
    v, slots = write.args[1], write.args[4]
    parts = _item(raw_q, 0)
    if parts is None or parts is not _item(raw_k, 1) or parts is not _item(v, 2) or len(parts.users) != 3:
        return False
    if any(_only_user(part) is None for part in (raw_q, raw_k, v)):
        return False
    if parts.target is not aten.split_with_sizes.default or len(parts.args) != 3 or parts.args[2] != 1:
        return False
    heads, kv_heads, width = (*q.meta["val"].shape[1:2], *k_pages.meta["val"].shape[2:])
    view, sizes = parts.args[:2]
    if list(sizes) != [heads, kv_heads, kv_heads] or view.target is not aten.view.default:
        return False
    product = view.args[0]
    if not _is_few(product, flare.linear.default) or product.meta["val"].shape[1] != sum(sizes) * width:
        return False
    norm = product.args[0]
    if not _is_few(norm, flare.rms_norm.default):
        return False
    chain = (write, k, q, turned, v, raw_k, raw_q, parts, view, product, norm)
    if any(_only_user(step) is None for step in (view, product, norm)):
        return False
    if _disturbed(norm, node, except_for=write) or _between(write, node, (k_pages, v_pages)):
        return False
    operands = (*norm.args, *product.args[1:], cos, sin, k_pages, v_pages, slots)
    with graph.inserting_before(node):
        fused = _call(graph, flare.norm_attention.default, (*operands, table, starts, contexts, scale), node)
    _replace(graph, node, fused, chain)
    return True


def _gate(graph: fx.Graph, node: fx.Node) -> bool:
    """Norm, projection, gate without a limit."""
    if node.target is not flare.silu_and_mul.default or node.args[1:] not in ((), (None,)):
        return False
    product = node.args[0]
    if not _is_few(product, flare.linear.default) or product.args[2] is not None:
        return False
    norm = product.args[0]
    if not _is_few(norm, flare.rms_norm.default) or _only_user(product) is None or _only_user(norm) is None:
        return False
    if _disturbed(norm, node):
        return False
    with graph.inserting_before(node):
        fused = _call(graph, flare.norm_gate.default, (*norm.args, product.args[1]), node)
    _replace(graph, node, fused, (product, norm))
    return True


def _projection(graph: fx.Graph, node: fx.Node) -> bool:
    """Norm, projection."""
    if not _is_few(node, flare.linear.default) or not _is_few(node.args[0], flare.rms_norm.default):
        return False
    norm = node.args[0]
    if _only_user(norm) is None or _disturbed(norm, node):
        return False
    with graph.inserting_before(node):
        fused = _call(graph, flare.norm_linear.default, (*norm.args, *node.args[1:]), node)
    _replace(graph, node, fused, (norm,))
    return True


def _call(graph: fx.Graph, target: Any, args: tuple[Any, ...], like: fx.Node) -> fx.Node:
    node = graph.call_function(target, args)
    node.meta = dict(like.meta)
    return node


def _replace(graph: fx.Graph, node: fx.Node, by: fx.Node, chain: Iterable[fx.Node]) -> None:
    """`chain`: what only `node` used, users first."""
    node.replace_all_uses_with(by)
    graph.erase_node(node)
    for step in chain:
        graph.erase_node(step)


def _is_few(node: Any, target: Any) -> bool:
    """Whether it is a call of `target` with few rows, and with a weight that no call writes: kernels load it
    before they wait for the calls before them."""
    if not isinstance(node, fx.Node) or node.target is not target:
        return False
    value = node.meta["val"]
    return bool(value.dim() == 2 and value.shape[0] <= MOST_ROWS and _is_constant(node.args[1]))


def _is_constant(node: Any) -> bool:
    if not isinstance(node, fx.Node) or node.op != "placeholder":
        return False
    return not any(operand is node for user in node.users for operand in _written(user))


def _written(node: fx.Node) -> list[Any]:
    """The operands that a call writes."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    given = {**dict(zip((a.name for a in schema.arguments), node.args, strict=False)), **node.kwargs}
    return [given.get(a.name) for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _item(node: Any, index: int) -> fx.Node | None:
    """The call that `node` is result `index` of."""
    if not isinstance(node, fx.Node) or node.target is not operator.getitem or node.args[1] != index:
        return None
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def _only_user(node: fx.Node | None) -> fx.Node | None:
    return next(iter(node.users)) if node is not None and len(node.users) == 1 else None


def _alike(a: fx.Node, b: fx.Node) -> bool:
    x, y = a.meta["val"], b.meta["val"]
    return bool(x.shape == y.shape and x.dtype == y.dtype)


def _follows(first: fx.Node, second: fx.Node) -> bool:
    return first < second


def _between(first: fx.Node, last: fx.Node, tensors: tuple[fx.Node, ...]) -> bool:
    """Whether a node between the two uses one of the tensors."""
    return any(first < user < last for tensor in tensors for user in tensor.users)


def _disturbed(first: fx.Node, last: fx.Node, except_for: fx.Node | None = None) -> bool:
    """Whether anything between the two writes to memory: what the first one read may have changed."""
    node = first.next
    while node is not last:
        if node is not except_for and _written(node):
            return True
        node = node.next
    return False


def _owns_storage(node: fx.Node) -> bool:
    """Whether it is a new tensor that no view shares."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return not any(_aliases(step) for step in (node, *node.users))


def _aliases(node: fx.Node) -> bool:
    if node.op == "output" or node.target is operator.getitem:
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(result.alias_info is not None for result in schema.returns)
