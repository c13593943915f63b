"""Loop programs: the loops of one kernel, as loads, pointwise maps, reductions and stores over axes.

    gelu + softmax of x[row, col]                        level
    load    x        at row * 8192 + col                 element
    map     gelu     = gelu(x)                           element
    reduce  max, sum = online softmax of gelu over col   row
    map     softmax  = exp(gelu - max) / sum             element
    store   softmax  at row * 8192 + col

A value is a function of axes. A reduction takes its axes away, so a later map may combine the result with values that
still vary over them. Views are index expressions (:mod:`kgen.compiler.indices`) and cost nothing. A kernel runs over
*rows*, the axes that no reduction takes away, and *columns*, those that reductions run over. Without a reduction the
columns are all axes but the first.

:func:`lower` asks for each output at the indices of its axes. A node asks for its operands at the indices that it needs
them at, down to tensors from outside, which are loaded. A value that is asked for twice is computed once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Callable, Iterable, Iterator, Sequence

import sympy

from kgen.compiler.convolutions import Convolution, convolution
from kgen.compiler.dtypes import DTYPES, HALF, is_float
from kgen.compiler.graph import Node, NotFusable, OpGraph, Operand, Tensor
from kgen.compiler.indices import COLUMNS, Axes, Size, spell, times
from kgen.compiler.op import Kind
from kgen.compiler.operators import COMBINES, OF_ONE, OPS, map_expression
from kgen.compiler.pointwise import FUNCTIONS, c_float, literal
from kgen.compiler.scans import Scan
from kgen.compiler.source import RESERVED
from kgen.compiler.windows import Slide, Window

ELEMENT, ROW = "element", "row"

MOST_NODES, MOST_STEPS = 128, 512  # nodes and values of one kernel; a loop that forward unrolls has more, and no registers hold them
MOST_PARTS = 4  # parts of an axis with statements of their own
MOST_VISITS = 2  # visits of an element by the loops of a reduction; more are work that is done again
MOST_MADE = 1 << 16  # elements of a reduction that reads no tensor
_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Loop:
    """One axis with its extent."""

    symbol: sympy.Symbol
    extent: Size


@dataclass(frozen=True)
class Within:
    """The condition ``0 <= index < size`` of a masked load; ``below`` and ``above`` say which half may fail."""

    index: sympy.Expr
    size: Size
    below: bool = True
    above: bool = True


@dataclass(frozen=True)
class Place:
    """Where a contiguous tensor is read or written, by the row and the column of an element.

    ``row_loops`` and ``col_loops`` are the axes that a row and a column number are made of, the innermost last.
    ``mask`` lists the conditions under which the element is there. ``spelled`` gives axes a spelling of their own, for
    schedules that do not count rows and columns.
    """

    offset: sympy.Expr
    row_loops: tuple[Loop, ...]
    col_loops: tuple[Loop, ...]
    mask: tuple[Within, ...] = ()
    spelled: tuple[tuple[sympy.Symbol, str], ...] = ()

    def index(self, row: str = "row", col: str = "col", at: Callable[[str], str] = str, beside: str = "", ahead: str = "") -> str:
        """The offset as a C expression of ``row`` and ``col``; ``at`` spells values of the program that it holds.

        ``beside`` counts rows behind that row along their innermost axis, ``ahead`` columns along theirs.
        """
        names = {s: at(s.name) for s in self.symbols} | self._names(row, col)
        offset = self.offset
        for number, loops in ((row, self.row_loops), (col, self.col_loops)):
            if not any(loop.symbol in dict(self.spelled) for loop in loops):
                offset = _with_whole(offset, number, loops, names)
        for more, number, loops in ((beside, row, self.row_loops), (ahead, col, self.col_loops)):
            inner = (loops[-1].symbol.name, f"whole {number}") if more and loops else ()
            names |= {symbol: f"({text} + {more})" for symbol, text in names.items() if symbol.name in inner}
        return spell(offset, names)

    def condition(self, row: str = "row", col: str = "col") -> str:
        """The mask as a C expression; empty where there is none."""
        names = self._names(row, col)
        parts = []
        for within in self.mask:
            text = spell(within.index, names)
            parts += [f"{text} >= 0"] if within.below else []
            parts += [f"{text} < {within.size}"] if within.above else []
        return " && ".join(parts)

    @property
    def symbols(self) -> frozenset[sympy.Symbol]:
        """The axes that the place depends on."""
        return frozenset().union(self.offset.free_symbols, *(w.index.free_symbols for w in self.mask))

    @property
    def full(self) -> bool:
        """Whether the place depends on every axis of the loops; see :attr:`injective`."""
        return {loop.symbol for loop in (*self.row_loops, *self.col_loops)} <= self.offset.free_symbols

    @property
    def injective(self) -> bool:
        """Whether each element of the loops is sure to have an element of the tensor to itself: each step passes all smaller ones.

        A dependence on every axis is not enough: ``row + col`` is one element for many pairs.
        """
        steps = {loop: self.offset.coeff(loop.symbol) for loop in (*self.row_loops, *self.col_loops) if loop.extent != 1}
        rest = self.offset - sum(step * loop.symbol for loop, step in steps.items())
        if rest.free_symbols or not all(step.is_Integer for step in steps.values()):
            return False
        reach: int | None = 0  # how far the smaller steps lead; ``None`` is any distance
        for loop, step in sorted(steps.items(), key=lambda pair: abs(pair[1])):
            if reach is None or abs(step) <= reach:
                return False
            reach = reach + int(abs(step)) * (loop.extent - 1) if isinstance(loop.extent, int) else None
        return True

    def mode(self, width: int, along: str = "col") -> str:
        """How ``width`` neighbouring columns, or rows, are read: ``vector``, ``splat`` (all the same element) or ``gather``."""
        if width == 1:
            return "splat"
        loops = self.col_loops if along == "col" else self.row_loops
        inner = loops[-1] if loops else None
        if inner is None or (inner.extent if isinstance(inner.extent, int) else inner.extent.multiple) % width:
            return "gather" if self.symbols & {loop.symbol for loop in loops} else "splat"
        if inner.symbol not in self.symbols:
            return "splat"
        return "vector" if self.steps_by_one(inner.symbol, width) else "gather"

    def steps_by_one(self, symbol: sympy.Symbol, width: int) -> bool:
        """Whether ``width`` neighbours along the axis are one vector, from a multiple of ``width`` on."""
        return self._steps_by(symbol, 1, 0, width)

    def _steps_by(self, symbol: sympy.Symbol, count: int, number: int, width: int) -> bool:
        """Whether ``width`` neighbours along the axis are every ``count``-th element of a vector, from the ``number``-th on."""
        rest = self.offset - number - count * symbol
        if rest.has(symbol) or any(symbol in w.index.free_symbols for w in self.mask):
            return False
        return all(int(term.as_coeff_Mul()[0]) % (count * width) == 0 for term in sympy.Add.make_args(rest))

    @property
    def pairs_alternate(self) -> bool:
        """Whether two neighbouring rows are a vector in every second column, and begin one element behind one in the others."""
        rows, cols = self.row_loops, self.col_loops
        if self.mask or len(cols) != 1 or not rows or not self.symbols <= {loop.symbol for loop in (*rows, *cols)}:
            return False
        return replace(self, offset=self.offset - cols[0].symbol).steps_by_one(rows[-1].symbol, 2)

    def interleaved(self, width: int) -> tuple[int, int]:
        """``(count, number)`` where neighbouring columns are every ``count``-th element of a vector, from the ``number``-th on.

        The first numbers of pairs lie so. ``(1, 0)`` where ``width`` columns do not.
        """
        inner = self.col_loops[-1] if self.col_loops else None
        if inner is None or not isinstance(inner.extent, int) or inner.extent % width:
            return 1, 0
        count = self.offset.coeff(inner.symbol)
        if not count.is_Integer or not 1 < count <= MOST_PARTS:
            return 1, 0
        count, number = int(count), int(self.offset.as_coeff_Add()[0] % count)
        return (count, number) if self._steps_by(inner.symbol, count, number, width) else (1, 0)

    def _names(self, row: str, col: str) -> dict[sympy.Symbol, str]:
        fixed = [loop for loop in self.col_loops if isinstance(loop.extent, int)]
        steps = [(self.offset.coeff(loop.symbol), loop.extent - 1) for loop in fixed]  # a step with a name is no int in C either
        if sum(abs(int(step)) * last for step, last in steps if step.is_Integer) > _INT_MAX:
            col = f"static_cast<long long>({col.removeprefix('(').removesuffix(')')})"
        return {**digits(row, self.row_loops), **digits(col, self.col_loops), **dict(self.spelled)}


def _with_whole(offset: sympy.Expr, number: str, loops: Sequence[Loop], names: dict[sympy.Symbol, str]) -> sympy.Expr:
    """The offset with the number of a row or column itself, where it takes all digits of it in their order."""
    if len(loops) < 2:
        return offset
    stride, inner, whole = offset.coeff(loops[-1].symbol), 1, sympy.Integer(0)
    for loop in reversed(loops):
        whole += inner * loop.symbol
        inner *= loop.extent if isinstance(loop.extent, int) else 1
    rest = sympy.expand(offset - stride * whole)
    if stride == 0 or rest.free_symbols & {loop.symbol for loop in loops}:
        return offset
    symbol = sympy.Symbol(f"whole {number}", integer=True)
    names[symbol] = names[loops[-1].symbol].partition(" % ")[0]
    return rest + stride * symbol


def digits(number: str, loops: Sequence[Loop]) -> dict[sympy.Symbol, str]:
    """Each axis as a digit of the mixed radix number that counts them all."""
    found, inner = {}, 1
    for at, loop in reversed(list(enumerate(loops))):
        text = number if inner == 1 else f"{number} / {inner}"
        if at:
            text = f"{text} % {loop.extent}"
        found[loop.symbol] = text
        inner *= loop.extent if isinstance(loop.extent, int) else 1
    return found


@dataclass(frozen=True)
class Load:
    """A tensor read for each element or row. ``args`` are values of the program that the offset holds.

    Without a ``tensor``, the offset itself is the value; of dtype bool, whether the mask holds.
    """

    name: str
    tensor: str
    access: Place
    level: str
    dtype: str = "float32"
    fill: str = "0.0f"  #: in C; the value where the mask does not hold
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Map:
    """``name = expression`` over ``args``, at ``level``."""

    name: str
    expression: str
    args: tuple[str, ...]
    level: str
    dtype: str = "float32"


@dataclass(frozen=True)
class Reduce:
    """Row values from element values: ``kind`` is a key of :data:`kgen.compiler.operators.COMBINES`."""

    names: tuple[str, ...]
    kind: str
    args: tuple[str, ...]
    dtypes: tuple[str, ...] = ("float32",)  #: of each result

    @property
    def arg(self) -> str:
        return self.args[0]


@dataclass(frozen=True)
class Store:
    """A value of dtype ``of`` written to the tensor of that name, whose elements are of ``dtype``.

    With ``into``, that is a buffer of the module, which is updated.
    """

    tensor: str
    arg: str
    level: str
    access: Place
    dtype: str = "float32"
    of: str = "float32"
    into: str = ""


@dataclass(frozen=True)
class Contraction:
    """The sums that a program begins with: rows of ``x`` times rows of ``weight``, both of ``k`` elements.

    ``name`` is the sums' name in the program. ``weight`` is the right operand: a weight of the module, or a value that
    each call computes. With ``transposed``, its columns stand for its rows, and with ``turned`` those of ``x``. In a batched contraction, each ``group`` rows
    of ``x`` have a matrix of ``weight`` to themselves, of ``matrices`` at the captured batch. Else all rows share one.

    Both are of ``dtype``, and the sums of float32. With a ``window``, the sums are a convolution of images ``x``: rows of the program are channels of images, columns pixels.
    With ``across``, rows are pixels of images, columns channels. Where the sums are pooled, pixels are windows of them. ``before`` computes ``x`` from other tensors, as images by
    the elements of one.
    """

    name: str
    x: str
    weight: str
    k: int
    transposed: bool
    group: int | None = None
    matrices: int = 1
    window: Convolution | None = None
    turned: bool = False
    across: bool = False
    before: Program | None = None
    dtype: str = "float32"

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that the operands are made of."""
        return (*(self.before.tensors if self.before else (self.x,)), self.weight)

    def formula(self, n: int) -> str:
        """The formula of the sums, of ``n`` columns, in terms of matrices."""
        if self.group is None:
            return f"y[rows, {n}] = x[rows, {self.k}] . w[{n}, {self.k}]^T"
        return f"For each of rows / {self.group} matrices, y[{self.group}, {n}] = x[{self.group}, {self.k}] . w[{n}, {self.k}]^T"


