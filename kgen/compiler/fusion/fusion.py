"""Fusion plans: ways to cut a graph into kernels of our own and library calls.

    linear ── gelu ── softmax
    ├─ [linear] + [gelu, softmax]                      two kernels, where a template takes contractions
    ├─ [linear, gelu] + [softmax]                      the same, with gelu in the epilogue of the contraction
    ├─ linear(library) + [gelu, softmax]               one kernel behind the library's contraction
    ├─ linear(library) + [gelu] + [softmax]            one kernel for each operator
    └─ linear(library) + gelu(library) + softmax(library)    the control: every operator is a library call

In a plan's name, the name of the kernel's template stands before each bracket (:mod:`kgen.plan_name`).

Operators that follow one another and that templates take form *runs*. A plan cuts each run into kernels. An operator
that no template takes stays a library call. Some templates do not store the values that a kernel computes on its way.
A later kernel computes such a value again from stored ones. Views and cheap maps of one stored value are in no run: each
kernel that reads one computes it.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Callable, Iterator, Mapping, Sequence

from kgen import plan_name
from kgen.compiler.fusion.programs import Lowered, Programs
from kgen.compiler.fusion.template import Template
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.compiler.operators.facts import is_unnamed, label
from kgen.compiler.operators.library import LIBRARY_PARTS
from kgen.compiler.operators.op import LOWERED, Kind
from kgen.compiler.operators.reductions import of_few
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.table import Variant, variants
from kgen.plan import Plan

ALL_CUTS = 4  # cuts; runs with more possible cuts are cut only in the ways that matter most
LONG_RUN = 32  # nodes; of a longer run, a few further cuts are tried, spread over it: a loop that forward unrolls repeats itself
SOME_CUTS = 4  # further cuts of a long run
LONG_PIECE = 16  # nodes; a kernel of more grows by several at a time
MOST_PLANS = 24  # plans of a problem; those with the fewest steps come first
CHEAP_FLOPS = 1  # operations for each element; a map of no more is computed by each kernel that reads it, not stored
REPAIRS = 4  # rounds; a choice of cuts whose kernels lack values that no other one stores is cut further so often at most
MOST_ATTENDING = 32  # nodes from one contraction to another, with a softmax between; chains of residuals have more
MANY_NODES = 64  # nodes; of a graph with more, fewer cuts are tried, since their number bounds the time

#: Functions of the C library and of CUDA: a kernel of one operator of that name has another name.
_C_FUNCTIONS = frozenset(
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc exp exp2 expm1 fdim floor fma fmax fmin "
    "fmod frexp gamma hypot index isfinite isinf isnan ldexp lgamma log log10 log1p log2 logb modf nan nearbyint nextafter norm pow "
    "remainder remove rint round rsqrt select signbit sin sinh sqrt tan tanh tgamma trunc".split()
)

_NOT_ASKED = object()


@dataclass(frozen=True)
class Library:
    """A node that is a library call."""

    node: str

    @property
    def outputs(self) -> tuple[str, ...]:
        return (self.node,)


@dataclass(frozen=True)
class Kernel:
    """Nodes that are one kernel of our own: what it computes, stores, and may write over.

    ``schedule`` is the name of the template that renders it. ``overwrites`` names a tensor of the output's shape that
    nothing needs after this kernel: a library call's own result, or another kernel's output.
    """

    name: str
    schedule: str
    nodes: tuple[str, ...]
    outputs: tuple[str, ...]
    overwrites: str | None = None

    def label(self, graph: OpGraph) -> str:
        """The kernel as a plan's name has it: its schedule, and its operators in brackets."""
        return plan_name.of_kernel(self.schedule, self.operators(graph))

    def operators(self, graph: OpGraph) -> list[str]:
        """The operators that a plan's name shows: views and constants are read on the way."""
        return [label(graph.node(n)) for n in self.nodes if n not in made_on_the_way(graph)]


Step = Library | Kernel


