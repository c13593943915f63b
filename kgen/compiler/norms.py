"""Norms taken apart: reductions as nodes of their own, then the pointwise operators that use them.

    batch norm, (N, C, H, W)     mean, variance (C) of x over N, H, W; running statistics; (x - mean) * scale + bias
    group norm, (N, C, H, W)     mean, variance (N, G, 1) of x as (N, G, C / G * H * W); normalised; back to x's shape; affine
    layer norm, softmax          the same reductions as in one node, so that a plan may cut behind them

A kernel may still hold all of it. Where rows are few and long, many blocks reduce, and a second kernel applies.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Mapping, Sequence

from kgen.compiler.graph import BatchSize, Node, OpGraph, Operand, Tensor
from kgen.compiler.source import spell_value

FEW_ROWS, LONG_ROW = 512, 16384  # rows, and elements of each: blocks of one kernel would be too few, and long at work


def _node(graph: OpGraph, stem: str, op: str, inputs: tuple[Operand, ...], type_: Tensor, call: str = "", **attrs: object) -> Node:
    return Node(graph.fresh(stem), op, inputs, type_, call, tuple(attrs.items()))


def _view(graph: OpGraph, stem: str, source: str, type_: Tensor) -> Node:
    sizes = tuple(s if isinstance(s, BatchSize) else int(s) for s in type_.sizes())
    return _node(graph, stem, "view", (source,), type_, f"torch.reshape({{0}}, {spell_value(sizes)})")


def _moments(graph: OpGraph, node: Node, source: str, type_: Tensor, dims: tuple[int, ...], keepdim: bool) -> list[Node]:
    """The mean and the variance of a value over some dimensions."""
    both = {"dims": dims, "keepdim": keepdim}
    keep = ", keepdim=True" if keepdim else ""
    mean = _node(graph, f"{node.name}_mean", "moments_mean", (source,), type_, f"torch.mean({{0}}, {dims}{keep})", **both)
    call = f"torch.var({{0}}, {dims}, correction=0{keep})"
    return [mean, _node(graph, f"{node.name}_variance", "variance", (source,), type_, call, **both, correction=0)]


def _inverse_deviation(graph: OpGraph, node: Node, variance: Node, *weight: str) -> Node:
    """``rsqrt(variance + eps)``, times the norm's weight if that is given."""
    op = "scaled_inverse_deviation" if weight else "inverse_deviation"
    call = ("{1} * " if weight else "") + f"torch.rsqrt({{0}} + {node['eps']!r})"
    return _node(graph, f"{node.name}_scale", op, (variance.name, *weight), variance.type, call, eps=node["eps"])


def _affine(node: Node, normal: Node, operands: Sequence[Operand]) -> Node:
    """The node as a scale of ``normal``, and a shift where there are two operands."""
    op, call = ("lerp_affine", "torch.addcmul({2}, {0}, {1})") if len(operands) > 1 else ("mul", "torch.mul({0}, {1})")
    return replace(node, op=op, inputs=(normal.name, *operands), call=call, attrs=())


def split_channels(graph: OpGraph, node: Node, roles: Mapping[str, str]) -> OpGraph:
    """Batch norm in train mode over all dimensions but the second, with its running statistics."""
    shape = node.type.shape
    dims = tuple(d for d in range(len(shape)) if d != 1)
    channels, wide = Tensor((shape[1],)), Tensor((shape[1],) + (1,) * (len(shape) - 2))
    mean, variance = nodes = _moments(graph, node, roles["input"], channels, dims, False)
    if "running_mean" in roles:
        unbiased = replace(
            variance, name=graph.fresh(f"{node.name}_unbiased"), op="unbiased_variance", call=f"torch.var({{0}}, {dims})",
            attrs=(("dims", dims), ("keepdim", False), ("correction", 1)),
        )  # fmt: skip
        update = f"torch.ops.aten.lerp_.Scalar({{0}}, {{1}}, {node['momentum']!r})"
        factors = {"keep": 1.0 - node["momentum"], "momentum": node["momentum"]}
        kept = [
            replace(_node(graph, f"{node.name}_{role}", "moving_average", (roles[role], new.name), channels, update, **factors), effect=True)
            for role, new in (("running_mean", mean), ("running_var", unbiased))
        ]
        nodes = [mean, unbiased, *kept, variance]
    scale = _inverse_deviation(graph, node, variance, *((roles["weight"],) if "weight" in roles else ()))
    operands = [mean.name, scale.name, *((roles["bias"],) if "bias" in roles else ())]
    views = [_view(graph, f"{name}_wide", name, wide) for name in operands]
    apply = _applied(node, roles["input"], [v.name for v in views])
    return graph.with_nodes_for(node.name, (*nodes, scale, *views, apply))