@dataclass(frozen=True)
class Program:
    """The loops of one kernel: ``row_size`` rows of ``col_size`` columns. ``moments_of`` is the value
    whose moments over the rows end the kernel.

    ``rows`` and ``cols`` count at the captured batch, which rows or columns may follow.
    """

    rows: int
    cols: int
    row_size: Size
    col_size: Size
    row_loops: tuple[Loop, ...]
    col_loops: tuple[Loop, ...]
    loads: tuple[Load, ...]
    steps: tuple[Map | Load | Window | Scan | Reduce, ...]  #: a load among them has arguments
    stores: tuple[Store, ...]
    moments_of: str | None = None
    contraction: Contraction | None = None
    span: int = 0  #: neighbouring columns of a contraction that reductions take together; row values are then theirs

    @property
    def reductions(self) -> tuple[Reduce, ...]:
        return tuple(s for s in self.steps if isinstance(s, Reduce))

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(s for s in self.steps if isinstance(s, Window))

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(s for s in self.steps if isinstance(s, Scan))

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that are read, each once, in the order of the kernel's arguments."""
        return tuple(dict.fromkeys(load.tensor for load in self.reads))

    @property
    def operands(self) -> tuple[str, ...]:
        """The tensors that are read, with those of the contraction."""
        return (*self.tensors, *(self.contraction.reads if self.contraction else ()))

    @cached_property
    def reads(self) -> tuple[Load, ...]:
        """Every load of a tensor: those in front, those whose index holds a value, and those within windows."""
        inner = [x for s in self.steps for x in (s.body if isinstance(s, Window) else (s,)) if isinstance(x, Load)]
        before = self.contraction.before.reads if self.contraction and self.contraction.before else ()
        return tuple(load for load in (*before, *self.loads, *inner) if load.tensor)

    @cached_property
    def tensor_dtypes(self) -> dict[str, str]:
        """The dtype of each tensor that is read or written."""
        return {x.tensor: x.dtype for x in (*self.stores, *self.reads)}

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each value."""
        found = {load.name: load.dtype for load in self.loads}
        if self.contraction:
            found[self.contraction.name] = "float32"
        for step in self.steps:
            found |= dict(zip(step.names, step.dtypes)) if isinstance(step, Reduce) else {step.name: step.dtype}
        return found

    @property
    def plain(self) -> bool:
        """Whether every load is of a tensor, without a mask and without values in its index."""
        return all(x.tensor for x in self.loads) and not any(x.access.mask or x.args for x in self.reads)

    @property
    def looks_up(self) -> bool:
        """Whether the index of a load holds a value."""
        return any(x.args for x in self.reads)

    @property
    def floats(self) -> bool:
        """Whether every tensor that is read or written is of a floating dtype."""
        return all(map(is_float, self.tensor_dtypes.values()))

    @property
    def half(self) -> bool:
        """Whether a tensor that is read or written is of a half type."""
        of = self.contraction
        operands = {of.dtype, *(of.before.tensor_dtypes.values() if of.before else ())} if of else set()
        return not operands.union(self.tensor_dtypes.values()).isdisjoint(HALF)

    @property
    def reduces_floats(self) -> bool:
        """Whether every reduction is one of floating values."""
        return all(is_float(r.dtypes[0]) for r in self.reductions)

    @property
    def size(self) -> Size:
        """The extent that a launcher takes: the number of columns where these follow the batch, else of rows."""
        return self.row_size if isinstance(self.col_size, int) else self.col_size

    @property
    def wide(self) -> bool:
        """Whether the number of a column may not fit an ``int``."""
        return not isinstance(self.col_size, int) or self.cols > _INT_MAX

    @property
    def collapses(self) -> bool:
        """Whether each element is used up at once, in one reduction or several: what is stored are row values."""
        made = {name for r in self.reductions for name in r.names}
        for step in self.steps:
            made |= {step.name} if not isinstance(step, Reduce) and made & set(step.args) else set()
        return all(s.level == ROW for s in self.stores) and not any(a in made for r in self.reductions for a in r.args)

    @property
    def strided(self) -> bool:
        """Whether neighbouring rows lie side by side in what is read, and neighbouring columns do not."""
        loops = {loop.symbol for loop in (*self.row_loops, *self.col_loops)}
        full = [load.access.offset for load in self.loads if load.tensor and loops <= load.access.symbols]
        if not full or not self.row_loops or not self.col_loops:
            return False
        row, col = self.row_loops[-1].symbol, self.col_loops[-1].symbol
        return all(offset.coeff(row) == 1 and offset.coeff(col) != 1 for offset in full)

    def reads_in_place(self, load: Load, store: Store) -> bool:
        """Whether each element is read exactly where its own result is written, and nowhere else by this load."""
        same = load.access.offset == store.access.offset and bool(load.tensor) and not load.access.mask
        return same and load.access.injective


@dataclass(frozen=True)
class _Step:
    """One value while the program is built, before rows and columns are known."""

    kind: str  # load, map, reduce, taps of a window, running values, or the sums of a contraction
    text: str  # expression, tensor, or kind of reduction
    args: tuple[str, ...]
    varies: frozenset[sympy.Symbol]
    offset: sympy.Expr = sympy.Integer(0)
    mask: tuple[Within, ...] = ()
    axes: tuple[sympy.Symbol, ...] = ()
    dtype: str = "float32"
    fill: str = "0.0f"
    part: int = 0  # which result of a reduction
    slides: tuple[Slide, ...] = ()
    reverse: bool = False


Index = tuple[sympy.Expr, ...]
#: A value as a function of an index of its node's input; see :class:`kgen.compiler.operators.Lowering`.
Deferred = Callable[[Index], str]


@dataclass
class _Lowering:
    """The means of lowering one reduction; implements :class:`kgen.compiler.operators.Lowering`."""

    builder: _Builder
    node: Node
    dims: tuple[int, ...]
    sizes: tuple[Size, ...]
    two_passes: bool

    @property
    def count(self) -> str:
        sizes = [self.sizes[d] for d in self.dims]
        return c_float(math.prod(sizes)) if all(isinstance(s, int) for s in sizes) else "static_cast<float>(cols)"

    @property
    def place(self) -> Deferred:
        """The number of an element among those that are reduced."""
        sizes = [self.sizes[d] for d in self.dims]
        stem = f"{self.node.name}_place"
        return lambda index: self.builder.position(stem, self.builder.axes.flat([index[d] for d in self.dims], sizes), "int64")

    def map(self, expression: str, *values: Deferred, name: str = "") -> Deferred:
        stem = f"{self.node.name}_{name}" if name else self.node.name
        return lambda index: self.builder.map(stem, expression, [v(index) for v in values])

    def reduce(self, kind: str, *values: Deferred) -> Deferred | tuple[Deferred, ...]:
        def part(number: int) -> Deferred:
            return lambda index: self.builder.reduce(
                self.node.name, kind, values, self.builder.reduced_index(self.node, index, self.dims, self.sizes), self.dims
            )[number]

        parts = tuple(part(number) for number in range(len(COMBINES[kind])))
        return parts if len(parts) > 1 else parts[0]


@dataclass
class _Builder:
    """Asks for values at indices, and keeps each as one step."""

    graph: OpGraph
    inside: frozenset[str]
    axes: Axes
    two_passes: bool
    same: dict[str, sympy.Expr] = field(default_factory=dict)  # new axes of reductions that other axes stand for
    places: dict[sympy.Symbol, str] = field(default_factory=dict)  # symbols in indices that stand for steps
    steps: dict[str, _Step] = field(default_factory=dict)
    known: dict[_Step, str] = field(default_factory=dict)
    asked: dict[tuple[str, Index], str] = field(default_factory=dict)
    mask: tuple[Within, ...] = ()
    part: str = ""  # the view that takes a part of the tensor which is loaded next
    contraction: Contraction | None = None
    contraction_index: Index = ()
    last: sympy.Expr = sympy.Integer(0)  # the index of the last dimension of a contraction, or of the value that moments are of

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
        handler = {Kind.POINTWISE: self._map, Kind.REDUCTION: self._row, Kind.CONTRACTION: self._contraction, Kind.VIEW: self._view}.get(op.kind)
        if handler:
            return handler(node, index)
        if op.lower is None:
            raise NotFusable(f"{node.name} has no lowering")
        return op.lower(self, node, index)

    def tensor(self, name: str, *, written: bool = False) -> Tensor:
        """The type of a tensor that the kernel reads, or has ``written``; raises :class:`NotFusable` where it cannot."""
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

    def _loading(self, tensor: str, offset: sympy.Expr, dtype: str, mask: tuple[Within, ...] | None = None) -> _Step:
        """The step that loads an element under the mask; a symbol that stands for a value varies as the value does."""
        mask = self.mask if mask is None else mask
        symbols = offset.free_symbols.union(*(w.index.free_symbols for w in mask))
        args = tuple(dict.fromkeys(self.places[s] for s in sorted(symbols, key=str) if s in self.places))
        varies = frozenset(s for s in symbols if s not in self.places).union(*(self.steps[a].varies for a in args))
        return _Step("load", tensor, args, varies, offset, mask, dtype=dtype, fill=literal(0, dtype))

    def _map(self, node: Node, index: Index) -> str:
        operands = [self.value(i, self.broadcast(i, node.type, index)) if isinstance(i, str) else i for i in node.inputs]
        # Numbers become literals; what is left is numbered anew.
        names = [o for o in operands if isinstance(o, str)]
        floats = any(is_float(self.steps[n].dtype) for n in names)
        if not floats and is_float(node.type.dtype) and not any(isinstance(o, float) for o in operands):
            names[0] = self.map(node.name, "static_cast<float>({0})", names[:1])
        numbers = iter(range(len(names)))
        dtype = "float32" if floats or is_float(node.type.dtype) else "int64"
        spelled = [f"{{{next(numbers)}}}" if isinstance(o, str) else literal(o, dtype) for o in operands]
        return self.map(node.name, map_expression(node, spelled), names, node.type.dtype)

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
        return self.map(node.name, "{0} ? {1} : {2}", [self.holds(mask), value, other], node.type.dtype) if mask else value

    def filled(self, node: Node, bounds: Sequence[tuple[sympy.Expr, Size]], value: Callable[[], str], number: float | int) -> str:
        """A value where each index lies inside, else a number."""
        if any(self.outside(index, size) for index, size in bounds):
            return self.number(node.name, number, node.type.dtype)
        mask = tuple(w for index, size in bounds for w in self.within(index, size))
        found = self.masked(mask, value)
        step, dtype = self.steps[found], node.type.dtype
        if step.kind == "load" and step.mask == mask and step.dtype == dtype:
            return self._keep(node.name, replace(step, fill=literal(number, dtype)))
        text = f"{{0}} ? {{1}} : {literal(number, dtype)}"
        return self.map(node.name, text, [self.holds(mask), found], dtype) if mask else found

    def place(self, stem: str, value: str, size: int) -> sympy.Expr:
        """An integer value as an index below ``size``: what lies outside is the nearest place inside."""
        inside = f"{{0}} < 0 ? 0 : ({{0}} < {size} ? {{0}} : {size - 1})"
        symbol = sympy.Symbol(self.map(stem, inside, [value], "int64"), integer=True, nonnegative=True)
        self.places[symbol] = symbol.name
        return symbol

    def number(self, stem: str, value: float | int, dtype: str) -> str:
        """A number as a value."""
        return self._keep(stem, _Step("map", literal(value, dtype), (), frozenset(), dtype=dtype))

    def position(self, stem: str, index: sympy.Expr, dtype: str) -> str:
        """An index as a value."""
        return self._keep(stem, self._loading("", index, dtype, ()))

    def _view(self, node: Node, index: Index) -> str:
        source = self.graph.type(node.inputs[0])
        before, self.part = self.part, node.name if OPS[node.op].part else self.part
        found = self.value(node.inputs[0], tuple(OPS[node.op].index(self.axes, source, node, index)))
        self.part = before
        return found

    def _row(self, node: Node, index: Index) -> str:
        source = self.graph.type(node.inputs[0])
        rank = len(source.shape)
        dims = tuple(sorted(d % rank for d in node["dims"]))
        if len(node.type.shape) != rank:  # reduced dimensions are dropped: they stand as 0
            rest = iter(index)
            index = tuple(sympy.Integer(0) if d in dims else next(rest) for d in range(rank))
        ctx = _Lowering(self, node, dims, source.sizes(), self.two_passes)

        def operand(name: Operand) -> Deferred:
            return lambda at: self.value(name, self.broadcast(name, source, at))

        return OPS[node.op].lower(ctx, node, *map(operand, node.inputs))(index)

    def _contraction(self, node: Node, index: Index) -> str:
        """A contraction of rows with a matrix, or a batch of them, and its bias as a map behind it."""
        if not self.places.keys().isdisjoint(index):
            raise NotFusable(f"the result of {node.name} is read at places that are values")
        x, weight, *bias = node.inputs
        rows, matrix = self.tensor(x), self.tensor(weight)
        if len(rows.shape) < 2 or len(matrix.shape) < 2 or not rows.numel or not matrix.numel:
            raise NotFusable(f"{node.name} is no contraction of rows with a matrix")
        if rows.dtype != matrix.dtype:
            raise NotFusable(f"{node.name} has operands of two dtypes")
        window = convolution(self.graph, node)
        if window and self.contraction_index not in ((), index):
            raise NotFusable("a kernel reads the sums of a convolution at one place")
        batched = len(matrix.shape) > 2 and not window
        if batched and rows.sizes()[:-2] != matrix.sizes()[:-2]:
            raise NotFusable(f"{node.name} has other matrices than batches of rows")
        if not batched and matrix.batched:
            raise NotFusable(f"{node.name} has a matrix that follows the batch")
        if window and not self.graph.is_weight(weight):
            raise NotFusable(f"the kernel of {node.name} is no weight")
        (x, turned), (weight, other) = ((name, False) if window else self._turned(name) for name in (x, weight))
        before = self._before(x, window) if window and x in self.inside else None
        if weight in self.inside or (x in self.inside and before is None):
            raise NotFusable(f"an operand of {node.name} is made in the same kernel")
        self.contraction_index, self.last = index, sympy.Add(*index[2:]) if window else index[-1]
        self.contraction = Contraction(
            f"{node.name}_sum",
            x,
            weight,
            window.taps * window.channels_in if window else rows.shape[-1],
            transposed=(node.op != "linear") != other,
            group=rows.shape[-2] if batched else None,
            matrices=matrix.numel // (matrix.shape[-1] * matrix.shape[-2]),
            window=window,
            turned=turned,
            before=before,
            dtype=rows.dtype,
        )
        varies = frozenset().union(*(i.free_symbols for i in index))
        found = self._keep(self.contraction.name, _Step("sums", node.name, (), varies, self.axes.flat(index, node.type.sizes())))
        for value in bias:
            at = (index[1],) if window else self.broadcast(value, node.type, index)
            found = self.map(node.name, "{0} + {1}", [found, self.value(value, at)])
        return found

    def _before(self, x: str, window: Convolution) -> Program | None:
        """The pointwise program that makes the images of a convolution; ``None`` where they are made otherwise."""
        names, waiting = set(), [x]
        while waiting:
            name = waiting.pop()
            if name in self.inside and name not in names:
                names.add(name)
                waiting += self.graph.node(name).values
        found = lower(self.graph, [n.name for n in self.graph.nodes if n.name in names], [x])
        pointwise = all(isinstance(step, Map) for step in found.steps) and not found.contraction and found.plain and found.floats
        return found if pointwise and found.cols == window.groups * window.channels_in * window.pixels_in else None

    def _turned(self, name: str) -> tuple[str, bool]:
        """An operand of a contraction, and whether the kernel reads it through a transpose of its last two dimensions."""
        node = self.graph.node(name) if name in self.inside else None
        if node is None or node.op != "permute":
            return name, False
        order = node["dims"]
        swapped = order == (*range(len(order) - 2), len(order) - 1, len(order) - 2)
        return (node.values[0], True) if swapped else (name, False)

    # The parts of lowerings

    def map(self, stem: str, expression: str, args: Sequence[str], dtype: str = "float32") -> str:
        """A pointwise map over values; a value's own name where it changes nothing."""
        if expression == "{0}":
            return args[0]
        varies = frozenset().union(*(self.steps[a].varies for a in args))
        return self._keep(stem, _Step("map", expression, tuple(args), varies, dtype=dtype))

    def reduced_index(self, node: Node, index: Index, dims: tuple[int, ...], sizes: tuple[Size, ...]) -> Index:
        """The index with the reduced dimensions running: over the axes that they run over already, or over new ones."""
        found = list(index)
        others = frozenset().union(*(i.free_symbols for d, i in enumerate(index) if d not in dims))
        for d in dims:
            covered = self.axes.covers(index[d], sizes[d])
            if covered is None or others & set(covered):
                found[d] = self.new_axis(f"{node.inputs[0]}.{d}", sizes[d], others)
        return tuple(found)

    def new_axis(self, name: str, size: Size, others: frozenset[sympy.Symbol] = frozenset()) -> sympy.Expr:
        """An index over so many elements: over axes that are known to read the same ones, or over a new one."""
        known = self.same.get(name)
        if known is not None and self.axes.covers(known, size) and not known.free_symbols & others:
            return known
        return self.axes.index(name, size)

    def reduce(self, stem: str, kind: str, values: Sequence[Deferred], index: Index, dims: tuple[int, ...]) -> tuple[str, ...]:
        """The results of a reduction of the values over the axes that the index has in ``dims``."""
        over = frozenset().union(*(index[d].free_symbols for d in dims))
        args = tuple(value(index) for value in values)
        if not over:
            return tuple(self.map(f"{stem}_{part}", text, args[:1]) for part, text in zip(COMBINES[kind], OF_ONE.get(kind, ("{0}",))))
        varies = frozenset().union(*(self.steps[a].varies for a in args))
        step = _Step("reduce", kind, args, varies - over, axes=tuple(sorted(over, key=str)), dtype=self.steps[args[0]].dtype)
        if not over <= varies:
            raise NotFusable(f"{stem} reduces values that are the same along a reduced axis")
        return tuple(self._keep(f"{stem}_{part}", self.part_of(step, number)) for number, part in enumerate(COMBINES[kind]))

    def part_of(self, step: _Step, number: int) -> _Step:
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
        return self._keep(stem, _Step(*fields, **more))

    def floats(self, node: Node, arg: str) -> str:
        """The value; raises :class:`NotFusable` where it is not of a floating dtype."""
        if not is_float(self.steps[arg].dtype):
            raise NotFusable(f"{node.name} takes values of type {self.steps[arg].dtype}")
        return arg

    def _keep(self, stem: str, step: _Step) -> str:
        if step not in self.known:
            if len(self.steps) == MOST_STEPS:
                raise NotFusable(f"it has more than {MOST_STEPS} values")
            name, count = stem, 1
            while name in self.steps or name in RESERVED or name in FUNCTIONS:
                count += 1
                name = f"{stem}_{count}"
            self.steps[name] = step
            self.known[step] = name
        return self.known[step]


