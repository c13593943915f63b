"""Fusion plans: ways to cut a graph into kernels of our own and library calls.

    linear ── gelu ── softmax
    ├─ gemm[linear] + row[gelu, softmax]               a product of our own, where the device has the family ``gemm``
    ├─ gemm[linear, gelu] + row[softmax]               the maps behind it in its epilogue (statistics over the batch, too)
    ├─ linear(library) + row[gelu, softmax]            fused behind the library's product
    ├─ linear(library) + map[gelu] + row[softmax]      one kernel for each operator
    └─ linear(library) + gelu(library) + softmax(library)    the control: everything left to the library

Operators that follow one another and can be lowered together form *runs*; a plan cuts each run into kernels. What is
no map, row operator, statistics or product stays a library call. A value that statistics over the batch read on the way (a
scaled product) is not stored by their kernel, unless a product begins it: who needs it later computes it again from what is
stored.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Iterator, Sequence

from kgen.compiler.graph import Node, OpGraph
from kgen.compiler.loops import NotFusable, Program, lower
from kgen.compiler.operators import OPS
from kgen.compiler.rewrites import Variant, variants
from kgen.compiler.schedule import schedule

#: Runs up to this length are cut in every way; longer ones in the ways that matter most.
ALL_CUTS = 4
#: How many plans a problem gets at most; the plainest and the most fused come first.
MOST_PLANS = 24

#: Families that every kind of device has.
CHAINS = frozenset({"map", "row", "column"})

#: What the C library calls by the same name: a kernel of one such operator is called otherwise.
_C_FUNCTIONS = frozenset("abs cos div erf exp expm1 log log1p pow sin sqrt tanh".split())

#: Operators that are only bookkeeping or a view: they are run, and left out of a plan's name.
_UNNAMED = {"aten.select.int", "aten.add_.Tensor", "_operator.getitem", "aten.view.default", "aten.reshape.default"}


@dataclass(frozen=True)
class Library:
    """A node that is a library call."""

    node: str


@dataclass(frozen=True)
class Kernel:
    """Nodes that are one kernel of our own: what it computes, stores, and may write over.

    ``overwrites`` names a tensor of the output's shape that nothing needs after this kernel: a library product's own
    result, or another kernel's output.
    """

    name: str
    family: str
    nodes: tuple[str, ...]
    outputs: tuple[str, ...]
    overwrites: str | None = None

    def label(self, graph: OpGraph) -> str:
        """The kernel as a plan's name has it: ``row[gelu, softmax]``."""
        return f"{self.family}[{', '.join(_label(graph.node(n)) for n in self.nodes)}]"


Step = Library | Kernel


@dataclass(frozen=True)
class FusionPlan:
    """One way to run a graph, with a readable name."""

    name: str
    rewrites: tuple[str, ...]
    graph: OpGraph
    steps: tuple[Step, ...]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(s for s in self.steps if isinstance(s, Kernel))

    @property
    def control(self) -> bool:
        """Whether everything is left to the library as it stands: no kernel, and no weights folded."""
        return not self.kernels and not self.graph.derived

    def program(self, kernel: Kernel, *, two_sweeps: bool = False) -> Program:
        return lower(self.graph, kernel.nodes, kernel.outputs, two_sweeps=two_sweeps)

    def bytes_moved(self, kernel: Kernel) -> int:
        """The least that a kernel must move through memory: each tensor that it reads and writes, once."""
        program = self.program(kernel)
        names = {*program.tensors, *kernel.outputs}
        if program.product:
            names |= {program.product.x, program.product.weight}
        return sum(self.graph.type(name).nbytes for name in names)


def plans(graph: OpGraph, families: frozenset[str] = CHAINS) -> tuple[FusionPlan, ...]:
    """All plans for a graph: for each of its rewritten variants, each way to cut its runs; the control comes last.

    ``families`` are those of which the device has kernels. Plans with as few steps behind the products come first.
    """
    found: dict[tuple, FusionPlan] = {}
    everything = variants(graph)
    own_statistics = any(n.op == "batch_statistics" for v in everything for n in v.graph.nodes)
    for variant in reversed(everything):
        lossy = own_statistics and _library_statistics(variant.graph)
        for plan in _plans_of(variant, families - {"gemm"} if lossy else families):
            found.setdefault((plan.graph, plan.steps), plan)
    control = _control(Variant((), graph))
    fused = sorted(found.values(), key=_steps_behind_products)
    return (*fused[: MOST_PLANS - 1], control)


