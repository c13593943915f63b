"""The builder of a loop program: each value that is asked for at an index is one step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Sequence

import sympy

from kgen.compiler.graph.dtypes import DTYPES, is_float
from kgen.compiler.graph.graph import Node, NotFusable, Operand, OpGraph, Tensor
from kgen.compiler.graph.source import RESERVED
from kgen.compiler.loops.access import Within
from kgen.compiler.loops.expr import CHOICE, SELF, Arg, Cast, Expr, const, where
from kgen.compiler.loops.functions import FUNCTIONS
from kgen.compiler.loops.indices import Axes, Size, symbols_of
from kgen.compiler.loops.program import Contraction, Program, Slide
from kgen.compiler.lower.ranges import Range, decided
from kgen.compiler.operators.op import Deferred, Index, Kind
from kgen.compiler.operators.pointwise import map_expression
from kgen.compiler.operators.reductions import COMBINES, OF_ONE
from kgen.compiler.operators.scatters import Scattered
from kgen.compiler.operators.table import OPS

MOST_STEPS = 512  # values of one kernel; no registers hold more


@dataclass(frozen=True)
class Step:
    """One value while the program is built, before rows and columns are known."""

    kind: str  # load, map, reduce, taps of a window, running values, or the sums of a contraction
    text: str  # tensor, or kind of reduction
    args: tuple[str, ...]
    varies: frozenset[sympy.Symbol]
    offset: sympy.Expr = sympy.Integer(0)
    mask: tuple[Within, ...] = ()
    axes: tuple[sympy.Symbol, ...] = ()
    dtype: str = "float32"
    fill: float | int = 0
    expr: Expr | None = None
    part: int = 0  # which result of a reduction
    slides: tuple[Slide, ...] = ()
    reverse: bool = False


@dataclass
class ProgramBuilder:
    """Asks for values at indices, and keeps each as one step."""

    graph: OpGraph
    inside: frozenset[str]
    axes: Axes
    two_passes: bool
    lower: Callable[..., Program]  #: lowers what stands before a contraction
    loops: Mapping[Kind, Callable[[ProgramBuilder, Node, Index], str]]  #: lower a reduction, and a contraction
    same: dict[str, sympy.Expr] = field(default_factory=dict)  # new axes of reductions that other axes stand for
    strided: bool = False  # whether operands of contractions may be views, as those of attention are
    places: dict[sympy.Symbol, str] = field(default_factory=dict)  # symbols in indices that stand for steps
    steps: dict[str, Step] = field(default_factory=dict)
    known: dict[Step, str] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)
    asked: dict[tuple[str, Index], str] = field(default_factory=dict)
    mask: tuple[Within, ...] = ()
    part: str = ""  # the view that takes a part of the tensor which is loaded next
    contraction: Contraction | None = None
    contraction_index: Index = ()
    scatters: list[Scattered] = field(default_factory=list)
    apart: frozenset[sympy.Symbol] = frozenset()  # axes along which reductions of few elements are read
    last: sympy.Expr = sympy.Integer(
        0
    )  # the index of the last dimension of a contraction, or of the value that moments are of

    # Values

    def value(self, name: Operand, index: Index) -> str:
        """The step that holds the value at the index."""
        key = (name, index, self.mask)
        if key not in self.asked:
            node = self.graph.node(name) if name in self.inside else None
            self.asked[key] = self._load(name, index) if node is None else self._node(node, index)
        return self.asked[key]

    def _node(self, node: Node, index: Index) -> str:
        op = OPS[node.op]
        if op.kind in (Kind.POINTWISE, Kind.VIEW):
            return self._map(node, index) if op.kind is Kind.POINTWISE else self._view(node, index)
        if op.kind in self.loops:
            return self.loops[op.kind](self, node, index)
        if op.lower is None:
            raise NotFusable(f"{node.name} has no lowering")
        return op.lower(self, node, index)

    def tensor(self, name: str, *, written: bool = False) -> Tensor:
        """The type of a tensor that the kernel reads, or has ``written``; raises :class:`NotFusable` where it
        cannot."""
        tensor = self.graph.type(name)
        if tensor.dtype not in DTYPES:
            raise NotFusable(f"{name} is of type {tensor.dtype}")
        if any(tensor.multiples[1:]) and not (written and tensor.batch_inside):
            raise NotFusable(f"{name} follows the batch in another dimension than the first")
        return tensor

    def _load(self, name: str, index: Index) -> str:
        tensor = self.tensor(name)
        offset = self.axes.flat(index, tensor.sizes())
        return self._keep(self.part or name, self._loading(name, offset, tensor.dtype))

    def _loading(self, tensor: str, offset: sympy.Expr, dtype: str, mask: tuple[Within, ...] | None = None) -> Step:
        """The step that loads an element under the mask; a symbol that stands for a value varies as the value does."""
        mask = self.mask if mask is None else mask
        symbols = symbols_of(offset).union(*(symbols_of(w.index) for w in mask))
        if not self.places:
            return Step("load", tensor, (), symbols, offset, mask, dtype=dtype)
        args = tuple(dict.fromkeys(self.places[s] for s in sorted(self.places.keys() & symbols, key=lambda s: s.name)))
        varies = frozenset(s for s in symbols if s not in self.places).union(*(self.steps[a].varies for a in args))
        return Step("load", tensor, args, varies, offset, mask, dtype=dtype)

    def _map(self, node: Node, index: Index) -> str:
        operands = [
            self.value(i, self.broadcast(i, node.type, index)) if isinstance(i, str) else i for i in node.inputs
        ]
        # Numbers become literals; what is left is numbered anew.
        names = [o for o in operands if isinstance(o, str)]
        floats = any(is_float(self.steps[n].dtype) for n in names)
        if not floats and is_float(node.type.dtype) and not any(isinstance(o, float) for o in operands):
            names[0] = self.map(node.name, Cast(SELF, "float32"), names[:1])
        numbers = iter(range(len(names)))
        dtype = "float32" if floats or is_float(node.type.dtype) else "int64"
        given = [Arg(next(numbers)) if isinstance(o, str) else const(o, dtype) for o in operands]
        return self.map(node.name, map_expression(OPS[node.op], node, given), names, node.type.dtype)

    # The parts of lowerings of values at other indices

    def within(self, index: sympy.Expr, size: Size) -> tuple[Within, ...]:
        """The condition that an index lies inside; none where it always does."""
        low, high = self.axes.bounds(index)
        below = low < 0
        above = isinstance(size, int) and (high is None or high >= size)
        return (Within(index, size, below, above),) if below or above else ()

    def outside(self, index: sympy.Expr, size: Size) -> bool:
        """Whether an index never lies inside."""
        low, high = self.axes.bounds(index)
        return (isinstance(size, int) and low >= size) or (high is not None and high < 0)

    def masked(self, mask: tuple[Within, ...], value: Callable[[], str]) -> str:
        """A value whose loads are done where the conditions hold."""
        before, self.mask = self.mask, (*self.mask, *mask)
        found = value()
        self.mask = before
        return found

    def holds(self, mask: tuple[Within, ...]) -> str:
        """Whether conditions hold, as a value."""
        return self._keep("within", self._loading("", sympy.Integer(1), "bool", mask))

    def choose(self, node: Node, index: sympy.Expr, size: Size, value: str, other: str) -> str:
        """One value where an index lies inside, else the other."""
        if self.outside(index, size):
            return other
        mask = self.within(index, size)
        return self.map(node.name, CHOICE, [self.holds(mask), value, other], node.type.dtype) if mask else value

    def filled(
        self, node: Node, bounds: Sequence[tuple[sympy.Expr, Size]], value: Callable[[], str], number: float | int
    ) -> str:
        """A value where each index lies inside, else a number."""
        if any(self.outside(index, size) for index, size in bounds):
            return self.number(node.name, number, node.type.dtype)
        mask = tuple(w for index, size in bounds for w in self.within(index, size))
        found = self.masked(mask, value)
        step, dtype = self.steps[found], node.type.dtype
        if step.kind == "load" and step.mask == mask and step.dtype == dtype:
            return self._keep(node.name, replace(step, fill=number))
        chosen = where(Arg(0), Arg(1), const(number, dtype))
        return self.map(node.name, chosen, [self.holds(mask), found], dtype) if mask else found

    def place(self, stem: str, value: str, size: int, dtype: str = "int64", *, kept: bool = False) -> sympy.Expr:
        """An integer value as an index below ``size``: what lies outside is the nearest place inside.

        Terms of offsets are computed in its ``dtype``. The index of axes that a value holds stands for it, unless the
        value is ``kept``.
        """
        inside = where(SELF < 0, 0, where(SELF < size, SELF, size - 1))
        found = self.map(stem, inside, [value], dtype)
        step = self.steps[found]
        if step.kind == "load" and not (step.text or step.mask or kept):
            return step.offset
        symbol = sympy.Symbol(found, integer=True, nonnegative=True)
        self.places[symbol], self.axes.places[symbol] = symbol.name, size
        return symbol

    def number(self, stem: str, value: float | int, dtype: str) -> str:
        """A number as a value."""
        return self._keep(stem, Step("map", "", (), frozenset(), dtype=dtype, expr=const(value, dtype)))

    def position(self, stem: str, index: sympy.Expr, dtype: str) -> str:
        """An index as a value."""
        return self._keep(stem, self._loading("", index, dtype, ()))

    def _view(self, node: Node, index: Index) -> str:
        source = self.graph.type(node.inputs[0])
        before, self.part = self.part, node.name if OPS[node.op].part else self.part
        found = self.value(node.inputs[0], tuple(OPS[node.op].index(self.axes, source, node, index)))
        self.part = before
        return found

    # The parts of lowerings

    def map(self, stem: str, expression: Expr, args: Sequence[str], dtype: str = "float32") -> str:
        """A pointwise map over values; a value's own name where it changes nothing."""
        expression = decided(self, expression, args)
        if expression == SELF:
            return args[0]
        varies = frozenset().union(*(self.steps[a].varies for a in args))
        return self._keep(stem, Step("map", "", tuple(args), varies, dtype=dtype, expr=expression))

    def reduced_index(self, node: Node, index: Index, dims: tuple[int, ...], sizes: tuple[Size, ...]) -> Index:
        """The index with the reduced dimensions running: over the axes that they run over already, or over new ones."""
        found = list(index)
        others = frozenset().union(*(symbols_of(i) for d, i in enumerate(index) if d not in dims))
        for d in dims:
            covered = self.axes.covers(index[d], sizes[d])
            if covered is None or others & set(covered):
                found[d] = self.new_axis(f"{node.inputs[0]}.{d}", sizes[d], others)
        return tuple(found)

    def new_axis(self, name: str, size: Size, others: frozenset[sympy.Symbol] = frozenset()) -> sympy.Expr:
        """An index over so many elements: over axes that are known to read the same ones, or over a new one."""
        known = self.same.get(name)
        if known is not None and self.axes.covers(known, size) and not symbols_of(known) & others:
            return known
        return self.axes.index(name, size)

    def reduce(
        self, stem: str, kind: str, values: Sequence[Deferred], index: Index, dims: tuple[int, ...]
    ) -> tuple[str, ...]:
        """The results of a reduction of the values over the axes that the index has in ``dims``."""
        over = frozenset().union(*(symbols_of(index[d]) for d in dims))
        args = tuple(value(index) for value in values)
        if not over:
            return tuple(
                self.map(f"{stem}_{part}", text, args[:1])
                for part, text in zip(COMBINES[kind], OF_ONE.get(kind, (SELF,)))
            )
        varies = frozenset().union(*(self.steps[a].varies for a in args))
        step = Step(
            "reduce",
            kind,
            args,
            varies - over,
            axes=tuple(sorted(over, key=lambda s: s.name)),
            dtype=self.steps[args[0]].dtype,
        )
        if not over <= varies:
            raise NotFusable(f"{stem} reduces values that are the same along a reduced axis")
        return tuple(
            self._keep(f"{stem}_{part}", self.part_of(step, number)) for number, part in enumerate(COMBINES[kind])
        )

    def part_of(self, step: Step, number: int) -> Step:
        """One result of a reduction, of which ``step`` is another."""
        dtype = "int64" if COMBINES[step.text][number] == "at" else self.steps[step.args[0]].dtype
        return replace(step, part=number, dtype=dtype)

    def broadcast(self, name: Operand, to: Tensor, index: Index) -> Index:
        """The index at which an operand is read that is broadcast to a shape."""
        if not isinstance(name, str):
            return ()
        sizes = self.graph.type(name).sizes()
        behind = index[len(index) - len(sizes) :] if sizes else ()
        if len(sizes) > len(index):
            raise NotFusable(f"{name} has more dimensions than the result")
        return tuple(sympy.Integer(0) if size == 1 else i for size, i in zip(sizes, behind))

    def step(self, stem: str, *fields: Any, **more: Any) -> str:
        """A further step, under a name that begins so."""
        return self._keep(stem, Step(*fields, **more))

    def floats(self, node: Node, arg: str) -> str:
        """The value; raises :class:`NotFusable` where it is not of a floating dtype."""
        if not is_float(self.steps[arg].dtype):
            raise NotFusable(f"{node.name} takes values of type {self.steps[arg].dtype}")
        return arg

    def _keep(self, stem: str, step: Step) -> str:
        known = self.known.get(step)
        if known is None:
            if len(self.steps) == MOST_STEPS:
                raise NotFusable(f"it has more than {MOST_STEPS} values")
            name, count = stem, 1
            while name in self.steps or name in RESERVED or name in FUNCTIONS:
                count += 1
                name = f"{stem}_{count}"
            self.steps[name] = step
            self.known[step] = known = name
        return known