@dataclass(frozen=True)
class _Output:
    """A tensor that is stored: the value, and the index that it is stored at."""

    tensor: str
    value: str
    index: Index


def lower(graph: OpGraph, names: Sequence[str], outputs: Sequence[str], *, two_passes: bool = False) -> Program:
    """The program of these nodes, which stores ``outputs``. Raises :class:`NotFusable` where they make no kernel.

    ``two_passes`` takes softmax's maximum and sum in two passes over the row instead of one online.
    """
    if len(names) > MOST_NODES:
        raise NotFusable(f"it has more than {MOST_NODES} operators")
    splits: dict[str, tuple[int, ...]] = {}
    same: dict[str, sympy.Expr] = {}
    parts: _Parts | None = None
    while True:
        builder, found, moments_of = _build(graph, names, outputs, splits, same, parts, two_passes)
        wanted = builder.axes.wanted_splits(_indices(builder, found))
        new = {name: inner for name, inner in wanted.items() if name not in splits}
        alike = {} if new else {name: index for name, index in _alike(builder, found).items() if name not in same}
        splits |= new
        same |= alike
        if not new and not alike:
            if parts or moments_of or (parts := _parts(builder)) is None:
                return _Finished(builder, found, moments_of).program()


@dataclass(frozen=True)
class _Parts:
    """An axis that is stored in parts of ``size`` elements, each computed without masks along it."""

    symbol: sympy.Symbol
    count: int
    size: int

    def of(self, builder: _Builder, index: Index) -> Iterator[Index]:
        """The index in each part; the index itself where it does not run along the axis."""
        if not any(i.has(self.symbol) for i in index):
            yield index
            return
        inside = builder.axes.index(f"{self.symbol.name}_part", self.size) if self.size > 1 else 0
        for number in range(self.count):
            yield tuple(i.subs(self.symbol, number * self.size + inside) for i in index)


