"""The interface of the table of operators: an entry, its kinds, and what it may read of a captured call."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any, Callable, Mapping, Protocol, Sequence

import sympy

from kgen.compiler.graph.contractions import Contraction
from kgen.compiler.graph.graph import Node, Operand, OpGraph, Ref, Tensor
from kgen.compiler.graph.library_call import LibraryCall
from kgen.compiler.loops.access import Within
from kgen.compiler.loops.expr import Expr
from kgen.compiler.loops.indices import Axes, Size
from kgen.compiler.operators import views

#: An index for each dimension of a tensor.
Index = tuple[sympy.Expr, ...]

#: A value while a reduction is lowered, as a function of an index of the reduction's input; see :class:`Lowering`.
Deferred = Callable[[Index], str]


class Kind(StrEnum):
    """The kind of an operator, which decides how it is lowered."""

    POINTWISE = auto()  #: elementwise, with broadcasting; an expression over its operands
    INDEXED = auto()  #: operands at other indices, under masks; ``lower`` asks a program's builder for it at an index
    CONSTANT = auto()  #: made of numbers and indices alone; lowered like INDEXED, and computed where it is used
    REDUCTION = auto()  #: reduces some dimensions; lowers into maps and reductions
    VIEW = auto()  #: moves no element: a function of indices
    MOMENTS = auto()  #: mean and variance over the batch; a kernel ends with it, no library call computes it
    WINDOW = auto()  #: values of neighbours of each element; ``lower`` asks a program's builder for it at an index
    SCATTER = auto()  #: takes elements into those of another tensor at places that are values; a kernel ends with it
    SCAN = auto()  #: running values along a dimension; lowered like a window
    RECURRENCE = auto()  #: one result of recurrent layers; a kernel computes nothing else
    CONTRACTION = auto()  #: a matrix product or a convolution, with a bias; rewrites fold scales into its weights
    BATCH_NORM = auto()  #: a rewrite takes it apart before it can be fused
    IDENTITY = auto()  #: returns its first operand; a rewrite drops it


#: Kinds that :func:`kgen.compiler.lower.lowering.lower` takes.
LOWERED = frozenset(
    {
        Kind.POINTWISE,
        Kind.INDEXED,
        Kind.CONSTANT,
        Kind.REDUCTION,
        Kind.VIEW,
        Kind.WINDOW,
        Kind.SCAN,
        Kind.MOMENTS,
        Kind.SCATTER,
        Kind.RECURRENCE,
        Kind.CONTRACTION,
    }
)


@dataclass(frozen=True)
class Captured:
    """One call as export saw it. ``types`` holds the types of the values before it.

    It is ``deterministic`` where PyTorch was told to use algorithms alone that give the same result in each run. It is
    ``elsewhere`` where it runs on another kind of device than it was traced on. A few operators differ there for
    numbers that are not finite.
    """

    name: str
    target: str
    arguments: Mapping[str, Any]
    type: Tensor | None
    call: LibraryCall
    effect: bool
    types: Mapping[str, Tensor]
    deterministic: bool = False
    elsewhere: bool = False

    def shape(self, argument: str) -> tuple[int, ...]:
        value = self.arguments.get(argument)
        return self.types[value.name].shape if isinstance(value, Ref) and value.name in self.types else ()


class Lowering(Protocol):
    """The means of lowering a reduction; values are opaque handles of elements or of rows."""

    two_passes: bool
    count: Expr  #: the number of elements that are reduced, as a float
    place: Any  #: the number of an element among those that are reduced together

    def map(self, expression: Expr, *values: Any, name: str = "", dtype: str = "float32") -> Any: ...
    def reduce(self, kind: str, *values: Any) -> Any: ...


class Value(Protocol):
    """One value of a program that is being built: its dtype, and the axes that it varies over."""

    dtype: str
    varies: frozenset[sympy.Symbol]


class Builder(Protocol):
    """The means of lowering values at other indices, windows and scans. Values have names; what each stands for is in
    ``steps``. :class:`kgen.compiler.lower.builder.ProgramBuilder` says what each method does."""

    graph: OpGraph
    axes: Axes
    inside: frozenset[str]
    places: Mapping[sympy.Symbol, str]
    steps: Mapping[str, Value]

    def value(self, name: Operand, index: Index) -> str: ...
    def map(self, stem: str, expression: Expr, args: Sequence[str], dtype: str = "float32") -> str: ...
    def number(self, stem: str, value: float | int, dtype: str) -> str: ...
    def position(self, stem: str, index: sympy.Expr, dtype: str) -> str: ...
    def place(self, stem: str, value: str, size: int, dtype: str = "int64", *, kept: bool = False) -> sympy.Expr: ...
    def broadcast(self, name: Operand, to: Tensor, index: Index) -> Index: ...
    def floats(self, node: Node, arg: str) -> str: ...
    def within(self, index: sympy.Expr, size: Size) -> tuple[Within, ...]: ...
    def outside(self, index: sympy.Expr, size: Size) -> bool: ...
    def masked(self, mask: tuple[Within, ...], value: Callable[[], str]) -> str: ...
    def holds(self, mask: tuple[Within, ...]) -> str: ...
    def choose(self, node: Node, index: sympy.Expr, size: Size, value: str, other: str) -> str: ...
    def filled(
        self, node: Node, bounds: Sequence[tuple[sympy.Expr, Size]], value: Callable[[], str], number: float | int
    ) -> str: ...
    def new_axis(self, name: str, size: Size, others: frozenset[sympy.Symbol] = frozenset()) -> sympy.Expr: ...
    def reduce(
        self, stem: str, kind: str, values: Sequence[Callable[[Index], str]], index: Index, dims: tuple[int, ...]
    ) -> tuple[str, ...]: ...
    def step(self, stem: str, *fields: Any, **more: Any) -> str: ...


@dataclass(frozen=True)
class Op:
    """One entry of the table.

    ``targets`` are the ATen operators that it covers. ``operands`` are the arguments that may be tensors, in the order
    in which ``expression`` takes them; ``attrs`` are the arguments kept as attributes. ``accept`` may refuse a call,
    which then stays a library call. ``library`` makes the library call from the attributes, where it is not the
    captured one. ``index`` is a view's function of indices; the view takes a ``part`` of its operand, or all of it.
    ``flops`` is the count for one element of the output; a contraction counts in ``sums``. ``integers`` is the
    expression for results that are integers or booleans; without one, such calls stay library calls. ``places`` says
    that results of a reduction are places of elements, ``whole`` that it reduces integers of 32 bits or more.

    ``label`` is the word in a plan's name, by default the name. ``aten`` is the ATen operator, without ``aten.``, that
    computes an operator of rewrites; of several after one another, the last. ``gathers`` says that it reads as many
    elements of its first operand as it gives, ``block_a_row`` that PyTorch gives each row to one block.
    """

    name: str
    kind: Kind
    targets: tuple[str, ...] = ()
    operands: tuple[str, ...] = ("self",)
    attrs: tuple[str, ...] = ()
    expression: Expr | None = None
    integers: Expr | None = None
    places: bool = False
    whole: bool = False
    lower: Callable[..., Any] | None = None
    accept: Callable[[Captured], bool] = field(default=lambda call: True)
    read: Callable[[Captured], Mapping[str, Any]] | None = None
    library: Callable[[Mapping[str, Any]], LibraryCall] | None = None
    index: views.IndexFunction | None = None
    part: bool = False
    flops: int = 1
    label: str = ""
    aten: str = ""
    gathers: bool = False
    block_a_row: bool = False
    sums: Contraction | None = None


def entry(kind: Kind, name: str, targets: str, operands: str = "self", **more: Any) -> Op:
    """An entry for operators ``aten.<target>``; targets and operands are names with spaces between them."""
    return Op(name, kind, tuple(f"aten.{t}" for t in targets.split()), tuple(operands.split()), **more)