@dataclass(frozen=True)
class FusionPlan:
    """One way to run a graph. ``data`` has the steps that its name shows, as they are stored."""

    data: Plan
    rewrites: tuple[str, ...]
    graph: OpGraph
    steps: tuple[Step, ...]
    programs: Programs = field(repr=False, compare=False)  # those of all plans of a graph: they share most

    @cached_property
    def name(self) -> str:
        """The readable name."""
        return plan_name.of(self.data)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(s for s in self.steps if isinstance(s, Kernel))

    @property
    def control(self) -> bool:
        """Whether every operator is a library call as it stands: no kernel, and no weights folded."""
        return not self.kernels and not self.graph.folded

    def program(self, kernel: Kernel, *, two_passes: bool = False) -> Program:
        found = self.programs.lowered(kernel.nodes, kernel.outputs, two_passes=two_passes)
        assert found is not None, "a kernel of a plan has a program"
        return found

    @cached_property
    def numbers(self) -> Mapping[tuple[str, ...], int]:
        """The number of each step, by what it makes."""
        return {step.outputs: n for n, step in reversed([*enumerate(self.steps)])}

    @cached_property
    def first_use(self) -> Mapping[str, int]:
        """The number of the first step that reads or makes each value."""
        found: dict[str, int] = {}
        for n, step in enumerate(self.steps):
            for name in (*self.operands(step), *step.outputs):
                found.setdefault(name, n)
        return found

    @cached_property
    def last_read(self) -> Mapping[str, int]:
        """The number of the last step that reads each value."""
        return {name: n for n, step in enumerate(self.steps) for name in self.operands(step)}

    def operands(self, step: Step) -> tuple[str, ...]:
        """The values that a step reads."""
        return self.program(step).operands if isinstance(step, Kernel) else self.graph.node(step.node).values

    def bytes_moved(self, kernel: Kernel) -> int:
        """The least bytes that a kernel must move through memory: each tensor that it reads and writes, once.

        Of a tensor that is read at places that are values, as many bytes as the kernel writes, or all.
        """
        program = self.program(kernel)
        written = sum(self.graph.type(name).nbytes for name in kernel.outputs)
        gathered = {load.tensor for load in program.reads if load.args}
        names = {*program.operands, *kernel.outputs}
        return sum(min(t.nbytes, written) if name in gathered else t.nbytes for name in names for t in (self.graph.type(name),))


#: Puts plans and the control in the order to try them, :data:`MOST_PLANS` at most.
Order = Callable[[Sequence[FusionPlan], FusionPlan], Sequence[FusionPlan]]


def control_last(found: Sequence[FusionPlan], control: FusionPlan) -> Sequence[FusionPlan]:
    """The first plans as they are, then the control."""
    return (*found[: MOST_PLANS - 1], control)


def plans(graph: OpGraph, templates: Sequence[Template], order: Order = control_last) -> tuple[FusionPlan, ...]:
    """All plans for a graph: for each of its rewritten variants, each way to cut its runs; and the control.

    ``templates`` are those that the device can run. ``order`` takes the plans with the fewest steps besides
    contractions first; by default it keeps that order.
    """
    found: dict[tuple, FusionPlan] = {}
    asked: tuple[_Asked, _Asked] = {}, {}
    refused: set[tuple[Any, ...]] = set()
    lowered: Lowered = {}
    everything = rewritten(graph, templates)
    own_moments = any(_kind(n) is Kind.MOMENTS for v in everything for n in v.graph.nodes)
    for variant in reversed(everything):
        # A library call updates running statistics in float32, with errors of its own.
        unbiased_only = own_moments and any(_kind(n) is Kind.BATCH_NORM and n.effect for n in variant.graph.nodes)
        usable = tuple(t for t in templates if not (unbiased_only and t.biased))
        for plan in _Cutter(variant, usable, asked[unbiased_only], refused, Programs(variant.graph, lowered)).plans():
            found.setdefault((plan.graph, plan.steps), plan)
    control = _plan(Variant((), graph), [Library(n.name) for n in graph.nodes], Programs(graph))
    return tuple(order(sorted(found.values(), key=_steps_besides_contractions), control))


def rewritten(graph: OpGraph, templates: Sequence[Template]) -> tuple[Variant, ...]:
    """The variants of a graph that templates can run."""
    known = {"channels_last": any(t.channels_last for t in templates), "attends": any(t.attends for t in templates)}
    return variants(graph, _whole(graph, templates), **known)


def _plan(variant: Variant, steps: Sequence[Step], programs: Programs) -> FusionPlan:
    return FusionPlan(_data(variant, steps), variant.rewrites, variant.graph, tuple(steps), programs)


def _whole(graph: OpGraph, templates: Sequence[Template]) -> frozenset[str]:
    """Nodes whose decompositions have a part that no template takes: they are better left to the library as a whole."""
    whole: frozenset[str] = frozenset()
    while any(n.parts and n.name not in whole for n in graph.nodes):
        variant = variants(graph, whole)[-1]
        cutter = _Cutter(variant, tuple(templates), {}, set(), Programs(variant.graph))
        parts = [n for n in cutter.graph.nodes if n.origin and n.name not in cutter.free and n.op not in LIBRARY_PARTS]
        left = {n.origin for n in parts if not cutter._fusable(n)}
        if left <= whole:
            break
        whole |= left
    return whole


