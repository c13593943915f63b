"""Plans, and the steps that they are made of: kernels of our own and library calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Mapping, Sequence

from kgen.candidate import Plan, kernel_label
from kgen.compiler.fusion.programs import Programs
from kgen.compiler.fusion.values import made_on_the_way
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.loops.program import Program
from kgen.compiler.operators.facts import is_unnamed, label
from kgen.compiler.rewrites.table import Variant

#: Functions of the C library and of CUDA: a kernel of one operator of that name has another name.
_C_FUNCTIONS = frozenset(
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh div erf erfc exp exp2 expm1 fdim floor fma "
    "fmax fmin "
    "fmod frexp gamma hypot index isfinite isinf isnan ldexp lgamma log log10 log1p log2 logb modf nan nearbyint "
    "nextafter norm pow "
    "remainder remove rint round rsqrt select signbit sin sinh sqrt tan tanh tgamma trunc".split()
)


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
        return kernel_label(self.schedule, self.operators(graph))

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
        return self.data.name

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

        A gather reads as many bytes of a tensor as the kernel writes, or all of the tensor if that is less.
        """
        program = self.program(kernel)
        written = sum(self.graph.type(name).nbytes for name in kernel.outputs)
        gathered = {load.tensor for load in program.reads if load.args}
        names = {*program.operands, *kernel.outputs}
        return sum(
            min(t.nbytes, written) if name in gathered else t.nbytes for name in names for t in (self.graph.type(name),)
        )


def plan_of(variant: Variant, steps: Sequence[Step], programs: Programs) -> FusionPlan:
    return FusionPlan(_data(variant, steps), variant.rewrites, variant.graph, tuple(steps), programs)


def is_not_shown(graph: OpGraph, node: Node) -> bool:
    return is_unnamed(node) or node.name in made_on_the_way(graph)


def _data(variant: Variant, steps: Sequence[Step]) -> Plan:
    """The steps and rewrites that a plan's name shows."""
    graph = variant.graph
    shown: list[tuple[str, list[str]]] = []
    for step in steps:
        if isinstance(step, Kernel):
            shown.append((step.schedule, step.operators(graph)))
        elif not is_not_shown(graph, graph.node(step.node)):
            shown.append(("", [label(graph.node(step.node))]))
    return Plan.of_mode(shown, variant.shown)


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