def _steps_behind_products(plan: FusionPlan) -> int:
    """Kernels and library calls that are no products, views or bookkeeping."""
    kernels = sum(kernel.family != "gemm" for kernel in plan.kernels)
    ops = [plan.graph.node(step.node).op for step in plan.steps if isinstance(step, Library)]
    return kernels + sum(op not in _UNNAMED and not (op in OPS and OPS[op].kind == "anchor") for op in ops)


def _library_statistics(graph: OpGraph) -> bool:
    """Whether the library keeps running statistics. In its float32, what tensor cores truncate in a product, which no mean
    over the batch takes away, comes on top of errors of its own: statistics of our own are finished in float64."""
    return any(n.op == "batch_norm" and n.effect for n in graph.nodes)


def _control(variant: Variant) -> FusionPlan:
    steps = tuple(Library(n.name) for n in variant.graph.nodes)
    return FusionPlan(_name(variant, steps), variant.rewrites, variant.graph, steps)


def _plans_of(variant: Variant, families: frozenset[str]) -> Iterator[FusionPlan]:
    """The variant's plans: those with products of our own, where the device has kernels for them, before the others."""
    graph = variant.graph
    fusable = {n.name: OPS[n.op].kind for n in graph.nodes if _fusable(graph, n)}
    chains = frozenset(name for name, kind in fusable.items() if kind != "anchor")
    if any(OPS[n.op].kind == "column" and n.name not in chains for n in graph.nodes if n.op in OPS):
        return  # the library has no call for statistics alone
    if "gemm" in families and len(chains) < len(fusable):
        yield from _cut_plans(variant, frozenset(fusable))
    yield from _cut_plans(variant, chains)


def _cut_plans(variant: Variant, fusable: frozenset[str]) -> Iterator[FusionPlan]:
    """Each way to cut the runs of these nodes; all others are library calls."""
    graph = variant.graph
    runs = _runs(graph, fusable)
    options = [list(_cuts(graph, run)) if run[0].name in fusable else [None] for run in runs]
    for choice in itertools.islice(itertools.product(*options), 4 * MOST_PLANS):
        steps = _steps(graph, fusable, runs, choice)
        if steps is not None and (any(isinstance(s, Kernel) for s in steps) or variant.graph.derived):
            yield FusionPlan(_name(variant, steps), variant.rewrites, variant.graph, steps)


def _fusable(graph: OpGraph, node: Node) -> bool:
    """Whether the node can be a kernel of its own."""
    op = OPS.get(node.op)
    return op is not None and op.kind in ("map", "row", "column", "anchor") and _lowers(graph, (node,))


def _runs(graph: OpGraph, fusable: frozenset[str]) -> list[list[Node]]:
    """Nodes in an order in which they can be run, fusable ones that follow one another together."""
    runs: list[list[Node]] = []
    for node in _order(graph, fusable):
        if runs and node.name in fusable and runs[-1][0].name in fusable:
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def _order(graph: OpGraph, fusable: frozenset[str]) -> list[Node]:
    """The nodes with library calls as early as their operands allow, so that chains behind them stay in one piece.

    Nodes with effects keep their places among each other and before and after whoever reads what they change.
    """
    touched = {value for n in graph.nodes if n.effect for value in n.values if graph.is_weight(value)}
    ordered = [n for n in graph.nodes if n.effect or touched & set(n.values)]
    before = {b.name: a.name for a, b in zip(ordered, ordered[1:])}
    waiting = list(graph.nodes)
    made: set[str] = set()
    names = {n.name for n in graph.nodes}
    out: list[Node] = []
    while waiting:
        ready = [
            n for n in waiting
            if all(v in made or v not in names for v in n.values) and before.get(n.name, n.name) in made | {n.name}
        ]  # fmt: skip
        libraries = [n for n in ready if n.name not in fusable]
        follows = [n for n in ready if out and out[-1].name in n.values]
        node = (libraries or follows or ready)[0]
        waiting.remove(node)
        made.add(node.name)
        out.append(node)
    return out


def _cuts(graph: OpGraph, run: list[Node]) -> Iterator[tuple[tuple[Node, ...], ...]]:
    """Ways to cut a run into kernels, those of which every piece can be lowered; the most fused first."""
    length = len(run)
    masks: list[tuple[bool, ...]]
    if length - 1 <= ALL_CUTS:
        masks = sorted(itertools.product((False, True), repeat=length - 1), key=sum)
    else:
        greedy = _greedy(graph, run)
        masks = [greedy, _greedy(graph, run, bare_products=True)]
        masks += [tuple(g or i == at for i, g in enumerate(greedy)) for at in range(length - 1) if not greedy[at]]
        masks.append((True,) * (length - 1))
    for mask in dict.fromkeys(masks):
        pieces = _pieces(run, mask)
        if all(_lowers(graph, piece) for piece in pieces) and not _half_fused(graph, pieces):
            yield pieces


