"""Loop programs: the loops of one kernel, as loads, pointwise maps, reductions and stores over axes.

    gelu + softmax of x[row, col]                        level
    load    x        at row * 8192 + col                 element
    map     gelu     = gelu(x)                           element
    reduce  max, sum = online softmax of gelu over col   row
    map     softmax  = exp(gelu - max) / sum             element
    store   softmax  at row * 8192 + col

A value is a function of axes. A reduction takes its axes away, so a later map may combine the result with values that
still vary over them. Views are index expressions (:mod:`kgen.compiler.loops.indices`) and cost nothing. A kernel runs
over
*rows*, the axes that no reduction takes away, and *columns*, those that reductions run over. Without a reduction the
columns are all axes but the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Iterable

import sympy

from kgen.compiler.graph.convolutions import Convolution
from kgen.compiler.graph.dtypes import is_float, is_narrow
from kgen.compiler.loops.access import Loop, Place
from kgen.compiler.loops.expr import Expr
from kgen.compiler.loops.indices import Size
from kgen.compiler.loops.recurrence import Recurrence

ELEMENT, ROW = "element", "row"

_INT_MAX = (1 << 31) - 1


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
    fill: float | int = 0  #: the value where the mask does not hold
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Map:
    """``name = expression`` over ``args``, at ``level``."""

    name: str
    expression: Expr
    args: tuple[str, ...]
    level: str
    dtype: str = "float32"


@dataclass(frozen=True)
class Reduce:
    """Row values from element values: ``kind`` is a key of :data:`kgen.compiler.operators.reductions.COMBINES`."""

    names: tuple[str, ...]
    kind: str
    args: tuple[str, ...]
    dtypes: tuple[str, ...] = ("float32",)  #: of each result

    @property
    def arg(self) -> str:
        return self.args[0]

    @property
    def of_integers(self) -> bool:
        """Whether values and results are of int64."""
        return self.kind.startswith("whole_")


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


Step = Load | Map | Reduce | Store


def by_row(steps: Iterable[Step]) -> bool:
    """Whether loads or stores among the steps follow the number of the row."""
    return any(x.access.takes_row for x in steps if isinstance(x, (Load, Store)))


def by_col(steps: Iterable[Step]) -> bool:
    """Whether loads or stores among the steps follow the number of the column."""
    return any(x.access.takes_col for x in steps if isinstance(x, (Load, Store)))


def taken(steps: Iterable[Step]) -> set[str]:
    """The values that the steps take."""
    return {name for x in steps for name in ((x.arg,) if isinstance(x, Store) else x.args)}


@dataclass(frozen=True)
class Scatter:
    """Values that are taken into elements of a tensor, at places that are values of the program, by ``kind``.

    ``kind`` is a key of :data:`kgen.compiler.operators.scatters.KINDS`. The result begins as the tensor ``source``, or
    as the number ``start``. A source comes again after a ``period`` of elements, unless that is 0. The result has
    ``elements`` at the captured batch. ``places`` are the values in its index, the first one below ``size``. Where it
    is ``ordered``, the values of one element are taken in one after the other. Where they are ``sorted``, PyTorch sorts
    them by their elements first: its sums of many values are more accurate than additions one by one.
    """

    tensor: str
    arg: str
    kind: str
    level: str
    access: Place
    places: tuple[str, ...]
    size: int
    elements: Size
    dtype: str
    of: str
    source: str = ""
    start: float | int = 0
    ordered: bool = False
    period: int = 0
    sorted: bool = False


@dataclass(frozen=True)
class Slide:
    """One dimension of a window, with the symbols of a position in the input and of a tap.

    ``output`` is the index of one of ``outputs``, ``size`` the input's extent. A mean counts positions from
    ``counted[0]`` up to ``counted[1]``.
    """

    position: sympy.Symbol
    tap: sympy.Symbol
    output: sympy.Expr
    outputs: int
    size: int
    taps: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    counted: tuple[int, int] = (0, 0)

    @property
    def span(self) -> int:
        """Positions from the first to the last tap."""
        return (self.taps - 1) * self.dilation + 1

    @property
    def last(self) -> int:
        """The last position that a tap of an output has: it may lie behind the input."""
        return (self.outputs - 1) * self.stride - self.padding + self.span - 1

    @property
    def counts_all(self) -> bool:
        """Whether every tap of every output counts in a mean."""
        return -self.padding >= self.counted[0] and self.last < self.counted[1]


@dataclass(frozen=True)
class Window:
    """``name``: the reduction of ``arg`` over the taps of a window around each element, in loops of one thread.

    ``kind`` is ``sum``, ``mean`` or ``max``. ``body`` computes ``arg`` from the positions and taps of ``slides``, the
    innermost last; ``args`` are the values that it takes from outside. Positions outside of the tensor count as
    ``fill``.
    """

    name: str
    kind: str
    arg: str
    slides: tuple[Slide, ...]
    body: tuple[Load | Map, ...]
    args: tuple[str, ...]
    level: str
    fill: float
    dtype: str = "float32"


@dataclass(frozen=True)
class Scan:
    """``name``: the running value of the terms ``args`` along the columns, from the last one back where ``reverse``.

    ``kind`` is a key of :data:`kgen.compiler.operators.scans.SCANS`, which says how many terms an element has.
    """

    name: str
    kind: str
    args: tuple[str, ...]
    reverse: bool
    level: str
    dtype: str = "float32"


@dataclass(frozen=True)
class Strided:
    """Where an operand of a contraction lies in a tensor, if not in its own order: in every ``stride``-th element along
    each axis.

    ``axes`` are extents with strides, the innermost last; an axis of stride 0 repeats what lies inside of it. Together
    they count the operand's elements in order.
    """

    axes: tuple[tuple[Size, int], ...]
    offset: int = 0

    @property
    def unique(self) -> tuple[tuple[Size, int], ...]:
        """The axes that repeat nothing."""
        return tuple((extent, stride) for extent, stride in self.axes if stride)


@dataclass(frozen=True)
class Contraction:
    """The sums that a program begins with: rows of ``x`` times rows of ``weight``, both of ``k`` elements.

    ``name`` is the sums' name in the program. ``weight`` is the right operand: a weight of the module, or a value that
    each call computes. With ``transposed``, columns of ``weight`` are multiplied instead of rows, and with ``turned``,
    columns of ``x``. In a batched contraction, each ``group`` rows of ``x`` have a matrix of ``weight`` to themselves,
    of ``matrices`` at the captured batch. Else all rows share one.

    Both are of ``dtype``, and the sums of float32. With a ``window``, the sums are a convolution of images ``x``: rows
    of the program are channels of images, columns pixels. With ``across``, rows are pixels of images, columns channels.
    Where the sums are pooled, pixels are windows of them. ``before`` computes ``x`` from other tensors, as images by
    the elements of one, or the softmax of another contraction's sums: both are attention then. ``x_lies`` and
    ``weight_lies`` say where operands lie that are no tensors in their own order.
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
    x_lies: Strided | None = None
    weight_lies: Strided | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that the operands are made of."""
        return (*(self.before.operands if self.before else (self.x,)), self.weight)

    @property
    def attends(self) -> bool:
        """Whether the left operand is the softmax of another contraction's sums."""
        return self.before is not None and self.before.contraction is not None

    @property
    def in_order(self) -> bool:
        """Whether both operands are tensors, or images that are made of some, whose elements lie in order."""
        return not (self.attends or self.x_lies or self.weight_lies)

    def formula(self, n: int) -> str:
        """The formula of the sums, of ``n`` columns, in terms of matrices."""
        if self.group is None:
            return f"y[rows, {n}] = x[rows, {self.k}] . w[{n}, {self.k}]^T"
        return (
            f"For each of rows / {self.group} matrices, y[{self.group}, {n}] = x[{self.group}, {self.k}] . w[{n}, "
            f"{self.k}]^T"
        )


