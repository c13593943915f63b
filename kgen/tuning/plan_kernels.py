"""The kernels of plans with their spaces: each is worked out once, and equal ones are shared between plans."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.candidate import Params
from kgen.codegen.registry import template_for
from kgen.codegen.space import Space
from kgen.codegen.template import Task, tasks
from kgen.compiler.fusion.steps import FusionPlan
from kgen.devices.hardware import Hardware
from kgen.protocol import Accuracy
from kgen.tuning.search.points import KernelSpace


@dataclass(frozen=True)
class PlanKernel:
    """A kernel of a plan: its label, its space, and the combinations that the space allows."""

    label: str
    space: Space
    allowed: tuple[Params, ...]


class PlanKernels:
    """The kernels of all plans of a problem on one device, for one class of accuracy."""

    def __init__(self, hardware: Hardware, accuracy: Accuracy) -> None:
        self._hardware, self._accuracy = hardware, accuracy
        self._shared: dict[object, KernelSpace] = {}
        self._spaces: dict[int, tuple[PlanKernel, KernelSpace]] = {}  # by identity, beside the kernel that it is of
        self._of_plans: dict[int, tuple[PlanKernel, ...]] = {}
        self._known: dict[tuple[object, ...] | None, PlanKernel] = {}

    def of(self, plan: FusionPlan) -> tuple[PlanKernel, ...]:
        """The plan's kernels; computed once for a plan that is in several pairs."""
        if id(plan) not in self._of_plans:
            self._of_plans[id(plan)] = tuple(map(self._kernel, tasks(plan, self._hardware, self._accuracy)))
        return self._of_plans[id(plan)]

    def _kernel(self, task: Task) -> PlanKernel:
        """The kernel's space; computed once for layers that the model repeats, where it follows from them alone."""
        template, graph, kernel = template_for(task), task.plan.graph, task.kernel
        label = kernel.label(graph)
        alike = not template.reads_plan
        same = (label, task.surroundings, graph.structure(kernel.nodes, kernel.outputs)) if alike else None
        found = self._known.get(same)
        if found is None:
            space = template.space(task)
            found = PlanKernel(label, space, tuple(space.allowed()))
            if same is not None:
                self._known[same] = found
        return found

    def space(self, kernel: PlanKernel) -> KernelSpace:
        """The space of a kernel, which is that of all kernels with its label and its combinations."""
        if id(kernel) not in self._spaces:
            same = (kernel.label, tuple(tuple(params.items()) for params in kernel.allowed))
            space = self._shared.setdefault(same, KernelSpace(kernel.label, kernel.allowed))
            self._spaces[id(kernel)] = kernel, space
        return self._spaces[id(kernel)][1]