def _parts(builder: _Builder) -> _Parts | None:
    """The equal parts of an axis between which the masks of a pointwise kernel change, as in a concatenation of two halves.

    Where each part has statements of its own, none has a mask, and loads of neighbours are vectors.
    """
    if builder.contraction or any(step.kind not in ("load", "map") for step in builder.steps.values()):
        return None
    changes: dict[sympy.Symbol, set[sympy.Expr]] = {}
    for within in dict.fromkeys(w for step in builder.steps.values() for w in step.mask):
        for symbol in within.index.free_symbols:
            start = symbol - within.index
            ends = {start} if within.below else set()
            changes.setdefault(symbol, set()).update(ends | ({start + within.size} if within.above else set()))
    for symbol, at in changes.items():
        extent = builder.axes.extents.get(symbol)
        for count in range(2, MOST_PARTS + 1) if isinstance(extent, int) else ():
            size, rest = divmod(extent, count)
            if not rest and all(end.is_Integer and end % size == 0 for end in at):
                return _Parts(symbol, count, size)
    return None


def _alike(builder: _Builder, outputs: Sequence[_Output]) -> dict[str, sympy.Expr]:
    """Axes along which a tensor, or a contraction's sums, are read as along older axes, by name, with the index of these.

    A mean and what it is subtracted from then share their read of the row. Axes of one value, as those of an outer
    product, stay apart.
    """
    axes = builder.axes
    age = {symbol: number for number, symbol in enumerate(axes.extents)}
    loads = [s for s in builder.steps.values() if s.kind in ("load", "sums") and s.text and not s.args]
    found: dict[str, sympy.Expr] = {}
    together = {step.varies for step in builder.steps.values()}
    together |= {frozenset().union(*(i.free_symbols for i in output.index)) for output in outputs}
    places = [(load, load.offset.free_symbols) for load in loads]
    for older, shared in places:
        for newer, symbols in places:
            if newer.text == older.text and not symbols <= shared and newer.mask == older.mask:
                for symbol, index in (axes.matched(older.offset, newer.offset) or {}).items():
                    apart = any(symbol in axes_of and axes_of & index.free_symbols for axes_of in together)
                    if not apart and all(age[s] < age[symbol] for s in index.free_symbols):
                        found.setdefault(symbol.name, index)
    return found


