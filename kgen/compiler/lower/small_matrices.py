"""Lowering of products of small matrices: a batch of them, with what makes their operands and with what reads their
sums.

    e = table[x]; bmm(e, e.mT)[:, i, j]       the pairs of a few rows each, of which some are stored

A loop over elements has an operand of a contraction in memory, and each sum at its own row and column. Matrices that
are small enough lie in shared memory as a whole. So any map or gather may make them, and any may read the sums.
"""

from __future__ import annotations

from typing import Sequence

import sympy

from kgen.compiler.graph.graph import NotFusable, OpGraph
from kgen.compiler.loops.access import Loop, Place
from kgen.compiler.loops.indices import Size, step_of, symbols_of
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program, SmallProduct, Store
from kgen.compiler.lower.attention import leading_to
from kgen.compiler.lower.lowering import lower
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

MOST_LINES = 64  # rows or columns of a matrix; registers of four warps hold no more sums
MOST_K = 128  # elements of a line
FEWEST_MATRICES = 64  # of fewer, most multiprocessors have none


def has_small_matrices(graph: OpGraph, names: Sequence[str]) -> bool:
    """Whether one contraction is among the nodes, which is that of a batch of small matrices."""
    found = [n for n in map(graph.node, names) if OPS[n.op].kind is Kind.CONTRACTION]
    if len(found) != 1 or found[0].op not in ("bmm", "matmul") or len(names) == 1:
        return False
    x, weight = (graph.type(v) for v in found[0].inputs[:2])
    if (
        len(x.shape) != 3
        or len(weight.shape) != 3
        or x.sizes()[0] != weight.sizes()[0]
        or {x.dtype, weight.dtype} != {"float32"}
    ):
        return False
    many = x.shape[0] >= FEWEST_MATRICES and not any((*x.multiples[1:], *weight.multiples[1:]))
    return many and max(x.shape[1], weight.shape[2]) <= MOST_LINES and x.shape[2] <= MOST_K


def small_matrices(graph: OpGraph, names: Sequence[str], outputs: Sequence[str]) -> Program:
    """The program of nodes for which :func:`has_small_matrices` holds. Raises :class:`NotFusable` where they make no
    such kernel."""
    node = next(n for n in map(graph.node, names) if OPS[n.op].kind is Kind.CONTRACTION)
    matrices, rows, cols = node.type.sizes()
    k = graph.type(node.inputs[0]).shape[2]
    inside, used = frozenset(names), {node.name}
    made: list[Program] = []
    turned: list[bool] = []
    for number, operand in enumerate(node.inputs[:2]):
        name, swapped = _untransposed(graph, inside, str(operand))
        chain = leading_to(graph, name, inside)
        used |= {*chain, str(operand)}
        made.append(_in_order(_lowered(graph, chain, [name], matrices, (rows, cols)[number] * k)))
        turned.append(swapped != bool(number))
    behind = [n for n in names if n not in used]
    if not set(outputs) <= set(behind or [node.name]) or any(
        v in used - {node.name} for n in behind for v in graph.node(n).values
    ):
        raise NotFusable("a kernel of small products stores its sums, or values behind these")
    sums = node.name if behind else f"{node.name}_sums"
    after = (
        lower(graph, behind, outputs) if behind else _copy(sums, node.name, node.type.shape[0], matrices, rows * cols)
    )
    if (
        not _is_pointwise(after)
        or after.row_size != matrices
        or not all(_within_row(after, x, rows * cols) for x in after.reads if x.tensor == sums)
    ):
        raise NotFusable("values behind small products are maps of the sums of one matrix each")
    product = SmallProduct(made[0], made[1], after, sums, rows, k, cols, (turned[0], turned[1]))
    return Program(after.rows, after.cols, matrices, after.col_size, (), (), (), (), (), product=product)


def _untransposed(graph: OpGraph, inside: frozenset[str], name: str) -> tuple[str, bool]:
    """The operand, and whether the kernel swaps its last two dimensions."""
    node = graph.node(name) if name in inside else None
    return (
        (node.values[0], True)
        if node is not None and node.op == "permute" and node["dims"] == (0, 2, 1)
        else (name, False)
    )


def _lowered(graph: OpGraph, chain: Sequence[str], outputs: Sequence[str], matrices: Size, elements: int) -> Program:
    """The program that makes an operand; of one that is a tensor, a copy."""
    (name,) = outputs
    found = (
        lower(graph, chain, outputs)
        if chain
        else _copy(name, f"{name}_copy", graph.type(name).shape[0], matrices, elements)
    )
    if found.row_size != matrices or found.cols != elements or not _is_pointwise(found):
        raise NotFusable("an operand of small products is no map of the elements of one matrix each")
    return found


def _copy(tensor: str, to: str, count: int, matrices: Size, elements: int) -> Program:
    """The program that copies a float32 tensor of matrices of so many elements, ``count`` of them at the captured
    batch."""
    row, col = (
        Loop(sympy.Symbol(f"{tensor}_{axis}", integer=True, nonnegative=True), size)
        for axis, size in (("row", matrices), ("col", elements))
    )
    place, value = Place(row.symbol * elements + col.symbol, (row,), (col,)), f"{tensor}_element"
    return Program(
        count,
        elements,
        matrices,
        elements,
        (row,),
        (col,),
        (Load(value, tensor, place, ELEMENT),),
        (),
        (Store(to, value, ELEMENT, place),),
    )


def _in_order(program: Program) -> Program:
    """The program itself; raises :class:`NotFusable` where it does not store one tensor element after element."""
    if len(program.stores) != 1 or program.stores[0].access.index() != f"row * {program.cols} + col":
        raise NotFusable("an operand of small products is made out of order")
    return program


def _is_pointwise(program: Program) -> bool:
    """Whether the program is one of maps and loads alone, in rows of fixed length."""
    maps = all(isinstance(step, (Load, Map)) for step in program.steps) and isinstance(program.col_size, int)
    return maps and not (
        program.contraction or program.scatters or program.moments_of or program.recurrence or program.narrow
    )


def _within_row(program: Program, load: Load, elements: int) -> bool:
    """Whether each row of the program loads from its own part of a tensor, of so many elements."""
    (row,) = program.row_loops if len(program.row_loops) == 1 else (None,)
    if (
        row is None
        or any(row.symbol in symbols_of(w.index) for w in load.access.mask)
        or step_of(load.access.offset, row.symbol) != elements
    ):
        return False
    return row.symbol not in symbols_of(sympy.expand(load.access.offset - elements * row.symbol))
