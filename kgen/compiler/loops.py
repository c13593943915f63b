"""Programs: what one kernel computes, as maps and reductions over the rows of a domain, in passes over the row.

A program works on a domain of ``rows x cols``: ``rows`` follows the batch and is known at run time, ``cols`` is fixed.
Each value is an *element* (one for each row and column) or a *row* value (one for each row). A reduction ends a pass
over the row, since what follows it needs its result:

    pass 0: load linear, gelu  ->  reduce softmax          (kept: gelu)
    pass 1: exp(gelu - max) * factor  ->  store softmax

A program may begin with a contraction instead of loads: its sums are the first element value. A program may end with
moments over the batch.

:func:`lower` builds a program from nodes of a graph. :func:`kgen.compiler.schedule.schedule` divides it into passes,
with element values kept from one pass to the next or read and computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

from kgen.compiler.graph import BatchSize, Node, OpGraph, Operand, Tensor
from kgen.compiler.operators import FUNCTIONS, OPS, Kind, c_float, map_expression

ELEMENT, ROW = "element", "row"

#: Names that kernels use for themselves; a value of the graph that has one of them is called otherwise.
RESERVED = frozenset(
    "row rows col lane line step item j at begin end first last vector vectors tile count shift sum square mean squares "
    "N K PITCH GROUP GROUPS AT_ONCE sums finite group half both x_exponent w_exponent x_exponents w_exponents "
    "inside from found moments difference deviation variance workspace stream stride next ahead own origin merges inverse merged total partial max min other piece "
    "asm auto bool break case catch char class const constexpr continue default delete do double else enum explicit "
    "export extern float for friend goto if inline int long mutable namespace new noexcept operator private protected "
    "public register return short signed sizeof static struct switch template this throw typedef typeid typename union "
    "unsigned using virtual void volatile while xor vec std".split()
)


class NotFusable(Exception):
    """These nodes do not make one kernel; the message says why."""


@dataclass(frozen=True)
class Term:
    """One addend of an index: ``(flat / inner) % size * stride``.

    ``top`` where no modulo is needed; of a dimension that follows the batch, ``size`` is its multiple.
    """

    inner: int
    size: int
    stride: int
    top: bool


@dataclass(frozen=True)
class Access:
    """Where a contiguous tensor is read for each element of a domain of rows of ``cols``."""

    terms: tuple[Term, ...]
    cols: int

    @property
    def level(self) -> str:
        if self.cols == 1 and self.terms:
            return ELEMENT
        return ROW if all(t.inner % self.cols == 0 for t in self.terms) else ELEMENT

    @property
    def full(self) -> bool:
        """Whether it reads one element of its own for each element of the domain."""
        return len(self.terms) == 1 and self.terms[0].top and self.terms[0].inner == 1 and self.terms[0].stride == 1

    def index(self, row: str = "row", col: str = "col") -> str:
        """The index as a C expression of ``row`` and ``col``."""
        parts = [self._spell(t, row, col) for t in self.terms]
        return " + ".join(p for p in parts if p != "0") or "0"

    def mode(self, width: int) -> str:
        """How ``width`` elements along the row are read: ``vector``, ``splat`` (all the same) or ``gather``."""
        if width == 1:
            return "splat"
        if all(t.inner % width == 0 for t in self.terms):
            return "splat"
        low = self.terms[-1]
        period = self.cols if low.top else low.size
        rest = all(t.inner % width == 0 and t.stride % width == 0 for t in self.terms[:-1])
        if low.inner == 1 and low.stride == 1 and period % width == 0 and rest:
            return "vector"
        return "gather"

    def _spell(self, t: Term, row: str, col: str) -> str:
        if t.inner % self.cols == 0:
            text, size = _divide(row, t.inner // self.cols), None if t.top else t.size
        elif self.cols % (t.inner * t.size) == 0 and not t.top:
            text, size = _divide(col, t.inner), None if t.inner * t.size == self.cols else t.size
        elif t.top and t.inner == 1:
            text, size = f"({row} * {self.cols} + {col})", None
        else:
            text, size = _divide(f"({row} * {self.cols} + {col})", t.inner), None if t.top else t.size
        if size is not None:
            text = f"{text} % {size}"
        if t.stride != 1:
            text = f"{text} * {t.stride}" if " " not in text or text.startswith("(") and text.endswith(")") else f"({text}) * {t.stride}"
        if text.startswith("(") and text.endswith(")") and t.stride == 1:
            text = text[1:-1]
        return text


def _divide(text: str, by: int) -> str:
    return text if by == 1 else f"{text} / {by}"


def access(tensor: Tensor, domain: Sequence[int | BatchSize], cols: int) -> Access:
    """How ``tensor``, contiguous, is read when broadcast to ``domain``, whose rows are of ``cols`` elements.

    Only the first dimension may follow the batch; it counts as one even where the captured batch is 1.
    """
    rank = len(domain)
    if len(tensor.shape) > rank:
        raise NotFusable(f"an operand has more dimensions than the domain ({tensor.shape} against {tuple(domain)})")
    shape = (1,) * (rank - len(tensor.shape)) + tensor.sizes()
    terms: list[Term] = []
    inner, stride = 1, 1
    for d in range(rank - 1, -1, -1):
        size = domain[d]
        if shape[d] not in (1, size):
            raise NotFusable(f"an operand of shape {tensor.shape} does not broadcast to {tuple(domain)}")
        if shape[d] == size and size != 1:
            last = terms[-1] if terms else None
            if isinstance(size, BatchSize):
                size = size.multiple
            if last is not None and last.inner * last.size == inner and last.stride * last.size == stride:
                terms[-1] = Term(last.inner, last.size * size, last.stride, d == 0)
            else:
                terms.append(Term(inner, size, stride, d == 0))
            stride *= size
        inner *= size if isinstance(size, int) else size.multiple
    return Access(tuple(reversed(terms)), cols)


@dataclass(frozen=True)
class Load:
    """A tensor read for each element or row; ``tensor`` names the value in the graph."""

    name: str
    tensor: str
    access: Access
    level: str


@dataclass(frozen=True)
class Map:
    """``name = expression`` over ``args``, at ``level``."""

    name: str
    expression: str
    args: tuple[str, ...]
    level: str


@dataclass(frozen=True)
class Reduce:
    """Row values from element values: ``kind`` is a key of :data:`REDUCTIONS`."""

    names: tuple[str, ...]
    kind: str
    arg: str


@dataclass(frozen=True)
class Store:
    """A value written to the tensor of that name."""

    tensor: str
    arg: str
    level: str


@dataclass(frozen=True)
class Contraction:
    """The sums that a program begins with: rows of ``x`` times rows of ``weight``, both of ``k`` elements.

    ``name`` is the sums' name in the program. ``weight`` is the right operand: a weight of the module, or a value that
    each call computes. With ``transposed``, its columns stand for its rows. In a batched contraction, each ``group`` rows
    of ``x`` have a matrix of ``weight`` to themselves, of ``matrices`` at the captured batch. Else all rows share one.
    """

    name: str
    x: str
    weight: str
    k: int
    transposed: bool
    group: int | None = None
    matrices: int = 1


#: Reductions: the names of their results.
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "sum": ("sum",),
    "max": ("max",),
    "min": ("min",),
    "max_finite": ("max",),  # starts at the lowest float and ignores NaN: what softmax subtracts
    "softmax": ("max", "sum"),  # the running maximum and the sum of exponentials below it
}


@dataclass(frozen=True)
class Program:
    """What a kernel computes.

    ``domain`` is the shape that it iterates over, in rows of ``cols`` elements. ``contraction`` is what it begins with,
    ``moments_of`` the element value whose moments over the batch it ends with; both may be absent.
    """

    domain: Tensor
    cols: int
    loads: tuple[Load, ...]
    steps: tuple[Map | Reduce, ...]
    stores: tuple[Store, ...]
    moments_of: str | None = None
    contraction: Contraction | None = None

    @property
    def rows(self) -> int:
        """Rows at the captured batch."""
        return self.domain.numel // max(self.cols, 1)

    @property
    def reductions(self) -> tuple[Reduce, ...]:
        return tuple(s for s in self.steps if isinstance(s, Reduce))

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors that are read, each once, in the order of the kernel's arguments."""
        return tuple(dict.fromkeys(load.tensor for load in self.loads))