def _applied(node: Node, x: str, operands: list[str]) -> Node:
    """The node as ``(x - mean) * scale``, with a bias where there is one."""
    op, call = ("normalise_affine", "({0} - {1}) * {2} + {3}") if len(operands) > 2 else ("normalise", "({0} - {1}) * {2}")
    return replace(node, op=op, inputs=(x, *operands), call=call, attrs=(), effect=False)


def group_norm_to_moments(graph: OpGraph) -> OpGraph:
    """Group norm as moments of each group, a normalisation, and scale and shift for each channel."""
    for node in graph.nodes:
        if node.op != "group_norm" or any(node.type.multiples[1:]):
            continue
        roles = dict(zip(node["roles"], node.inputs))
        shape, groups = node.type.shape, node["groups"]
        split = Tensor((shape[0], groups, math.prod(shape[1:]) // groups), multiples=(node.type.multiples[0], 0, 0))
        each = Tensor((shape[0], groups, 1), multiples=split.multiples)
        x = _view(graph, f"{node.name}_groups", roles["input"], split)
        mean, variance = _moments(graph, node, x.name, each, (2,), True)
        scale = _inverse_deviation(graph, node, variance)
        found = [x, mean, variance, scale, replace(_applied(node, x.name, [mean.name, scale.name]), name=graph.fresh(f"{node.name}_normal"), type=split)]
        found.append(_view(graph, f"{node.name}_whole", found[-1].name, node.type))
        wide = Tensor((shape[1],) + (1,) * (len(shape) - 2))
        operands = []
        for role in ("weight", "bias"):
            if role in roles:
                operands.append(_view(graph, f"{node.name}_{role}", roles[role], wide))
        if operands:
            found += [*operands, _affine(node, found[-1], [o.name for o in operands])]
        else:
            found[-1] = replace(found[-1], name=node.name)
        graph = graph.with_nodes_for(node.name, found)
    return graph


def split_norms(graph: OpGraph) -> OpGraph:
    """Layer norm and softmax of few long rows as their reductions and what applies them."""
    for node in graph.nodes:
        if node.op not in ("layer_norm", "softmax", "log_softmax") or not _few_long_rows(node):
            continue
        if node.op == "layer_norm":
            graph = _split_layer_norm(graph, node)
        else:
            graph = _split_softmax(graph, node)
    return graph


def _few_long_rows(node: Node) -> bool:
    """Whether one block for each row would leave most of a chip idle."""
    long = math.prod(node.type.shape[d] for d in node["dims"])
    return long >= LONG_ROW and node.type.numel // long <= FEW_ROWS


def _reduced(node: Node) -> Tensor:
    """The type of a reduction of the node's operand, which keeps its dimensions."""
    pairs = [(1, 0) if d in node["dims"] else (s, m) for d, (s, m) in enumerate(zip(node.type.shape, node.type.multiples))]
    return Tensor(tuple(s for s, _ in pairs), multiples=tuple(m for _, m in pairs))


def _split_layer_norm(graph: OpGraph, node: Node) -> OpGraph:
    x, *affine = node.inputs
    mean, variance = _moments(graph, node, x, _reduced(node), node["dims"], True)
    scale = _inverse_deviation(graph, node, variance)
    normal = _applied(node, x, [mean.name, scale.name])
    if not affine:
        return graph.with_nodes_for(node.name, (mean, variance, scale, normal))
    normal = replace(normal, name=graph.fresh(f"{node.name}_normal"))
    return graph.with_nodes_for(node.name, (mean, variance, scale, normal, _affine(node, normal, affine)))


def _split_softmax(graph: OpGraph, node: Node) -> OpGraph:
    (x,) = node.inputs
    both = {"dims": node["dims"], "keepdim": True}
    maximum = f"torch.amax({{0}}, {node['dims']}, keepdim=True)"
    largest = _node(graph, f"{node.name}_max", "softmax_max", (x,), _reduced(node), maximum, **both)
    sums = f"torch.sum(torch.exp({{0}} - {maximum}), {node['dims']}, keepdim=True)"
    total = _node(graph, f"{node.name}_sum", "softmax_sum", (x,), _reduced(node), sums, **both)
    calls = {"softmax": "torch.exp({0} - {1}) / {2}", "log_softmax": "({0} - {1}) - torch.log({2})"}
    apply = replace(node, op=f"apply_{node.op}", inputs=(x, largest.name, total.name), call=calls[node.op], attrs=())
    return graph.with_nodes_for(node.name, (largest, total, apply))