def _indices(builder: _Builder, outputs: Sequence[_Output]) -> Iterable[sympy.Expr]:
    for step in builder.steps.values():
        yield step.offset
        yield from (w.index for w in step.mask)
        yield from (s.output for s in step.slides)
    for output in outputs:
        yield from output.index


def _build(
    graph: OpGraph,
    names: Sequence[str],
    outputs: Sequence[str],
    splits: dict[str, tuple[int, ...]],
    same: dict[str, sympy.Expr],
    parts: _Parts | None,
    two_passes: bool,
) -> tuple[_Builder, list[_Output], str | None]:
    """Every output, asked for at the indices of its axes; and the value that moments are taken of."""
    nodes = [graph.node(n) for n in names]
    moments = [n for n in nodes if OPS[n.op].kind is Kind.MOMENTS]
    contractions = [n for n in nodes if OPS[n.op].kind is Kind.CONTRACTION]
    if len(contractions) > 1 or len(moments) > 1:
        raise NotFusable("a kernel has one contraction, and one result of moments over the batch")
    if moments and any(moments[0].name in n.values for n in nodes):
        raise NotFusable("moments over the batch end a kernel")
    if any(graph.type(v).numel == 0 for n in nodes for v in (n.name, *n.values) if n.type is not None):
        raise NotFusable("the tensors are empty")
    builder = _Builder(graph, frozenset(names), Axes(splits), two_passes, same)
    found: list[_Output] = []
    moments_of = None
    if moments:
        source = moments[0].inputs[0]
        index = _own_index(builder, graph.type(source))
        moments_of, builder.last = builder.value(source, index), index[-1]
    # The largest output has the axes. The sums of a contraction have those of the reduction that reads them.
    largest_first = 1 if contractions and any(OPS[n.op].kind is Kind.REDUCTION for n in nodes) else -1
    for name in sorted((o for o in outputs if OPS[graph.node(o).op].kind is not Kind.MOMENTS), key=lambda o: largest_first * graph.type(o).numel):
        whole = _stored_index(builder, name, builder.tensor(name, written=True))
        found += (_Output(name, builder.value(name, index), index) for index in (parts.of(builder, whole) if parts else (whole,)))
    if builder.contraction and not found and not moments:
        raise NotFusable("a contraction stores its sums, or values computed from them")
    return builder, found, moments_of


