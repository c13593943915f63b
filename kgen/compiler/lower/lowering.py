"""Lowering: some nodes of a graph as one loop program.

:func:`lower` asks for each output at the indices of its axes. A node asks for its operands at the indices that it needs
them at, down to tensors from outside, which are loaded. A value that is asked for twice is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator, Sequence

import sympy

from kgen.compiler.graph.graph import Node, NotFusable, OpGraph, Tensor
from kgen.compiler.loops.access import MOST_PARTS
from kgen.compiler.loops.indices import Axes, symbols_of
from kgen.compiler.loops.program import Program
from kgen.compiler.lower.attention import reads_views
from kgen.compiler.lower.builder import ProgramBuilder, Step
from kgen.compiler.lower.concatenation import MOST_DROPPED, dropped
from kgen.compiler.lower.contraction import contraction
from kgen.compiler.lower.layout import Layout, Output
from kgen.compiler.lower.recurrence import recurrence_of
from kgen.compiler.lower.reduction import reduction
from kgen.compiler.operators.op import Index, Kind
from kgen.compiler.operators.reductions import MOST_FEW, of_few
from kgen.compiler.operators.scatters import looped
from kgen.compiler.operators.table import OPS

#: The most parts with statements of their own where tables are looked up under masks. Without parts, each element looks
#: up all.
MOST_LOOKED_UP = 16
_LOOPS = {Kind.REDUCTION: reduction, Kind.CONTRACTION: contraction}
MOST_NODES = 128  # nodes of one kernel; a loop that forward unrolls has more


def lower(
    graph: OpGraph, names: Sequence[str], outputs: Sequence[str], *, two_passes: bool = False, strided: bool = False
) -> Program:
    """The program of these nodes, which stores ``outputs``. Raises :class:`NotFusable` where they make no kernel.

    ``two_passes`` takes softmax's maximum and sum in two passes over the row instead of one online. Operands of
    contractions are tensors, or views of tensors where they may be ``strided``. Those of attention may.
    """
    if len(names) > MOST_NODES:
        raise NotFusable(f"it has more than {MOST_NODES} operators")
    if any(OPS[graph.node(n).op].kind is Kind.RECURRENCE for n in names):
        return recurrence_of(graph, names, outputs)
    splits: dict[str, tuple[int, ...]] = {}
    same: dict[str, sympy.Expr] = {}
    parts: _Parts | None = None
    while True:
        builder, found, moments_of = _build(graph, names, outputs, splits, same, parts, two_passes, strided)
        wanted = builder.axes.wanted_splits(_indices(builder, found))
        new = {name: inner for name, inner in wanted.items() if name not in splits}
        alike = {} if new else {name: index for name, index in _alike(builder, found).items() if name not in same}
        splits |= new
        same |= alike
        if not new and not alike:
            if parts or moments_of or (parts := _parts(builder)) is None:
                program = Layout(builder, found, moments_of).program()
                if program.scatters and (
                    program.reductions or program.contraction or program.windows or program.scans or moments_of
                ):
                    raise NotFusable("a scatter takes in values of maps alone")
                if dropped(program) > MOST_DROPPED:
                    raise NotFusable("it would compute each part of a concatenation for the elements of the others")
                return program


@dataclass(frozen=True)
class _Parts:
    """An axis that is stored in parts of ``size`` elements, each computed without masks along it."""

    symbol: sympy.Symbol
    count: int
    size: int

    def of(self, builder: ProgramBuilder, index: Index) -> Iterator[Index]:
        """The index in each part; the index itself where it does not run along the axis."""
        if not any(self.symbol in symbols_of(i) for i in index):
            yield index
            return
        inside = builder.axes.index(f"{self.symbol.name}_part", self.size) if self.size > 1 else 0
        for number in range(self.count):
            yield tuple(i.subs(self.symbol, number * self.size + inside) for i in index)


def _parts(builder: ProgramBuilder) -> _Parts | None:
    """The equal parts of an axis between which the masks of a pointwise kernel change, as in a concatenation of two
    halves.

    Where each part has statements of its own, none has a mask, and loads of neighbours are vectors.
    """
    kinds = {step.kind for step in builder.steps.values()}
    if builder.contraction or builder.scatters or not kinds <= {"load", "map", "reduce"}:
        return None
    reduced = frozenset().union(*(step.axes for step in builder.steps.values()))
    for symbol in builder.axes.extents if builder.apart - reduced else ():
        extent = builder.axes.extents[symbol]
        if symbol in builder.apart - reduced and isinstance(extent, int) and 1 < extent <= MOST_FEW:
            return _Parts(symbol, extent, 1)
    if "reduce" in kinds:
        return None
    changes: dict[sympy.Symbol, set[sympy.Expr]] = {}
    for within in dict.fromkeys(w for step in builder.steps.values() for w in step.mask):
        for symbol in symbols_of(within.index):
            start = symbol - within.index
            ends = {start} if within.below else set()
            changes.setdefault(symbol, set()).update(ends | ({start + within.size} if within.above else set()))
    looked_up = any(step.kind == "load" and step.mask and step.args for step in builder.steps.values())
    most = MOST_LOOKED_UP if looked_up else MOST_PARTS
    for symbol, at in changes.items():
        extent = builder.axes.extents.get(symbol)
        for count in range(2, most + 1) if isinstance(extent, int) else ():
            size, rest = divmod(extent, count)
            if not rest and all(end.is_Integer and end % size == 0 for end in at):
                return _Parts(symbol, count, size)
    return None


def _alike(builder: ProgramBuilder, outputs: Sequence[Output]) -> dict[str, sympy.Expr]:
    """Axes that read a tensor, or a contraction's sums, as older axes do: their names, with the index along the older
    axes.

    A mean and what it is subtracted from then share their read of the row. Axes of one value, as those of an outer
    product, stay apart.
    """
    axes = builder.axes
    age = {symbol: number for number, symbol in enumerate(axes.extents)}
    loads = [s for s in builder.steps.values() if s.kind in ("load", "sums") and s.text and not s.args]
    found: dict[str, sympy.Expr] = {}
    together = {step.varies for step in builder.steps.values()}
    together |= {frozenset().union(*(symbols_of(i) for i in output.index)) for output in outputs}
    places: dict[str, list[tuple[Step, frozenset[sympy.Symbol]]]] = {}  # by tensor
    for load in loads:
        places.setdefault(load.text, []).append((load, symbols_of(load.offset)))
    for older in loads:
        shared = symbols_of(older.offset)
        for newer, symbols in places[older.text]:
            if not symbols <= shared and newer.mask == older.mask:
                for symbol, index in (axes.matched(older.offset, newer.offset) or {}).items():
                    apart = any(symbol in axes_of and axes_of & symbols_of(index) for axes_of in together)
                    if not apart and all(age[s] < age[symbol] for s in symbols_of(index)):
                        found.setdefault(symbol.name, index)
    return found


def _indices(builder: ProgramBuilder, outputs: Sequence[Output]) -> Iterable[sympy.Expr]:
    for step in builder.steps.values():
        yield step.offset
        yield from (w.index for w in step.mask)
        yield from (s.output for s in step.slides)
    for output in outputs:
        yield from output.index
    if builder.strided:
        yield from builder.contraction_index


def _build(
    graph: OpGraph,
    names: Sequence[str],
    outputs: Sequence[str],
    splits: dict[str, tuple[int, ...]],
    same: dict[str, sympy.Expr],
    parts: _Parts | None,
    two_passes: bool,
    strided: bool,
) -> tuple[ProgramBuilder, list[Output], str | None]:
    """Every output, asked for at the indices of its axes; and the value that moments are taken of."""
    nodes = [graph.node(n) for n in names]
    moments = [n for n in nodes if OPS[n.op].kind is Kind.MOMENTS]
    contractions = [n for n in nodes if OPS[n.op].kind is Kind.CONTRACTION]
    attends = len(contractions) == 2 and any(n.op == "softmax" for n in nodes)
    strided = strided or attends or (len(contractions) == 1 and reads_views(graph, contractions[0], frozenset(names)))
    if len(contractions) > 1 + attends or len(moments) > 1:
        raise NotFusable(
            "a kernel has one contraction, or two with a softmax between, and one result of moments over the batch"
        )
    if moments and any(moments[0].name in n.values for n in nodes):
        raise NotFusable("moments over the batch end a kernel")
    if any(graph.type(v).numel == 0 for n in nodes for v in (n.name, *n.values) if n.type is not None):
        raise NotFusable("the tensors are empty")
    scatters = {n.name: n for n in nodes if OPS[n.op].kind is Kind.SCATTER}
    if scatters and (
        set(outputs) != scatters.keys()
        or contractions
        or moments
        or any(v in scatters for n in nodes for v in n.values)
    ):
        raise NotFusable("a kernel that takes values in at places stores nothing else")
    builder = ProgramBuilder(graph, frozenset(names), Axes(splits), two_passes, lower, _LOOPS, same, strided)
    found: list[Output] = []
    moments_of = None
    if moments:
        source = moments[0].inputs[0]
        index = _own_index(builder, graph.type(source))
        moments_of, builder.last = builder.value(source, index), index[-1]
    for node in sorted(scatters.values(), key=lambda n: -looped(graph, n).numel):
        builder.scatters.append(OPS[node.op].lower(builder, node, _looped_index(builder, node)))
    if scatters:
        return builder, found, None
    # The largest output has the axes. The sums of a contraction have those of the reduction that reads them.
    largest_first = (
        1
        if contractions and not attends and any(OPS[n.op].kind is Kind.REDUCTION and not of_few(n) for n in nodes)
        else -1
    )
    for name in sorted(
        (o for o in outputs if OPS[graph.node(o).op].kind is not Kind.MOMENTS),
        key=lambda o: largest_first * graph.type(o).numel,
    ):
        whole = _stored_index(builder, name, builder.tensor(name, written=True))
        found += (
            Output(name, builder.value(name, index), index)
            for index in (parts.of(builder, whole) if parts else (whole,))
        )
    if builder.contraction and not found and not moments:
        raise NotFusable("a contraction stores its sums, or values computed from them")
    return builder, found, moments_of


def _looped_index(builder: ProgramBuilder, node: Node) -> Index:
    """The index of a scatter's loops, which are those of another scatter at the same places."""
    type_ = looped(builder.graph, node)
    for other in builder.scatters:
        of = builder.graph.node(other.node)
        if (
            of.inputs[1] == node.inputs[1]
            and builder.graph.type(node.inputs[1]).shape == type_.shape
            and len(other.places) == 1
        ):
            for asked, index, _ in builder.asked:
                if asked == node.inputs[1] and len(index) == len(type_.shape):
                    return index
    return _own_index(builder, type_)


def _own_index(builder: ProgramBuilder, tensor: Tensor) -> Index:
    """An index of axes of its own for each dimension; tensors of one shape share them."""
    stem = "x".join(str(s) for s in tensor.sizes())
    return tuple(builder.new_axis(f"{stem}.{d}", size) for d, size in enumerate(tensor.sizes()))


def _stored_index(builder: ProgramBuilder, name: str, tensor: Tensor) -> Index:
    """Where the tensor, or an operand of its shape, was asked for already, if that covers it; else axes of its own."""
    alike = {name, *(v for v in builder.graph.node(name).values if builder.graph.type(v).sizes() == tensor.sizes())}
    for asked, index, mask in builder.asked:
        if (
            asked in alike
            and not mask
            and all(builder.axes.covers(i, size) is not None for i, size in zip(index, tensor.sizes()))
        ):
            return index
    return _own_index(builder, tensor)