@dataclass
class _Builder:
    """Lowers nodes one by one; implements :class:`kgen.compiler.operators.Lowering`."""

    graph: OpGraph
    domain: tuple[int | BatchSize, ...]
    dims: int  # trailing dimensions that make up a row
    cols: int
    two_passes: bool
    loads: list[Load] = field(default_factory=list)
    steps: list[Map | Reduce] = field(default_factory=list)
    levels: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)  # graph value -> name in the program
    prefix: str = ""
    final: str = ""

    @property
    def row_shapes(self) -> tuple[tuple[int | BatchSize, ...], tuple[int | BatchSize, ...]]:
        """The shapes of a row value: reduced dimensions kept as 1, and dropped."""
        lead = self.domain[: len(self.domain) - self.dims]
        return lead + (1,) * self.dims, lead

    def map(self, expression: str, *values: str, name: str = "") -> str:
        level = ELEMENT if any(self.levels[v] == ELEMENT for v in values) else ROW
        full = self._unique(f"{self.prefix}_{name}" if name else self.prefix)
        self.steps.append(Map(full, expression, tuple(values), level))
        self.levels[full] = level
        return full

    def reduce(self, kind: str, value: str) -> str | tuple[str, ...]:
        if self.levels[value] != ELEMENT:
            raise NotFusable("it reduces what is already reduced")
        names = tuple(self._unique(f"{self.prefix}_{part}") for part in REDUCTIONS[kind])
        self.steps.append(Reduce(names, kind, value))
        self.levels.update(dict.fromkeys(names, ROW))
        return names if len(names) > 1 else names[0]

    def node(self, node: Node) -> None:
        op = OPS[node.op]
        self.prefix = node.name
        shape = node.type.sizes()
        if op.kind is Kind.POINTWISE:
            at_row = shape != self.domain and shape in self.row_shapes
            if not at_row and shape != self.domain:
                raise NotFusable(f"{node.name} has the shape {shape}, the kernel's domain is {self.domain}")
            operands = [self.operand(i, shape if at_row else self.domain, at_row) for i in node.inputs]
            # Numbers become literals; what is left is numbered anew.
            names = [o for o in operands if isinstance(o, str)]
            numbers = iter(range(len(names)))
            spelled = [f"{{{next(numbers)}}}" if isinstance(o, str) else c_float(o) for o in operands]
            self.values[node.name] = self.map(map_expression(node, spelled), *names)
            if not at_row and self.levels[self.values[node.name]] == ROW:
                raise NotFusable(f"{node.name} is the same along the row")
        elif op.kind is Kind.REDUCTION:
            source = node.inputs[0]
            if self.graph.type(source).sizes() != self.domain or node["dims"] != self.dims:
                raise NotFusable(f"{node.name} reduces other dimensions than the kernel")
            operands = [self.operand(i, self.domain, False) for i in node.inputs]
            if self.levels[operands[0]] != ELEMENT:
                raise NotFusable(f"{node.name} reduces what is the same along the row")
            result = op.lower(self, node, *operands)
            self.values[node.name] = result
            expected = ROW if shape != self.domain else ELEMENT
            if self.levels[result] != expected:
                raise NotFusable(f"{node.name} does not have the shape that it was lowered to")
        else:
            raise NotFusable(f"{node.name} is neither pointwise nor a reduction")

    def contraction(self, node: Node) -> Contraction:
        """A contraction of rows with a matrix, or a batch of them, and its bias as a map behind it."""
        self.prefix = node.name
        x, weight, *bias = node.inputs
        rows, matrix = self.graph.type(x), self.graph.type(weight)
        if len(rows.shape) < 2 or len(matrix.shape) < 2 or not rows.numel or not matrix.numel:
            raise NotFusable(f"{node.name} is no contraction of rows with a matrix")
        if any(rows.multiples[1:]) or any(matrix.multiples[1:]):
            raise NotFusable(f"an operand of {node.name} follows the batch in another dimension than the first")
        batched = len(matrix.shape) > 2
        if batched and rows.sizes()[:-2] != matrix.sizes()[:-2]:
            raise NotFusable(f"{node.name} has other matrices than batches of rows")
        if not batched and matrix.batched:
            raise NotFusable(f"{node.name} has a matrix that follows the batch")
        found = Contraction(
            self._unique(f"{node.name}_sum"),
            x,
            weight,
            rows.shape[-1],
            transposed=node.op != "linear",
            group=rows.shape[-2] if batched else None,
            matrices=matrix.numel // (matrix.shape[-1] * matrix.shape[-2]),
        )
        self.levels[found.name] = ELEMENT
        self.values[node.name] = found.name
        for value in bias:
            self.values[node.name] = self.map("{0} + {1}", found.name, self.operand(value, self.domain, False))
        return found

    def operand(self, value: Operand, shape: tuple[int | BatchSize, ...], at_row: bool) -> str | float:
        """The operand's name in the program, loaded if it comes from outside."""
        if not isinstance(value, str):
            return value
        if value in self.values:
            name = self.values[value]
            if self.levels[name] == ROW and not at_row and self.graph.type(value).sizes() != self.row_shapes[0]:
                raise NotFusable(f"{value} broadcasts along another dimension than the row")
            if self.levels[name] == ELEMENT and at_row:
                raise NotFusable(f"{value} has columns where a row value is needed")
            return name
        tensor = self.graph.type(value)
        if tensor.dtype != "float32":
            raise NotFusable(f"{value} is of type {tensor.dtype}")
        if any(tensor.multiples[1:]) or (tensor.batched and tensor.sizes()[0] != shape[0]):
            raise NotFusable(f"{value} follows the batch in another dimension than the first")
        found = access(tensor, shape, 1 if at_row else self.cols)
        level = ROW if at_row else found.level
        name = self._unique(value)
        self.loads.append(Load(name, value, found, level))
        self.levels[name] = level
        self.values[value] = name
        return name

    def _unique(self, stem: str) -> str:
        name, count = stem, 1
        while name in self.levels or name in RESERVED or name in FUNCTIONS:
            count += 1
            name = f"{stem}_{count}"
        return name