@dataclass(frozen=True)
class SmallProduct:
    """Products of matrices so small that a few warps multiply one, with the maps and gathers on both sides of them.

    ``left`` and ``right`` are pointwise programs that make the operands in order. A matrix has ``rows x k`` and ``cols
    x k`` elements, or the other way round where it is ``turned``. ``behind`` makes the results from the sums. It loads
    these as the tensor ``sums``, ``rows x cols`` elements for each matrix. The rows of all three are the matrices.
    """

    left: Program
    right: Program
    behind: Program
    sums: str
    rows: int
    k: int
    cols: int
    turned: tuple[bool, bool]

    @property
    def parts(self) -> tuple[Program, Program, Program]:
        return self.left, self.right, self.behind

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that are read."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.tensors if name != self.sums))

    @property
    def dtypes(self) -> dict[str, str]:
        """The dtype of each tensor that is read or written."""
        return self.left.tensor_dtypes | self.right.tensor_dtypes | self.behind.tensor_dtypes


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
    scatters: tuple[Scatter, ...] = ()  #: a program has these, or stores
    span: int = 0  #: neighbouring columns of a contraction that reductions take together; row values are then theirs
    #: A program with one has nothing else. Its rows are the batch, or the steps where these follow it.
    recurrence: Recurrence | None = None
    product: SmallProduct | None = None  #: a program with one has nothing else; its rows are the matrices

    @property
    def reductions(self) -> tuple[Reduce, ...]:
        return tuple(s for s in self.steps if isinstance(s, Reduce))

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(s for s in self.steps if isinstance(s, Window))

    @property
    def scans(self) -> tuple[Scan, ...]:
        return tuple(s for s in self.steps if isinstance(s, Scan))

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that are read, each once, in the order of the kernel's arguments."""
        return tuple(
            dict.fromkeys((*(load.tensor for load in self.reads), *(s.source for s in self.scatters if s.source)))
        )

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The tensors that are read, with those of the contraction, the recurrence or the product of small matrices."""
        others = (of.reads for of in (self.contraction, self.recurrence, self.product) if of)
        return (*self.tensors, *(name for reads in others for name in reads))

    @cached_property
    def reads(self) -> tuple[Load, ...]:
        """Every load of a tensor: those in front, those whose index holds a value, and those within windows."""
        inner = [x for s in self.steps for x in (s.body if isinstance(s, Window) else (s,)) if isinstance(x, Load)]
        before = self.contraction.before.reads if self.contraction and self.contraction.before else ()
        return tuple(load for load in (*before, *self.loads, *inner) if load.tensor)

    @cached_property
    def tensor_dtypes(self) -> dict[str, str]:
        """The dtype of each tensor that is read or written."""
        of = self.recurrence
        recurrent = dict.fromkeys((*of.reads, *(result for result, _ in of.results)), of.dtype) if of else {}
        return {
            **recurrent,
            **{s.source: s.dtype for s in self.scatters if s.source},
            **{x.tensor: x.dtype for x in (*self.stores, *self.scatters, *self.reads)},
        }

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
    def narrow(self) -> bool:
        """Whether elements of a tensor that is read or written have fewer bits than values have."""
        of = self.contraction
        operands = {of.dtype, *(of.before.tensor_dtypes.values() if of.before else ())} if of else set()
        return any(map(is_narrow, operands.union(self.tensor_dtypes.values())))

    @property
    def reduces_alike(self) -> bool:
        """Whether every reduction is of floating values, or is one of integers."""
        return all(is_float(r.dtypes[0]) or r.of_integers for r in self.reductions)

    @property
    def reduces_integers(self) -> bool:
        """Whether a reduction is one of integers."""
        return any(r.of_integers for r in self.reductions)

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

    @cached_property
    def strided(self) -> bool:
        """Whether neighbouring rows lie side by side in what is read, and neighbouring columns do not."""
        loops = {loop.symbol for loop in (*self.row_loops, *self.col_loops)}
        full = [load.access.offset for load in self.loads if load.tensor and loops <= load.access.symbols]
        if not full or not self.row_loops or not self.col_loops:
            return False
        row, col = self.row_loops[-1].symbol, self.col_loops[-1].symbol
        return all(offset.coeff(row) == 1 and offset.coeff(col) != 1 for offset in full)

    @cached_property
    def windows_across(self) -> bool:
        """Whether neighbouring rows, an even number of them, lie side by side in all images of its one window.

        All results lie so, too, and nothing is masked.
        """
        beside = self.row_loops[-1] if self.row_loops else None
        if len(self.windows) != 1 or beside is None or not isinstance(beside.extent, int) or beside.extent % 2:
            return False
        if any(x.access.mask for x in self.reads):
            return False
        positions = {slide.position for slide in self.windows[0].slides}
        body = (x for x in self.windows[0].body if isinstance(x, Load) and x.tensor)
        images = [x.access for x in body if positions & x.access.symbols]
        lies = (*images, *(store.access for store in self.stores))
        return bool(images) and all(access.steps_by_one(beside.symbol, 2) for access in lies)

    def reads_in_place(self, load: Load, store: Store) -> bool:
        """Whether each element is read exactly where its own result is written, and nowhere else by this load."""
        same = load.access.offset == store.access.offset and bool(load.tensor) and not load.access.mask
        return same and load.access.injective