def _half_fused(graph: OpGraph, pieces: Sequence[tuple[Node, ...]]) -> bool:
    """Whether a product leaves a map that it could take behind others, or to a kernel of maps alone: neither can win."""
    return any(
        _is_product(piece[0])
        and OPS[following[0].op].kind == "map"
        and (len(piece) > 1 or all(OPS[n.op].kind == "map" for n in following))
        and _lowers(graph, (*piece, following[0]))
        for piece, following in zip(pieces, pieces[1:])
    )


def _is_product(node: Node) -> bool:
    return OPS[node.op].kind == "anchor"


def _pieces(run: Sequence[Node], mask: Sequence[bool]) -> tuple[tuple[Node, ...], ...]:
    pieces: list[list[Node]] = [[run[0]]]
    for node, cut in zip(run[1:], mask):
        if cut:
            pieces.append([node])
        else:
            pieces[-1].append(node)
    return tuple(tuple(p) for p in pieces)


def _greedy(graph: OpGraph, run: Sequence[Node], bare_products: bool = False) -> tuple[bool, ...]:
    """Cuts such that each piece is as long as it can be, but for products that are to stand alone."""
    mask: list[bool] = []
    piece = [run[0]]
    for node in run[1:]:
        if not (bare_products and _is_product(piece[0])) and _lowers(graph, (*piece, node)):
            piece.append(node)
            mask.append(False)
        else:
            piece = [node]
            mask.append(True)
    return tuple(mask)


def _lowers(graph: OpGraph, piece: Sequence[Node]) -> bool:
    names = [n.name for n in piece]
    try:
        lower(graph, names, _used_outside(graph, names) or names[-1:])
    except NotFusable:
        return False
    return _connected(piece)


def _connected(piece: Sequence[Node]) -> bool:
    """Whether every node but the first touches an earlier one, by reading it or by reading what it reads."""
    seen = set(piece[0].values) | {piece[0].name}
    for node in piece[1:]:
        if not seen & set(node.values):
            return False
        seen |= set(node.values) | {node.name}
    return True


def _used_outside(graph: OpGraph, names: Sequence[str]) -> tuple[str, ...]:
    inside = set(names)
    return tuple(
        n for n in names if n in graph.returns or any(u.name not in inside for u in graph.users(n))
    )


#: Families with the kind of operator that makes a kernel one of them, the most telling first.
_FAMILIES = (("gemm", "anchor"), ("column", "column"), ("row", "row"), ("map", "map"))


def _family(graph: OpGraph, nodes: Sequence[str]) -> str:
    kinds = {OPS[graph.node(n).op].kind for n in nodes}
    return next(family for family, kind in _FAMILIES if kind in kinds)


def _steps(
    graph: OpGraph, fusable: frozenset[str], runs: list[list[Node]], choice: tuple
) -> tuple[Step, ...] | None:
    """The steps of one choice of cuts, kernels named and told what to store; ``None`` where a piece cannot be lowered."""
    pieces: list[tuple[Node, ...] | Node] = []
    for run, cut in zip(runs, choice):
        pieces.extend(run if cut is None else cut)
    libraries = {n.name for n in graph.nodes if n.name not in fusable}
    stored = set(libraries)
    kernels: dict[int, tuple[list[str], tuple[str, ...]]] = {}
    for number, piece in enumerate(pieces):
        if isinstance(piece, Node):
            continue
        nodes = [n.name for n in piece]
        unstored = OPS[piece[-1].op].kind == "column" and not _is_product(piece[0])
        outputs = tuple(nodes[-1:]) if unstored else _used_outside(graph, nodes)
        # What an earlier kernel computed on its way and did not store is computed again here.
        for node in piece:
            nodes = _pulled(graph, node, stored, nodes) + nodes
        kernels[number] = (list(dict.fromkeys(nodes)), outputs)
        stored.update(outputs)
    if any(r in fusable and r not in stored for r in graph.returns):
        return None
    steps: list[Step] = []
    taken: set[str] = set()
    for number, piece in enumerate(pieces):
        if isinstance(piece, Node):
            if any(v not in stored and graph.producer(v) for v in piece.values):
                return None
            steps.append(Library(piece.name))
            continue
        nodes, outputs = kernels[number]
        try:
            lower(graph, nodes, outputs)
        except NotFusable:
            return None
        name = _kernel_name(graph, [n.name for n in piece], taken)
        later = {v for n in range(number + 1, len(pieces)) for v in _reads(pieces[n], kernels.get(n), graph)}
        family = _family(graph, nodes)
        needed = later | set(graph.returns)
        over = _overwrites(graph, nodes, outputs, libraries, needed)
        steps.append(Kernel(name, family, tuple(nodes), outputs, over))
    return tuple(steps)