def _most_choices(graph: OpGraph) -> int:
    """How many combinations of cuts are tried of one variant."""
    return max(MOST_PLANS // 4, 4 * MOST_PLANS * MANY_NODES // max(MANY_NODES, len(graph.nodes)))


def _steps_besides_contractions(plan: FusionPlan) -> int:
    """Kernels and library calls without a contraction; views and bookkeeping do not count."""
    steps = (step.nodes if isinstance(step, Kernel) else (step.node,) for step in plan.steps)
    nodes = ([plan.graph.node(name) for name in names] for names in steps)
    return sum(not (any(map(_is_contraction, step)) or all(_is_unnamed(plan.graph, n) for n in step)) for step in nodes)


def _kind(node: Node) -> Kind | None:
    """The kind of the node's operator; ``None`` of one that is not in the table."""
    return OPS[node.op].kind if node.op in OPS else None


def _is_contraction(node: Node) -> bool:
    return _kind(node) is Kind.CONTRACTION


def made_on_the_way(graph: OpGraph) -> frozenset[str]:
    """Nodes that cost nothing where they are read: views, and what is computed from indices and numbers alone."""
    found = graph.__dict__.get("_made_on_the_way")
    if found is None:
        indices: set[str] = set()
        for n in graph.nodes:
            kind = _kind(n)
            if kind is Kind.CONSTANT or (kind in (Kind.VIEW, Kind.POINTWISE) and n.values and indices.issuperset(n.values)):
                indices.add(n.name)
        views = {n.name for n in graph.nodes if _kind(n) is Kind.VIEW}
        found = frozenset(indices | views)
        object.__setattr__(graph, "_made_on_the_way", found)
    return found


def _is_unnamed(graph: OpGraph, node: Node) -> bool:
    return is_unnamed(node) or node.name in made_on_the_way(graph)


def _is_pointwise(node: Node) -> bool:
    return _kind(node) is Kind.POINTWISE


#: A part of a choice of cuts: the nodes of a kernel, or a library call.
_Piece = tuple[Node, ...] | Node

#: The templates that take kernels, by their structure: kernels of other layers, and of other variants of the graph.
_Asked = dict[tuple[Any, ...], "Template | None"]


@dataclass(frozen=True)
class _Taken:
    """A kernel of some nodes and the views between and before them, which are among ``nodes``; it stores ``outputs``."""

    nodes: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class _Cutter:
    """The ways to cut one variant of a graph into kernels that templates take, and library calls."""

    variant: Variant
    templates: tuple[Template, ...]
    _asked: _Asked
    _refused: set[tuple[Any, ...]]  # forms of nodes that make no kernel, of all variants
    _programs: Programs
    _known: dict[tuple[str, ...], _Taken | None] = field(default_factory=dict)

    @property
    def graph(self) -> OpGraph:
        return self.variant.graph

    @cached_property
    def free(self) -> frozenset[str]:
        """Nodes that are in no run, since each kernel that reads them computes them."""
        return made_on_the_way(self.graph) | self._cheap

    @cached_property
    def _cheap(self) -> frozenset[str]:
        """Maps of one stored value that cost next to nothing: reading that value moves no more bytes than reading the map's result.

        Values that follow the batch inside of other dimensions, too, since no kernel stores them. Each kernel that reads
        such a result computes it. All its users are operators that a template takes with the map.
        """
        graph, found = self.graph, made_on_the_way(self.graph)
        kept = {root for r in graph.returns for root in _roots(graph, found, r)} | graph.changed
        cheap: set[str] = set()
        for node in graph.nodes:
            if node.name in kept or not (self._is_cheap(node, cheap) or self._is_never_stored(node)):
                continue
            if any(kept & _roots(graph, found | cheap, value) for value in node.values):
                continue
            wider = found | cheap | {node.name}
            if all(self._takes_up(user, wider) for user in _users(graph, found, node.name)):
                cheap.add(node.name)
        return frozenset(cheap)

    def _is_cheap(self, node: Node, cheap: set[str]) -> bool:
        """Whether the node is a map of few operations of an input, or of a value that has fewer bytes than its result."""
        if node.effect or node.name in made_on_the_way(self.graph) or node.op not in OPS or len(set(node.values)) != 1:
            return False
        of, result = self.graph.type(node.values[0]).nbytes, node.type.nbytes if node.type else 0
        stored = all(r in cheap or not self.graph.producer(r) for r in _roots(self.graph, made_on_the_way(self.graph), node.values[0]))
        few = of_few(node) and stored and result >= of  # a thread that reads an element reads the others, too
        return few or (_is_pointwise(node) and OPS[node.op].flops <= CHEAP_FLOPS and (result > of or (stored and result == of)))

    def _is_never_stored(self, node: Node) -> bool:
        """Whether the node can be a part of kernels alone: ``torch.stack((x, y))`` of tensors whose rows follow the batch."""
        type_ = node.type
        return _kind(node) in (Kind.INDEXED, Kind.POINTWISE) and not node.effect and any(type_.multiples[1:]) and not type_.batch_inside

    def _takes_up(self, user: Node, free: frozenset[str]) -> bool:
        """Whether a kernel of this node can compute the free nodes that it reads. A contraction may be a library call."""
        if _kind(user) not in LOWERED - {Kind.CONTRACTION}:
            return False
        return self._template(next(_with_views(self.graph, free, (user.name,))), (user.name,)) is not None

    def plans(self) -> Iterator[FusionPlan]:
        """The variant's plans: those with contractions of our own, then those that leave them to the library."""
        own = frozenset(n.name for n in self.graph.nodes if self._fusable(n))
        rest = frozenset(name for name in own if not _is_contraction(self.graph.node(name)))
        if any(n.call is None and n.name not in own | self._cheap for n in self.graph.nodes):
            return  # no library call computes that operator
        for fusable in dict.fromkeys((own.union(*self._attention), own, rest)):
            yield from self._plans_without_spoilers(fusable)

    def _plans_without_spoilers(self, fusable: frozenset[str]) -> Iterator[FusionPlan]:
        """The plans of these nodes. Where there are none, a value that a kernel must compute again and cannot is a library call.

        ``embedding(ids)`` is such a value: a reduction does not store it, and no linear layer looks it up to add it.
        """
        spoilers: set[str] = set()
        found = list(self._plans_of(fusable, spoilers))
        calls = frozenset(name for name in spoilers & fusable if self.graph.node(name).call is not None)
        if found or not calls:
            yield from found
        else:
            yield from self._plans_without_spoilers(fusable - calls)

    def _plans_of(self, fusable: frozenset[str], spoilers: set[str]) -> Iterator[FusionPlan]:
        """Each way to cut the runs of these nodes; all others are library calls. ``spoilers`` are added to."""
        ordered = _order(self.graph, self.free, fusable, [group for group in self._attention if group <= fusable])
        runs = [list(run) for _, run in itertools.groupby(ordered, lambda n: n.name in fusable)]
        most = _most_choices(self.graph)
        options = [list(itertools.islice(self._cuts(run), most)) if run[0].name in fusable else [None] for run in runs]
        found = False
        for choice in itertools.islice(itertools.product(*options), most):
            pieces = [piece for run, cut in zip(runs, choice) for piece in (run if cut is None else cut)]
            steps = self._repaired(fusable, pieces, spoilers) if not found else self._steps(fusable, pieces, spoilers)
            if steps is not None and (any(isinstance(s, Kernel) for s in steps) or self.graph.folded):
                found = True
                yield _plan(self.variant, steps, self._programs)

    def _repaired(self, fusable: frozenset[str], pieces: list[_Piece], spoilers: set[str]) -> tuple[Step, ...] | None:
        """The steps of a choice of cuts. A value that a kernel does not store, and others need stored, becomes a kernel of its own."""
        for _ in range(REPAIRS):
            needed: set[str] = set()
            steps = self._steps(fusable, pieces, needed)
            if steps is not None:
                return steps
            spoilers |= needed
            again: list[_Piece] = []
            cut = False  # whether the piece in front is the rest of one that was cut: the next one may go on with it
            for piece in pieces:
                parts = list(self._cut_out(piece, needed))
                if cut and not isinstance(piece, Node) and len(parts) == 1 and self._takes((*again[-1], *piece)):
                    again[-1] = (*again[-1], *piece)
                else:
                    again += parts
                cut = len(parts) > 1 and parts[-1][-1].name not in needed
            if again == pieces:
                break
            pieces = again
        return None

    def _cut_out(self, piece: _Piece, values: set[str]) -> Iterator[_Piece]:
        """The piece in parts: each of the values alone, and what stands between them in as few kernels as it takes."""
        if isinstance(piece, Node) or values.isdisjoint(n.name for n in piece):
            yield piece
            return
        for number, group in itertools.groupby(enumerate(piece), lambda at: at[0] if at[1].name in values else -1):
            nodes = [node for _, node in group]
            yield from [(nodes[0],)] if number >= 0 else _pieces(nodes, self._greedy(nodes))

    def _taken(self, names: Sequence[str]) -> _Taken | None:
        """The kernel of these nodes, if a template takes it.

        It stores every value that other nodes use, or the last value and effects alone where no template stores the others.
        """
        key = tuple(names)
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, names: tuple[str, ...]) -> _Taken | None:
        effects, used = [n for n in names if self.graph.node(n).effect], _used_outside(self.graph, self.free, names)
        last = tuple(dict.fromkeys((*effects, names[-1])))
        for outputs in dict.fromkeys((used or last, last)):
            if self._returned & set(used) - set(outputs):
                continue  # no later kernel would store it
            for nodes in _with_views(self.graph, self.free, names):
                if self._template(nodes, outputs) is not None:
                    return _Taken(nodes, outputs)
        return None

    @cached_property
    def _returned(self) -> frozenset[str]:
        """The values that forward returns, or that views and free maps among these stand for."""
        return frozenset(root for r in self.graph.returns for root in _roots(self.graph, self.free, r))

    def _lowered(self, names: Sequence[str], outputs: Sequence[str], *, two_passes: bool = False) -> Program | None:
        return self._programs.lowered(tuple(names), tuple(outputs), two_passes=two_passes)

    def _template(self, nodes: Sequence[str], outputs: Sequence[str]) -> Template | None:
        """The template that takes the kernel of these nodes; models repeat their layers, so that most have been asked about."""
        alike = self.graph.structure(nodes, outputs)
        found = self._asked.get(alike, _NOT_ASKED)
        if found is _NOT_ASKED:
            found = self._asked[alike] = self._find_template(nodes, outputs)
        return found

    def _find_template(self, nodes: Sequence[str], outputs: Sequence[str]) -> Template | None:
        """The same, of one that has not been asked about. In a network, nodes make no kernel where others of their form made none."""
        form = self.graph.form(nodes, outputs) if len(self.graph.nodes) > MANY_NODES else None
        if form in self._refused:
            return None
        program = self._lowered(nodes, outputs)
        if program is None and form is not None:
            self._refused.add(form)
        return next((template for template in self.templates if program and template.takes(program)), None)

    def _takes(self, piece: Sequence[Node]) -> bool:
        """Whether these nodes can be one kernel."""
        return _connected(self.graph, self.free, piece) and self._taken([n.name for n in piece]) is not None

    def _fusable(self, node: Node) -> bool:
        """Whether the node can be a kernel of its own."""
        return _kind(node) in LOWERED and node.name not in self.free and self._takes((node,))

    def _cuts(self, run: list[Node]) -> Iterator[tuple[tuple[Node, ...], ...]]:
        """Ways to cut a run into kernels, each of which a template takes; the most fused first."""
        tried: set[tuple[bool, ...]] = set()
        if len(self.graph.nodes) > MANY_NODES and len(run) - 1 > ALL_CUTS:
            greedy = self._greedy(run)
            merged = self._merged(_pieces(run, greedy))
            if len(merged) <= sum(greedy):
                yield merged
        for mask in self._masks(run):
            pieces = _pieces(run, mask)
            if mask not in tried and all(self._takes(piece) for piece in pieces) and not self._half_fused(pieces):
                yield pieces
            tried.add(mask)

    def _merged(self, pieces: Sequence[tuple[Node, ...]]) -> tuple[tuple[Node, ...], ...]:
        """The pieces with two neighbours as one kernel where the piece in front of them leaves its last nodes to it.

        ``[linear, add, square] [mean, rsqrt] [mul]`` becomes ``[linear, add] [square, mean, rsqrt, mul]``: a kernel less, and
        the squares are not stored.
        """
        left, at = list(pieces), 0
        while at + 2 < len(left):
            first, second, third = left[at : at + 3]
            for kept in range(len(first) - 1, 0, -1):
                both = (*first[kept:], *second, *third)
                if self._takes(both) and self._takes(first[:kept]):
                    left[at : at + 3] = [first[:kept], both]
                    break
            else:
                at += 1
        return tuple(left)

    def _masks(self, run: list[Node]) -> Iterator[tuple[bool, ...]]:
        """Where a run may be cut, in the order of :meth:`_cuts`; of a long run, each takes long to find."""
        length = len(run)
        if length - 1 <= ALL_CUTS:
            yield from sorted(itertools.product((False, True), repeat=length - 1), key=sum)
            return
        greedy = self._greedy(run)
        yield greedy
        yield self._greedy(run, bare_contractions=True)
        yield self._greedy(run, narrow=True)
        more = [at for at in range(length - 1) if not greedy[at]]
        more = more[:: max(1, -(-len(more) // SOME_CUTS))] if length > LONG_RUN else more
        yield from (tuple(g or i == at for i, g in enumerate(greedy)) for at in more)
        yield from ((*greedy[:at], True, *self._greedy(run[at + 1 :])) for at in more)  # the rest may be longer pieces
        yield (True,) * (length - 1)

    def _half_fused(self, pieces: Sequence[tuple[Node, ...]]) -> bool:
        """Whether a contraction leaves a pointwise operator that it could take to another kernel, and cannot win so.

        That is so where it took others already, or where the other kernel is pointwise as a whole. Two kernels with results of one
        recurrence cannot win, either.
        """
        if any(_of_one_recurrence(piece[-1], following[0]) for piece, following in zip(pieces, pieces[1:])):
            return True
        return any(
            _is_contraction(piece[0])
            and _is_pointwise(following[0])
            and (len(piece) > 1 or all(_is_pointwise(n) for n in following))
            and self._takes((*piece, following[0]))
            for piece, following in zip(pieces, pieces[1:])
        )

    def _greedy(self, run: Sequence[Node], bare_contractions: bool = False, narrow: bool = False) -> tuple[bool, ...]:
        """Cuts such that each piece is as long as it can be; bare contractions stand alone.

        A ``narrow`` piece that another one follows ends where it stores the fewest bytes.
        """
        mask: list[bool] = []
        while len(mask) < len(run):
            rest = run[len(mask) :]
            length = 1 if bare_contractions and _is_contraction(rest[0]) else self._longest(rest)
            length = self._narrowest(rest[:length]) if narrow and length < len(rest) else length
            mask += [*[False] * (length - 1), True]
        return tuple(mask[:-1])

    def _narrowest(self, piece: Sequence[Node]) -> int:
        """How many nodes from the first leave the fewest bytes to later ones; the most of those that leave as few."""
        names = [n.name for n in piece]

        def stored(length: int) -> int:
            return sum(self.graph.type(name).nbytes for name in _used_outside(self.graph, self.free, names[:length]))

        lengths = sorted(range(1, len(piece) + 1), key=lambda length: (stored(length), -length))
        return next(length for length in lengths if length == len(piece) or self._takes(piece[:length]))

    def _longest(self, run: Sequence[Node]) -> int:
        """How many nodes from the first make a kernel to which the next one cannot be added.

        A kernel of many nodes grows by several at a time: each attempt lowers them all.
        """
        length, step, growing = self._attending(run), 1, True
        while step:
            if length + step <= len(run) and self._takes(run[: length + step]):
                length += step
                step = step * 2 if growing and length >= LONG_PIECE else max(1, step // 2)
            else:
                step, growing = step // 2, False
        return length

    @cached_property
    def _attention(self) -> tuple[frozenset[str], ...]:
        """The nodes of two contractions with a softmax between that make one kernel. By itself, each may make none."""
        found: list[frozenset[str]] = []
        for node in filter(_is_contraction, self.graph.nodes):
            names, waiting = {node.name}, [*_roots(self.graph, self.free, node.values[0])]
            while waiting and len(names) < MOST_ATTENDING:
                before = self.graph.producer(waiting.pop())
                if before is None or before.name in names or _kind(before) not in LOWERED:
                    continue
                names.add(before.name)
                if not _is_contraction(before):
                    waiting += [root for v in before.values for root in _roots(self.graph, self.free, v)]
            between = [n for n in self.graph.nodes if n.name in names]
            if len(between) > 2 and any(n.op == "softmax" for n in between) and self._takes(between):
                found.append(frozenset(names))
        return tuple(found)

    def _attending(self, run: Sequence[Node]) -> int:
        """How many nodes from the first are two contractions with a softmax between that make one kernel; 1 where they do not."""
        if not _is_contraction(run[0]):
            return 1
        end = next((at for at, node in enumerate(run[1:], 1) if _is_contraction(node)), 0)
        return end + 1 if any(n.op == "softmax" for n in run[:end]) and self._takes(run[: end + 1]) else 1

    def _steps(self, fusable: frozenset[str], pieces: Sequence[_Piece], spoilers: set[str]) -> tuple[Step, ...] | None:
        """The steps of one choice of cuts, with each kernel's name and outputs; ``None`` where a value is missing.

        ``spoilers`` then gets the values that are not stored, and that a library call reads or no template computes again.
        """
        graph = self.graph
        libraries = {n.name for n in graph.nodes} - fusable
        stored = libraries - self.free
        kernels: dict[int, _Taken] = {}
        for number, piece in enumerate(pieces):
            if isinstance(piece, Node):
                continue
            taken = self._taken([n.name for n in piece])
            assert taken is not None, "a cut has pieces that templates take"
            kernels[number] = self._complete(taken, stored)
            stored.update(taken.outputs)
        missing = {root for root in self._returned if root in fusable and root not in stored}
        whole = True
        last_read: dict[str, float] = {}  # the number of the last step that reads each value
        for number, piece in enumerate(pieces):
            for name in kernels[number].nodes if number in kernels else (piece.name,):
                last_read.update(dict.fromkeys(graph.node(name).values, number))
        last_read.update(dict.fromkeys(graph.returns, math.inf))
        steps: list[Step] = []
        called: set[str] = set()  # the nodes that library calls among the steps compute
        taken_names: set[str] = set()
        for number, piece in enumerate(pieces):
            if isinstance(piece, Node):
                roots = {root for v in piece.values for root in _roots(graph, self.free, v)}
                missing |= {root for root in roots if root not in stored and graph.producer(root)}
                steps += self._views_of(piece.values, called)
                steps.append(Library(piece.name))
                called.add(piece.name)
                continue
            taken = kernels[number]
            template = self._template(taken.nodes, taken.outputs)
            if template is None:
                missing |= set(taken.nodes) - {n.name for n in piece} - self.free
                whole = False
                continue
            program = self._lowered(taken.nodes, taken.outputs)
            steps += self._views_of(program.operands, called)
            over = None
            if template.in_place:
                in_two_passes = partial(self._lowered, taken.nodes, taken.outputs, two_passes=True)
                over = _overwrites(graph, program, in_two_passes, libraries, lambda value, number=number: last_read.get(value, -1) > number)
            own = {n.name for n in piece} | self._cheap
            name = kernel_name([label(graph.node(n)) for n in taken.nodes if n in own], taken_names)
            steps.append(Kernel(name, template.name, taken.nodes, taken.outputs, over))
        spoilers |= missing
        if missing or not whole:
            return None
        steps += self._views_of(graph.returns, called)
        return tuple(steps)

    def _complete(self, taken: _Taken, stored: set[str]) -> _Taken:
        """The kernel with the values that an earlier kernel computed and did not store: they are computed again."""
        nodes = list(taken.nodes)
        for name in taken.nodes:
            nodes = _pulled(self.graph, self.free, self.graph.node(name), stored, nodes) + nodes
        return replace(taken, nodes=tuple(dict.fromkeys(nodes)))

    def _views_of(self, values: Sequence[str], made: set[str]) -> list[Step]:
        """The library's calls that make these values on the way, but for those that are ``made``, to which they are added."""
        found = dict.fromkeys(n for v in values for n in _on_the_way(self.graph, self.free, v) if n not in made)
        made.update(found)
        return [*map(Library, found)]


def _roots(graph: OpGraph, free: frozenset[str], value: str) -> frozenset[str]:
    """The value that this one is a view or a free map of; itself where it is neither; nothing where indices alone make it."""
    return _ways(graph, free, value)[0]


def _on_the_way(graph: OpGraph, free: frozenset[str], value: str) -> tuple[str, ...]:
    """The value and those before it that are made on the way to it, in order; none where it is an ordinary value."""
    return _ways(graph, free, value)[1]


def _ways(graph: OpGraph, free: frozenset[str], value: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Both of the above, worked out once: each piece of each plan asks for them."""
    of, known = graph.__dict__.get("_ways", (None, {}))
    if of is not free:
        of, known = graph.__dict__["_ways"] = free, {}
    if value not in known:
        node = graph.producer(value)
        if node is None or value not in free:
            known[value] = frozenset((value,)), ()
        else:
            ways = [_ways(graph, free, v) for v in node.values]
            known[value] = frozenset().union(*(roots for roots, _ in ways)), (*(name for _, chain in ways for name in chain), value)
    return known[value]


def _users(graph: OpGraph, views: frozenset[str], name: str) -> Iterator[Node]:
    """The nodes that read the value, directly or through views."""
    for user in graph.users(name):
        yield from _users(graph, views, user.name) if user.name in views else (user,)


def _with_views(graph: OpGraph, free: frozenset[str], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The nodes with all the views that they read through, then with those of their own results alone; free maps in both."""
    inside = set(names)
    every: list[str] = []
    inner: list[str] = []
    for name in names:
        for value in graph.node(name).values:
            chain = _on_the_way(graph, free, value)
            every += chain
            inner += chain if _roots(graph, free, value) <= inside or not made_on_the_way(graph).issuperset(chain) else []
        every.append(name)
        inner.append(name)
    yield tuple(dict.fromkeys(every))
    if len(set(inner)) < len(set(every)):
        yield tuple(dict.fromkeys(inner))


def _order(graph: OpGraph, free: frozenset[str], fusable: frozenset[str], groups: Sequence[frozenset[str]] = ()) -> list[Node]:
    """The nodes but free ones, with library calls as early as their operands allow: chains behind them stay in one piece.

    The nodes of a group stay in one piece, too: they come as soon as the values are there that the whole group reads.

    Nodes with effects keep their places among each other, and before and after the nodes that read what they change.
    """
    nodes = [n for n in graph.nodes if n.name not in free]
    read = {n.name: {root for v in n.values for root in _roots(graph, free, v)} for n in nodes}
    touched = graph.changed
    ordered = [n for n in nodes if n.effect or touched & read[n.name]]
    before = {b.name: a.name for a, b in zip(ordered, ordered[1:])}
    places = {n.name: at for at, n in enumerate(nodes)}
    missing = {n.name: {v for v in (*read[n.name], before.get(n.name, "")) if v in places} for n in nodes}
    for group in groups:
        outside = {v for name in group for v in missing[name]} - group
        if not any(_leads_to(missing, v, group) for v in outside):
            for name in group:
                missing[name] |= outside
    waiting: dict[str, list[str]] = {}  # the nodes that miss a value
    for name, values in missing.items():
        for value in values:
            waiting.setdefault(value, []).append(name)
    at_hand = [at for at, n in enumerate(nodes) if not missing[n.name]]
    out: list[Node] = []
    while at_hand:
        ready = [nodes[at] for at in at_hand]
        libraries = [n for n in ready if n.name not in fusable]
        follows = [n for n in ready if out and out[-1].name in read[n.name]]
        effects = [n for n in ready if n.effect and n.name in fusable]
        alike = [n for n in ready if out and _reduce_alike(n, out[-1])]
        together = [n for n in alike if _of_one_recurrence(n, out[-1])]
        node = (together or libraries or effects or alike or follows or ready)[0]
        at_hand.remove(places[node.name])
        for name in waiting.get(node.name, ()):
            missing[name].discard(node.name)
            if not missing[name]:
                bisect.insort(at_hand, places[name])
        out.append(node)
    return out


def _leads_to(missing: Mapping[str, set[str]], value: str, group: frozenset[str]) -> bool:
    """Whether the value is made from one of the group."""
    seen, left = set[str](), [value]
    while left:
        name = left.pop()
        if name in group:
            return True
        if name not in seen:
            seen.add(name)
            left += missing.get(name, ())
    return False


def _reduce_alike(a: Node, b: Node) -> bool:
    """Whether one loop finds both results.

    They are reductions of one value along the same dimensions, scatters at the same places, or results of one recurrence.
    """
    if _of_one_recurrence(a, b):
        return True
    if {_kind(a), _kind(b)} == {Kind.SCATTER}:
        return not set(a.values[1:]).isdisjoint(b.values[1:])
    return {_kind(a), _kind(b)} == {Kind.REDUCTION} and of_few(a) == of_few(b) and a.inputs[0] == b.inputs[0] and a["dims"] == b["dims"]


def _of_one_recurrence(a: Node, b: Node) -> bool:
    """Whether both nodes are results of the same layers."""
    return _kind(a) is Kind.RECURRENCE and (a.op, a.inputs) == (b.op, b.inputs)


def _pieces(run: Sequence[Node], mask: Sequence[bool]) -> tuple[tuple[Node, ...], ...]:
    ends = [0, *(at for at, cut in enumerate(mask, 1) if cut), len(run)]
    return tuple(tuple(run[start:end]) for start, end in itertools.pairwise(ends))


def _connected(graph: OpGraph, free: frozenset[str], piece: Sequence[Node]) -> bool:
    """Whether every node but the first reads an earlier one, or a value that an earlier one reads; views do not count."""
    seen: set[str] = set()
    for node in piece:
        read = {root for v in node.values for root in _roots(graph, free, v)}
        if seen and not seen & read:
            return False
        seen |= read | {node.name}
    return True


def _used_outside(graph: OpGraph, free: frozenset[str], names: Sequence[str]) -> tuple[str, ...]:
    """The values that are returned, or that nodes outside read, directly or through free ones."""
    inside = set(names)

    def leaves(name: str) -> bool:
        users = graph.users(name)
        outer = any(leaves(u.name) if u.name in free else u.name not in inside for u in users)
        return outer or graph.node(name).effect or name in graph.returns

    return tuple(n for n in names if leaves(n))


def _pulled(graph: OpGraph, free: frozenset[str], node: Node, stored: set[str], have: list[str]) -> list[str]:
    """Operands of the node that no kernel stored, in order, with what they need in turn. Views of stored ones are none of them."""
    out: list[str] = []
    for value in node.values:
        producer = graph.producer(value)
        views = made_on_the_way(graph).issuperset(_on_the_way(graph, free, value))
        made = views and all(root in stored or not graph.producer(root) for root in _roots(graph, free, value))
        if producer is not None and not made and value not in have:
            out.extend(_pulled(graph, free, producer, stored, have))
            out.append(value)
    return out


def _overwrites(
    graph: OpGraph, program: Program, in_two_passes: Callable[[], Program | None], libraries: set[str],
    needed: Callable[[str], bool],
) -> str | None:
    """An operand that the kernel's one full-size output may be written over, since nothing is ``needed`` of it afterwards.

    ``in_two_passes`` lowers the kernel's program with reductions that take two passes.
    """
    stores = [s for s in program.stores if s.level == "element"]
    if len(stores) != 1:
        return None
    for load in program.loads:
        if not program.reads_in_place(load, stores[0]) or graph.type(load.tensor) != graph.type(stores[0].tensor):
            continue
        aliases = _aliases(graph, load.tensor, libraries)
        fresh = graph.producer(load.tensor) is not None and not _may_be_view(graph, load.tensor, libraries)
        read = {x.tensor for x in program.reads if x is not load}.union(program.contraction.reads if program.contraction else ())
        if not fresh or aliases & read or any(map(needed, aliases)) or _read_after_store(program, load.tensor):
            continue
        other = in_two_passes()
        if other is not None and not _read_after_store(other, load.tensor):
            return load.tensor
    return None


def _may_be_view(graph: OpGraph, name: str, libraries: set[str]) -> bool:
    """Whether a library call's result may share an operand's memory. Those of the table have a result of their own.

    A copy, or a cast to the same dtype, is none where the operand lies as wanted.
    """
    if name not in libraries:
        return False
    node = graph.node(name)
    kept = node.op in ("copy", "cast") and graph.type(node.values[0]).dtype == node.type.dtype
    return kept or OPS.get(node.op, OPS["identity"]).kind in (Kind.IDENTITY, Kind.VIEW)


def _aliases(graph: OpGraph, tensor: str, libraries: set[str]) -> set[str]:
    """The tensor, and the values that may share its memory."""
    found, waiting = {tensor}, [tensor]
    while waiting:
        views = [n.name for n in graph.users(waiting.pop()) if n.name not in found and _may_be_view(graph, n.name, libraries)]
        found.update(views)
        waiting += views
    return found


def _read_after_store(program: Program, tensor: str) -> bool:
    """Whether a pass that reads the row again reads the tensor after an element was stored."""
    passes = passes_of(program, keep=False).passes
    stored = next(p.number for p in passes if p.stores)
    return any(x.tensor == tensor for p in passes[stored + 1 :] for x in p.loads)


def kernel_name(labels: Sequence[str], taken: set[str]) -> str:
    """A name for a kernel of operators with these labels, which is added to those ``taken``."""
    stem = "_".join(labels)[:60]
    if stem in _C_FUNCTIONS:
        stem = f"{stem}_kernel"
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    taken.add(name)
    return name


def _data(variant: Variant, steps: Sequence[Step]) -> Plan:
    """The steps and rewrites that a plan's name shows."""
    graph = variant.graph
    shown: list[tuple[str, list[str]]] = []
    for step in steps:
        if isinstance(step, Kernel):
            shown.append((step.schedule, step.operators(graph)))
        elif not _is_unnamed(graph, graph.node(step.node)):
            shown.append(("", [label(graph.node(step.node))]))
    return Plan.of_mode(shown, variant.shown)