def lower(
    graph: OpGraph, names: Sequence[str], outputs: Sequence[str], *, two_passes: bool = False
) -> Program:
    """The program of these nodes, which stores ``outputs``. Raises :class:`NotFusable` where they make no kernel.

    ``two_passes`` takes softmax's maximum and sum in two passes over the row instead of one online.
    """
    nodes = [graph.node(n) for n in names]
    moments = [n for n in nodes if OPS[n.op].kind is Kind.MOMENTS]
    reductions = [n for n in nodes if OPS[n.op].kind is Kind.REDUCTION]
    contractions = [n for n in nodes if OPS[n.op].kind is Kind.CONTRACTION]
    if contractions and (reductions or len(contractions) > 1 or nodes[0] is not contractions[0]):
        raise NotFusable("a contraction begins a kernel; pointwise operators or moments alone follow it")
    if moments and (reductions or len(moments) > 1 or nodes[-1] is not moments[0]):
        raise NotFusable("moments over the batch end a kernel and stand alone in it")
    if reductions:
        domain, dims = graph.type(reductions[0].inputs[0]), reductions[0]["dims"]
    elif moments:
        domain, dims = graph.type(moments[0].inputs[0]), 1
    elif contractions:
        domain, dims = contractions[0].type, 1
    else:
        domain = max((n.type for n in nodes), key=lambda t: t.numel)
        dims = max(len(domain.shape) - 1, min(len(domain.shape), 1) if not domain.batched else 0)
    if any(domain.multiples[1:]) or (reductions and any(domain.multiples[len(domain.shape) - dims :])):
        raise NotFusable("a dimension that follows the batch is not the first")
    cols = 1
    for size in domain.shape[len(domain.shape) - dims :]:
        cols *= size
    if domain.numel == 0:
        raise NotFusable("the tensors are empty")
    builder = _Builder(graph, domain.sizes(), dims, cols, two_passes)
    contraction = builder.contraction(contractions[0]) if contractions else None
    if contraction and moments and contraction.group is not None:
        raise NotFusable("no kernel takes moments over the batch of a batched contraction")
    for node in nodes:
        if OPS[node.op].kind not in (Kind.MOMENTS, Kind.CONTRACTION):
            builder.node(node)
    moments_of = None
    if moments:
        moments_of = builder.operand(moments[0].inputs[0], domain.sizes(), False)
    stores = tuple(Store(o, builder.values[o], builder.levels[builder.values[o]]) for o in outputs if o in builder.values)
    if contraction and not stores:
        raise NotFusable("a contraction stores its sums, or values computed from them")
    for store in stores:
        if graph.type(store.tensor).dtype != "float32":
            raise NotFusable(f"{store.tensor} is of type {graph.type(store.tensor).dtype}")
    reduced = {name for step in builder.steps if isinstance(step, Reduce) for name in step.names}
    for store in stores:
        if store.level == ROW and not _depends(store.arg, reduced, builder.steps):
            raise NotFusable(f"{store.tensor} is a row value that needs no reduction")
    return Program(domain, cols, tuple(builder.loads), tuple(builder.steps), stores, moments_of, contraction)


def _depends(name: str, on: set[str], steps: Sequence[Map | Reduce]) -> bool:
    maps = {s.name: s for s in steps if isinstance(s, Map)}
    return name in on or (name in maps and any(_depends(a, on, steps) for a in maps[name].args))