def _reads(piece: tuple[Node, ...] | Node, kernel: tuple[list[str], tuple[str, ...]] | None, graph: OpGraph) -> set[str]:
    if isinstance(piece, Node):
        return set(piece.values)
    return {v for name in kernel[0] for v in graph.node(name).values}


def _pulled(graph: OpGraph, node: Node, stored: set[str], have: list[str]) -> list[str]:
    """Maps that the node needs and nobody stored, in order."""
    out: list[str] = []
    for value in node.values:
        producer = graph.producer(value)
        if producer is not None and value not in stored and value not in have:
            out.extend(_pulled(graph, producer, stored, have))
            out.append(value)
    return out


def _overwrites(
    graph: OpGraph, nodes: Sequence[str], outputs: Sequence[str], libraries: set[str], needed: set[str]
) -> str | None:
    """An operand that may be written over by the kernel's one full-size output, as nothing needs it afterwards.

    A product's output is written before its other operands are read.
    """
    programs = [lower(graph, nodes, outputs, two_sweeps=two_sweeps) for two_sweeps in (False, True)]
    program = programs[0]
    stores = [s for s in program.stores if s.level == "element"]
    if len(stores) != 1 or program.result is not None or program.product is not None:
        return None
    for load in program.loads:
        if not load.access.full or graph.type(load.tensor) != graph.type(stores[0].tensor):
            continue
        aliases = _aliases(graph, load.tensor, libraries)
        fresh = graph.producer(load.tensor) is not None and not _may_be_view(graph, load.tensor, libraries)
        read = {x.tensor for x in program.loads} - {load.tensor}
        if fresh and not aliases & (needed | read) and not any(_read_after_store(p, load.tensor) for p in programs):
            return load.tensor
    return None


def _may_be_view(graph: OpGraph, name: str, libraries: set[str]) -> bool:
    """Whether a library call's result may share an operand's memory. Those of the table have a result of their own."""
    return name in libraries and OPS.get(graph.node(name).op, OPS["identity"]).kind == "identity"


def _aliases(graph: OpGraph, tensor: str, libraries: set[str]) -> set[str]:
    """The tensor, and the values that may share its memory."""
    found = {tensor}
    for node in graph.nodes:
        if found & set(node.values) and _may_be_view(graph, node.name, libraries):
            found.add(node.name)
    return found


def _read_after_store(program: Program, tensor: str) -> bool:
    """Whether a sweep that reads the row again reads the tensor after an element was stored."""
    sweeps = schedule(program, keep=False).sweeps
    stored = next(s.number for s in sweeps if s.stores)
    return any(x.tensor == tensor for s in sweeps[stored + 1 :] for x in s.loads)


_LABELS = {"lerp_affine": "affine", "normalise_affine": "normalise", "batch_statistics": "statistics", "pow_scalar": "pow"}


def _label(node: Node) -> str:
    if node.op in OPS:
        return _LABELS.get(node.op, node.op)
    return node.op.split(".")[1].rstrip("_") if "." in node.op else node.op


def _kernel_name(graph: OpGraph, nodes: Sequence[str], taken: set[str]) -> str:
    stem = "_".join(_label(graph.node(n)) for n in nodes)[:60]
    if stem in _C_FUNCTIONS:
        stem = f"{stem}_kernel"
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}_{count}"
    taken.add(name)
    return name


def _name(variant: Variant, steps: Sequence[Step]) -> str:
    graph = variant.graph
    parts = []
    for step in steps:
        if isinstance(step, Kernel):
            parts.append(step.label(graph))
        elif graph.node(step.node).op not in _UNNAMED:
            parts.append(f"{_label(graph.node(step.node))}(library)")
    shown = [r for r in variant.rewrites if r not in ("drop_identity", "matmul_to_linear", "split_batchnorm")]
    return " + ".join(parts) + (f" after {', '.join(shown)}" if shown else "")