def _own_index(builder: _Builder, tensor: Tensor) -> Index:
    """An index of axes of its own for each dimension; tensors of one shape share them."""
    stem = "x".join(str(s) for s in tensor.sizes())
    return tuple(builder.new_axis(f"{stem}.{d}", size) for d, size in enumerate(tensor.sizes()))


def _stored_index(builder: _Builder, name: str, tensor: Tensor) -> Index:
    """Where the tensor, or an operand of its shape, was asked for already, if that covers it; else axes of its own."""
    alike = {name, *(v for v in builder.graph.node(name).values if builder.graph.type(v).sizes() == tensor.sizes())}
    for asked, index, mask in builder.asked:
        if asked in alike and not mask and all(builder.axes.covers(i, size) is not None for i, size in zip(index, tensor.sizes())):
            return index
    return _own_index(builder, tensor)


class _Finished:
    """A built program: its axes as rows and columns, its steps in order."""

    def __init__(self, builder: _Builder, outputs: Sequence[_Output], moments_of: str | None) -> None:
        self.builder, self.outputs, self.moments_of = builder, outputs, moments_of
        self.graph, self.extents = builder.graph, builder.axes.extents
        self.needed = self._needed()
        self.pool = self._pool()
        self.last = builder.last.subs(self.pool)
        types = {o.tensor: self.graph.type(o.tensor) for o in outputs}
        strides = {name: of.shape if of.batch_inside else of.sizes() for name, of in types.items()}  # those of the captured batch
        self.offsets = {o: builder.axes.flat(o.index, strides[o.tensor]) for o in outputs}
        self.rows, self.cols = self._loops()

    def program(self) -> Program:
        loads, steps = [], []
        reduced: set[_Step] = set()
        for name, step in self.needed.items():
            whole = self.builder.part_of(step, 0) if step.kind == "reduce" else step
            if step.varies & self._inner or step.kind == "sums" or whole in reduced:
                continue
            if step.kind == "reduce":
                reduced.add(whole)
                parts = [self.builder.part_of(step, part) for part in range(len(COMBINES[step.text]))]
                steps.append(Reduce(tuple(map(self.builder.known.get, parts)), step.text, step.args, tuple(p.dtype for p in parts)))
            else:
                (loads if step.kind == "load" and not step.args else steps).append(self._value(name, step))
        stores = tuple(self._store(o) for o in self.outputs)
        sizes = [reduce(times, (loop.extent for loop in loops), 1) for loops in (self.rows, self.cols)]
        rows, cols = (size if isinstance(size, int) else size.multiple * (self.graph.batch or 1) for size in sizes)
        self._check_work(rows * cols)
        contraction = self.builder.contraction
        stored = frozenset().union(*(offset.free_symbols for offset in self.offsets.values()))
        if contraction and not (self._varying() | stored) - self.pool.keys() <= frozenset(self._of_contraction()):
            ahead = "what is in front of a convolution is stored too"
            raise NotFusable(ahead if contraction.before else "the sums of a contraction are repeated along other axes")
        if contraction and not self._takes_all_sums():
            raise NotFusable("a kernel reads a part of the sums of a contraction, or has other values beside them")
        if contraction and contraction.window and self._reduced:
            contraction = replace(contraction, across=self._reduced != self.last.free_symbols)
        if contraction and self.pool:
            taps = {s.position: s.taps for step in self.needed.values() for s in step.slides}
            positions = self.builder.contraction_index[2:]
            lines = (replace(line, pool=taps.get(at, 1)) for line, at in zip(contraction.window.lines, positions))
            contraction = replace(contraction, window=replace(contraction.window, lines=tuple(lines)))
        return Program(
            rows, cols, *sizes, self.rows, self.cols, tuple(loads), tuple(steps), stores, self.moments_of, contraction, self.span
        )

    def _value(self, name: str, step: _Step) -> Load | Map | Scan | Window:
        level = ROW if name in self._ahead else self._level(step.varies)
        if step.kind == "load":
            return Load(name, step.text, self._place(step), level, step.dtype, step.fill, step.args)
        if step.kind == "map":
            return Map(name, step.text, step.args, level, step.dtype)
        if step.kind == "running":
            return Scan(name, step.text, step.args, step.reverse, level)
        inner = {at: inside for at, inside in self.needed.items() if inside.varies & self._inner}
        body = tuple(self._value(at, inside) for at, inside in inner.items() if inside.kind in ("load", "map"))
        outside = dict.fromkeys(a for inside in inner.values() if inside.kind == "map" for a in inside.args if a not in inner)
        slides = tuple(replace(s, output=self._merged(s.output)) for s in step.slides)
        return Window(name, step.text, step.args[0], slides, body, tuple(outside), level, step.fill)

    def _check_work(self, elements: int) -> None:
        """Raise where the loops of a reduction visit elements far more often than each tensor has them."""
        loads = [s for s in self.needed.values() if s.kind == "load" and s.text]
        largest = max((self.graph.type(t).numel for t in (*(s.text for s in loads), *(o.tensor for o in self.outputs))), default=0)
        beside = sum(self.graph.type(t).numel for t in {s.text for s in loads if s.mask})  # parts of a concatenation
        largest = max(largest, beside) if loads else MOST_MADE  # numbers that are made of indices alone
        if self._reduced and not self.builder.contraction and elements > MOST_VISITS * largest:
            raise NotFusable("a reduction would be computed again for elements that share its result")

    @cached_property
    def _ahead(self) -> frozenset[str]:
        """The values that a window takes from outside: they are there before its loops."""
        windows = [] if self.pool else [a for s in self.needed.values() if s.kind == "taps" for a in s.args]
        return frozenset(name for name in self._leading_to(windows) if not self.needed[name].varies & self._inner)

    def _needed(self) -> dict[str, _Step]:
        """The steps that outputs depend on, in the order in which they were made."""
        found = self._leading_to([o.value for o in self.outputs] + ([self.moments_of] if self.moments_of else []))
        return {name: step for name, step in self.builder.steps.items() if name in found}

    def _leading_to(self, waiting: list[str]) -> set[str]:
        """The steps, and those that they depend on."""
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.builder.steps[name].args
        return found

    def _level(self, varies: Iterable[sympy.Symbol]) -> str:
        cols = self._reduced if self.span else {loop.symbol for loop in self.cols}
        return ELEMENT if not cols or not cols.union(self._inner).isdisjoint(varies) else ROW

    def _place(self, step: _Step) -> Place:
        mask = tuple(replace(w, index=self._merged(w.index)) for w in step.mask)
        return Place(self._merged(step.offset), self.rows, self.cols, mask)

    def _store(self, output: _Output) -> Store:
        offset = self._merged(self.offsets[output])
        varies = self.builder.steps[output.value].varies
        level = self._level(self.offsets[output].free_symbols)
        if level == ROW and not self._depends(output.value):
            raise NotFusable(f"{output.tensor} is a row value that needs no reduction")
        if not varies <= offset.free_symbols | self._lost:
            raise NotFusable(f"{output.tensor} varies over more axes than it is stored at")
        dtypes, node = (self.graph.type(output.tensor).dtype, self.needed[output.value].dtype), self.graph.node(output.tensor)
        into = node.values[0] if node.effect else ""
        if batch := self.graph.type(output.tensor).batch_inside:
            (loop, *others), inner = self.cols, self.offsets[output].coeff(self.cols[0].symbol)
            if others or isinstance(loop.extent, int) or inner != 1:
                raise NotFusable(f"{output.tensor} follows the batch within rows that do not")
            offset = sympy.expand((offset - loop.symbol) / batch * COLUMNS + loop.symbol)
        return Store(output.tensor, output.value, level, Place(offset, self.rows, self.cols), *dtypes, into)

    def _depends(self, name: str) -> bool:
        """Whether a reduction leads to the value."""
        step = self.needed[name]
        return step.kind == "reduce" or any(self._depends(a) for a in step.args)

    # Rows and columns

    def _loops(self) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
        """The axes of rows and of columns, neighbours that run through memory as one joined."""
        symbols = frozenset().union(*(s.varies for s in self.needed.values()), *(o.free_symbols for o in self.offsets.values()))
        self._reduced = frozenset().union(*(s.axes for s in self.needed.values() if s.kind == "reduce"))
        around = self._around()
        symbols -= self._inner
        for name, step in self.needed.items():
            if step.kind == "reduce" and frozenset(step.axes) != self._reduced:
                raise NotFusable(f"{name} reduces other axes than another reduction of the kernel")
            if step.kind == "reduce" and self._reduced and not symbols - self._reduced <= step.varies:
                raise NotFusable(f"{name} would be computed again along other axes")
        order = self._order()
        self.span = self._span()
        if self._reduced:
            if self.moments_of or (self.builder.contraction and not (self.span or self._reduces_convolution())):
                raise NotFusable("a reduction along rows and a contraction, or moments over the batch, are two kernels")
            order = self._of_contraction() or order
            along = self.last.free_symbols if self.span else self._reduced
            rows = [s for s in order if s in symbols - along]
            cols = [s for s in order if s in along]
        elif around is not None:
            if any(not symbols <= offset.free_symbols for offset in self.offsets.values()):
                raise NotFusable("a window or a scan is stored along all axes of its kernel")
            rows = [s for s in order if s in symbols and s not in around]
            cols = [s for s in around if s in symbols]
        else:
            rows, cols = self._pointwise([s for s in order if s in symbols])
        if any(not isinstance(self.extents[s], int) for s in (*cols[1:], *(rows if cols and not isinstance(self.extents[cols[0]], int) else ()))):
            raise NotFusable("a dimension that follows the batch is reduced inside of others")
        self._lost: frozenset[sympy.Symbol] = frozenset()
        self._names: dict[sympy.Symbol, sympy.Expr] = {}
        return self._joined(rows), self._joined(cols)

    def _of_contraction(self) -> list[sympy.Symbol]:
        """The axes of a contraction's sums in their own order, of those that are pooled the windows'; none without a contraction."""
        index = [at.subs(self.pool) for at in self.builder.contraction_index]
        return [symbol for at in index for symbol in sorted(at.free_symbols, key=lambda s: -at.coeff(s))]

    def _takes_all_sums(self) -> bool:
        """Whether the kernel's axes run over each sum of the contraction once: its operands lie as its axes say."""
        (name,) = {s.text for s in self.needed.values() if s.kind == "sums"}
        index, sizes = self.builder.contraction_index, self.graph.type(name).sizes()
        return all(self.builder.axes.covers(at, size) is not None for at, size in zip(index, sizes))

    def _span(self) -> int:
        """How many neighbouring columns of a contraction a reduction takes together; 0 where it takes others, or there is none."""
        places, columns = [s for s in self.needed.values() if s.kind == "sums"], 1
        for symbol in sorted(self._reduced, key=self.last.coeff):
            whole = self.last.coeff(symbol) == columns and isinstance(self.extents[symbol], int)
            columns *= self.extents[symbol] if whole else 0
        span = columns if places and self._reduced and not self.builder.contraction.window else 0
        *outer, last = self.builder.contraction_index or (0,)
        if len(places) > 1 or any(not isinstance(i, sympy.Symbol) and i != 0 for i in (*outer, *(() if span else (last,)))):
            raise NotFusable("a kernel reads the sums of a contraction at one place, and through no view")
        if span and self.builder.axes.covers(last, self.graph.type(places[0].text).sizes()[-1]) is None:
            raise NotFusable("a reduction behind a contraction takes neighbouring columns of all columns")
        return span

    def _pool(self) -> dict[sympy.Symbol, sympy.Expr]:
        """The output of each position of a window of sums; empty where sums are not pooled."""
        slides = [s for step in self.needed.values() if step.kind == "taps" for s in step.slides]
        beside = all(s.stride == s.taps and not s.padding and s.dilation == 1 for s in slides)
        if not self.builder.contraction or not slides:
            return {}
        places = set(self.builder.contraction_index[2:])
        if self.builder.contraction.window is None or not beside or not places.issuperset(s.position for s in slides):
            raise NotFusable("the windows of a contraction's sums lie side by side in images")
        return {s.position: s.output for s in slides}

    def _reduces_convolution(self) -> bool:
        """Whether all pixels or all channels of a convolution are reduced, and nothing else varies."""
        if self.builder.contraction.window is None or self._varying() != frozenset(self._of_contraction()):
            return False
        return self._reduced in (self.last.free_symbols, self.builder.contraction_index[1].free_symbols)

    def _varying(self) -> frozenset[sympy.Symbol]:
        """The axes that a value varies over outside of windows."""
        return frozenset().union(*(s.varies for s in self.needed.values())) - self._inner

    def _around(self) -> list[sympy.Symbol] | None:
        """The axes that a window moves along, or that a scan runs along; ``None`` where the program has neither."""
        found = [s for s in self.needed.values() if s.kind in ("taps", "running")]
        self._inner = frozenset().union(*(s.axes for s in found if s.kind == "taps"))
        if not found:
            return None
        if len(found) > 1 or (self._reduced and not self.pool) or self.moments_of or (self.builder.contraction and not self.pool):
            raise NotFusable("a window or a scan and another one, a reduction or a contraction are two kernels")
        (step,) = found
        if any(not isinstance(s.output, sympy.Symbol) and s.output != 0 for s in step.slides):
            raise NotFusable("the result of a window is read through a view")
        if self.pool:
            return None
        return list(step.axes) if step.kind == "running" else [s.output for s in step.slides if s.output != 0]

    def _pointwise(self, order: list[sympy.Symbol]) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
        """Rows and columns without a reduction: contractions and moments have one dimension of columns."""
        if self.builder.contraction or self.moments_of:
            cols = self.last.free_symbols
            return [s for s in order if s not in cols], [s for s in order if s in cols]
        if len(order) > 1 and not isinstance(self.extents[order[-1]], int):
            return order[:-1], order[-1:]
        first = order and (len(order) > 1 or not isinstance(self.extents[order[0]], int))
        return (order[:1], order[1:]) if first else ([], order)

    def _order(self) -> list[sympy.Symbol]:
        """All axes, those with the largest strides first: in what is stored, in what is loaded, and in the masks of loads."""
        offsets = [*self.offsets.values()]
        if self.moments_of and not offsets:
            source = self.builder.steps[self.moments_of]
            offsets += [s.offset for s in self.needed.values() if s.kind == "load" and s.varies >= source.varies]
        offsets += sorted((s.offset for s in self.needed.values() if s.kind == "load"), key=lambda e: -len(e.free_symbols))
        offsets += [s.offset for s in self.needed.values() if s.kind == "sums"]
        offsets += [within.index for s in self.needed.values() for within in s.mask]
        order: list[sympy.Symbol] = []
        for offset in offsets:
            strides = {s: abs(offset.coeff(s)) for s in offset.free_symbols.difference(order)}
            order += sorted(strides, key=lambda s: (-strides[s], s.name))
        return order

    def _joined(self, symbols: list[sympy.Symbol]) -> tuple[Loop, ...]:
        """The axes as loops; an outer axis and an inner one are one loop where every index takes them as one number."""
        loops: list[Loop] = []
        for symbol in symbols:
            loop = Loop(symbol, self.extents[symbol])
            if loops and self._are_one(loops[-1], loop):
                self._names[loops[-1].symbol] = sympy.Integer(0)
                joined = times(loops[-1].extent, loop.extent)
                self._lost |= {loops[-1].symbol}
                loop = Loop(symbol, joined)
                loops.pop()
            loops.append(loop)
        return tuple(loops)

    def _are_one(self, outer: Loop, inner: Loop) -> bool:
        if not isinstance(inner.extent, int):
            return False
        for expression in self._expressions():
            a, b = expression.coeff(outer.symbol), expression.coeff(inner.symbol)
            rest = expression - a * outer.symbol - b * inner.symbol
            if a != b * inner.extent or rest.has(outer.symbol) or rest.has(inner.symbol):
                return False
        return True

    def _expressions(self) -> Iterable[sympy.Expr]:
        for step in self.needed.values():
            yield self._merged(step.offset) if step.kind != "sums" else sympy.Integer(0)
            yield from (self._merged(w.index) for w in step.mask)
            yield from (s.stride * self._merged(s.output) for s in step.slides if not self.pool)
        for offset in self.offsets.values():
            yield self._merged(offset)

    def _merged(self, expression: sympy.Expr) -> sympy.Expr:
        """The index with joined axes as one: the outer ones are gone, as their strides follow from the inner one's."""
        return expression.subs(self._names) if self._names else expression
