"""Attention while it is lowered: what a contraction reads that is the softmax of another one's sums.

    bmm(softmax(bmm(q, k) * scale + mask), v)     a contraction whose left operand a program before it makes

The program in front has the scores of all columns of a row, and reduces them. Operands may be views: the kernel reads
them where they lie.
"""

from __future__ import annotations

import sympy

from kgen.compiler.graph.graph import Node, NotFusable, OpGraph
from kgen.compiler.loops.indices import step_of, symbols_of
from kgen.compiler.loops.program import Program, Strided
from kgen.compiler.lower.builder import ProgramBuilder
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS


def scores(builder: ProgramBuilder, x: str) -> Program:
    """The program that makes the left operand of a second contraction. Raises :class:`NotFusable` where that is no
    softmax."""
    found = builder.lower(builder.graph, leading_to(builder.graph, x, builder.inside), [x], strided=True)
    softmax = [r for r in found.reductions if r.kind == "softmax"]
    if found.contraction is None or found.contraction.window or len(softmax) != 1 or found.span != found.cols:
        raise NotFusable("between two contractions of a kernel stands a softmax of all columns")
    return found


def leading_to(graph: OpGraph, value: str, inside: frozenset[str]) -> list[str]:
    """The nodes of the kernel that the value depends on, in their order."""
    names, waiting = set(), [value]
    while waiting:
        name = waiting.pop()
        if name in inside and name not in names:
            names.add(name)
            waiting += graph.node(name).values
    return [n.name for n in graph.nodes if n.name in names]


def reads_views(graph: OpGraph, node: Node, inside: frozenset[str]) -> bool:
    """Whether a product of two batches of matrices reads views that the kernel has among its nodes, other than one swap
    of dimensions."""
    operands = [value for value in node.inputs if isinstance(value, str)]
    if node.op not in ("bmm", "matmul") or any(len(graph.type(value).shape) < 3 for value in operands):
        return False
    chains = [[graph.node(n) for n in leading_to(graph, value, inside)] for value in operands]
    views = all(OPS[n.op].kind is Kind.VIEW for chain in chains for n in chain)
    return views and any(len(chain) > 1 or (chain and not _is_swap(chain[0])) for chain in chains)


def origin(builder: ProgramBuilder, name: str) -> tuple[str, bool, Strided | None]:
    """The tensor that an operand is read from, whether its last two dimensions are swapped there, and where it lies in
    it."""
    node = builder.graph.node(name) if name in builder.inside else None
    if node is None:
        return name, False, None
    swapped = _is_swap(node)
    view = node.values[0] if swapped else name
    if view not in builder.inside:
        return view, swapped, None
    chain = leading_to(builder.graph, view, builder.inside)
    if any(OPS[builder.graph.node(n).op].kind is not Kind.VIEW for n in chain):
        raise NotFusable(f"an operand of a contraction is made in the same kernel: {name}")
    found = builder.lower(builder.graph, chain, [view])
    return found.loads[0].tensor, swapped, _strided(found)


def _is_swap(node: Node) -> bool:
    """Whether the node swaps the last two dimensions alone."""
    if node.op != "permute":
        return False
    order = node["dims"]
    return order == (*range(len(order) - 2), len(order) - 1, len(order) - 2)


def _strided(copy: Program) -> Strided | None:
    """Where the elements of a copy lie in what it copies; ``None`` where in the same order. Raises :class:`NotFusable`
    elsewhere."""
    load, store = copy.loads[0], copy.stores[0]
    if len(copy.loads) > 1 or load.access.mask or load.args or copy.steps:
        raise NotFusable("an operand of a contraction is no view of one tensor")
    if load.access.offset == store.access.offset:
        return None
    loops = sorted((*copy.row_loops, *copy.col_loops), key=lambda loop: -int(step_of(store.access.offset, loop.symbol)))
    strides = [step_of(load.access.offset, loop.symbol) for loop in loops]
    rest = sympy.expand(load.access.offset - sum(stride * loop.symbol for stride, loop in zip(strides, loops)))
    if symbols_of(rest) or not all(stride.is_Integer and stride >= 0 for stride in strides):
        raise NotFusable("an operand of a contraction lies in no regular steps")
    return Strided(tuple((loop.extent, int(stride)) for loop, stride in zip(loops, strides)), int(rest))
