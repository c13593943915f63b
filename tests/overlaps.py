"""Whether a kernel writes what another element of its loops still reads: a count of all elements, from its program alone.

The loops run over every element here, so that no rule about index expressions has to be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import sympy
import torch

from kgen.compiler.fusion.steps import FusionPlan, Kernel
from kgen.compiler.loops.access import Place
from kgen.compiler.loops.indices import COLUMNS, Size
from kgen.compiler.loops.program import ELEMENT, ROW, Load, Program, Reduce, Store

MOST_ELEMENTS = 1 << 21  # elements of one kernel's loops; the problems of tests are smaller

_C = {"FloorDiv": lambda a, b: a // b, "Modulo": lambda a, b: a % b}


@dataclass
class Loops:
    """The elements of a program's loops, at the captured batch; ``tensors`` gives each tensor's number of elements."""

    program: Program
    batch: int
    tensors: dict[str, int]
    known: dict[sympy.Expr, torch.Tensor] = field(default_factory=dict)

    def size(self, size: Size) -> int:
        return size if isinstance(size, int) else size.multiple * self.batch

    @cached_property
    def axes(self) -> dict[sympy.Symbol, torch.Tensor]:
        """The index of each axis at every element."""
        loops = (*self.program.row_loops, *self.program.col_loops)
        sizes = [self.size(loop.extent) for loop in loops]
        assert torch.Size(sizes).numel() <= MOST_ELEMENTS, "the problem is too large to count its elements"
        grids = torch.meshgrid(*map(torch.arange, sizes), indexing="ij") if sizes else ()
        return {loop.symbol: grid.flatten() for loop, grid in zip(loops, grids, strict=True)}

    @cached_property
    def count(self) -> int:
        return len(next(iter(self.axes.values()), torch.zeros(1)))

    def values(self, expression: sympy.Expr) -> torch.Tensor:
        """The expression at every element."""
        if expression not in self.known:
            inputs = {**self.axes, COLUMNS: self.size(self.program.col_size)}
            function = sympy.lambdify(list(inputs), expression, modules=[_C, "math"])
            self.known[expression] = torch.as_tensor(function(*inputs.values())).expand(self.count)
        return self.known[expression]

    def addresses(self, place: Place) -> torch.Tensor:
        """The element of the tensor for each element of the loops; -1 where the mask does not hold."""
        found = self.values(place.offset).clone()
        for within in place.mask:
            index = self.values(within.index)
            found[(index < 0) | (index >= self.size(within.size))] = -1
        return found

    def overlaps(self, load: Load, store: Store) -> bool:
        """Whether an element of the loops may read what another one writes, or what it has written itself in an earlier pass.

        A row value is written once a row, behind all that the row reads.
        """
        if load not in self.program.loads or load.args:  # a window, a contraction or a looked up element reads many
            return True
        read, put = self.addresses(load.access), self.addresses(store.access)
        cols = math.prod(self.size(loop.extent) for loop in self.program.col_loops) if store.level == ROW else 1
        writers = torch.arange(self.count) // cols
        writer_of = torch.full((self.tensors[load.tensor],), -1)
        writer_of[put] = writers
        if not torch.equal(writer_of[put], writers):
            return True  # two of them write one element
        of_read = torch.where(read < 0, -1, writer_of[read])
        apart = (of_read >= 0) & (of_read != writers)
        return bool(apart.any()) or (load.level == ELEMENT and self.read_later(load.name, store))

    def read_later(self, value: str, store: Store) -> bool:
        """Whether a pass after the one that stores needs the value again."""
        steps = {name: step for step in self.program.steps for name in (step.names if isinstance(step, Reduce) else (step.name,))}

        def passes(name: str) -> int:
            step = steps.get(name)
            return max(map(passes, step.args), default=0) + isinstance(step, Reduce) if step else 0

        def needs(name: str) -> bool:
            step = steps.get(name)
            return name == value or (step is not None and not isinstance(step, Reduce) and any(map(needs, step.args)))

        made_by = passes(store.arg)
        reductions = [passes(r.names[0]) - 1 for r in self.program.reductions if any(map(needs, r.args))]
        return any(at > made_by for at in (*reductions, *(passes(s.arg) for s in self.program.stores if s.level == ELEMENT and needs(s.arg))))


def _read_when_gone(plan: FusionPlan) -> Iterator[str]:
    """The values that a step reads, or that forward returns, after a kernel wrote over them."""
    gone: set[str] = set()
    for step in plan.steps:
        yield from gone.intersection(plan.operands(step))
        gone |= {step.overwrites} - {None} if isinstance(step, Kernel) else set()
    yield from gone.intersection(plan.graph.returns)


def faults(plans: Sequence[FusionPlan]) -> Iterator[str]:
    """What is wrong with the reads and writes of all kernels of some plans, one line each."""
    kernels: dict[tuple[object, ...], tuple[FusionPlan, Kernel]] = {}
    for plan in plans:
        yield from (f"{plan.name} reads {value} after a kernel wrote over it" for value in _read_when_gone(plan))
        kernels |= {(plan.graph, k.nodes, k.outputs, k.overwrites): (plan, k) for k in plan.kernels}
    for plan, kernel in kernels.values():
        yield from _faults_of_kernel(plan, kernel)


def _faults_of_kernel(plan: FusionPlan, kernel: Kernel) -> Iterator[str]:
    graph, program = plan.graph, plan.program(kernel)
    loops = Loops(program, graph.batch or 1, {name: graph.type(name).numel for name in {*program.operands, *(s.tensor for s in program.stores)}})
    for store in program.stores:
        over = store.into or (kernel.overwrites if store.level == ELEMENT else None)
        for load in program.reads if over else ():
            if load.tensor == over and loops.overlaps(load, store):
                yield f"{kernel.name} writes {store.tensor} over {over}, which {load.name} may still read"
        if over and program.contraction and over in program.contraction.reads:
            yield f"{kernel.name} writes {store.tensor} over {over}, which its contraction reads"
    for tensor in {s.tensor for s in program.stores}:
        put = torch.cat([loops.addresses(s.access) for s in program.stores if s.tensor == tensor])
        if not torch.equal(put.unique(), torch.arange(loops.tensors[tensor])):
            yield f"{kernel.name} does not write each element of {tensor}"
    for load in program.loads:
        if load.tensor and not load.args:
            read = loops.addresses(load.access)
            if read.min() < -1 or read.max() >= loops.tensors[load.tensor]:
                yield f"{kernel.name} reads {load.name} outside of {load.tensor}"
