"""Plans on paper: what kgen can do for a problem, predicted without running anything and without a GPU.

problem -> graph (inputs and weights on the meta device) -> plans -> predicted times -> the best few, and reasons
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kgen.codegen.registry import templates
from kgen.codegen.roofline import Work
from kgen.compiler.fusion.costs import Cost, is_counter, library_cost
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.reasons import why_library
from kgen.compiler.fusion.steps import FusionPlan, Library
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import aten_name, is_view
from kgen.devices.hardware import Hardware, cpu, for_arch
from kgen.devices.kinds import HOST
from kgen.devices.machine import gpu_arch
from kgen.evaluator.runtime.process import Server
from kgen.problems.problem import Problem
from kgen.tuning import precision
from kgen.tuning.capturing import capture_apart
from kgen.tuning.precision import Precision
from kgen.tuning.prediction import WORTH, Prediction, Predictor

#: Architecture where this machine has no GPU and none is named.
DEFAULT_ARCH = "sm_90"
#: How many plans are shown of each mode.
BEST = 3


@dataclass(frozen=True)
class Operator:
    """One captured operator, by its ATen name; ``cost`` is what it moves and computes alone."""

    name: str
    aten: str
    shape: tuple[int, ...] | None
    dtype: str | None
    operands: tuple[str, ...]
    cost: Cost


@dataclass(frozen=True)
class Ranked:
    """One plan with its prediction, and why each of its library calls is none of our kernels, by node."""

    prediction: Prediction
    reasons: tuple[tuple[str, str], ...]

    @property
    def plan(self) -> FusionPlan:
        return self.prediction.plan

    @property
    def library_calls(self) -> tuple[Node, ...]:
        """The nodes that are left to the library; views and counters, which have no work, are none."""
        nodes = (self.plan.graph.node(step.node) for step in self.plan.steps if isinstance(step, Library))
        return tuple(node for node in nodes if not (is_view(node) or is_counter(node)))

    @property
    def views(self) -> tuple[Node, ...]:
        """The nodes that only look at memory in another way."""
        nodes = (self.plan.graph.node(step.node) for step in self.plan.steps if isinstance(step, Library))
        return tuple(node for node in nodes if is_view(node))


@dataclass(frozen=True)
class ModePlan:
    """One mode of a problem: its operators, its least work and time, the control, and the best few plans in order.

    ``kernels`` counts the operators that kernels take in the plan that takes most; times are predicted milliseconds.
    ``precisions`` are the precisions of the convolutions on a GPU.
    """

    mode: str
    operators: tuple[Operator, ...]
    work: Work
    limit_ms: float
    control: Prediction
    best: tuple[Ranked, ...]
    kernels: int
    precisions: tuple[Precision, ...] = ()

    @property
    def speedup(self) -> float:
        """The predicted speedup of the best plan over the control."""
        return self.control.ms / self.best[0].prediction.ms if self.best[0].prediction.ms else 1.0

    @property
    def verdict(self) -> str:
        """The answer for people, in one sentence."""
        count = len(self.operators)
        if not self.kernels:
            return f"kgen has nothing for this problem: all {count} operators stay library calls"
        taken = f"kernels of kgen take {self.kernels} of {count} operators"
        if self.best[0].prediction.ms >= WORTH * self.control.ms:
            return f"{taken}, and no plan is predicted to beat PyTorch's own operators"
        return f"{taken}; the best plan is predicted {self.speedup:.2f}x as fast as PyTorch's own operators"


@dataclass(frozen=True)
class Planned:
    """The plans of a problem on an architecture, for each of its modes."""

    problem: Problem
    hardware: Hardware
    modes: tuple[ModePlan, ...]

    @property
    def library_calls(self) -> list[str]:
        """ATen names of what the best plans leave to the library, one entry for each node."""
        return [aten_name(node) for mode in self.modes for node in mode.best[0].library_calls]


def plan(
    problem: Problem, arch: str | None = None, server: Server | None = None, *, weight_copies: bool = True
) -> Planned:
    """Plan a problem on an architecture (``sm_90``, ``cpu``), by default that of this machine's GPU. The problem's code
    runs in a process that ``server`` forks; without one, in this process. Without ``weight_copies``, no plan keeps a
    weight in another form beside it.

    PyTorch is taken with its default flags: float32 in matmuls, TF32 in convolutions where cuDNN probably uses it.
    Raises :class:`kgen.errors.DeviceError` for an unknown architecture and :class:`kgen.errors.ProblemError` where the
    problem cannot be executed or captured.
    """
    hardware = hardware_of(arch)
    settled, capture = capture_apart(problem, hardware.device_type, server)
    capture = capture if weight_copies else capture.without_weight_copies()
    graphs = capture.graphs[:1] if capture.same else capture.graphs
    predictor = Predictor(hardware)
    return Planned(settled, hardware, tuple(_mode(mode, graph, predictor) for mode, graph in graphs))


def hardware_of(arch: str | None) -> Hardware:
    """The limits of an architecture; ``None`` is that of this machine's GPU, else :data:`DEFAULT_ARCH`. Raises
    :class:`DeviceError`."""
    return cpu() if arch == HOST.name else for_arch(arch or gpu_arch() or DEFAULT_ARCH)


def _mode(mode: str, graph: OpGraph, predictor: Predictor) -> ModePlan:
    graph, precisions = precision.predicted(graph) if predictor.kind.accelerator else (graph, ())
    every = templates(predictor.hardware.device_type).values()
    lacking = [template.lacks(predictor.hardware) for template in every]
    found = plans(graph, [t for t, lacks in zip(every, lacking) if not lacks], predictor.order)
    ranked = sorted(map(predictor.prediction, found), key=_rank)
    own = {name for plan in found for kernel in plan.kernels for name in kernel.nodes}
    lacks = next(filter(None, lacking), "")
    return ModePlan(
        mode=mode,
        operators=tuple(_operator(graph, node) for node in graph.nodes),
        work=Work.of(graph),
        limit_ms=predictor.limit_ms(graph),
        control=next(prediction for prediction in ranked if prediction.plan.control),
        best=tuple(Ranked(prediction, _reasons(prediction.plan, own, lacks)) for prediction in ranked[:BEST]),
        kernels=max(len(_taken(plan, graph.nodes)) for plan in found),
        precisions=precisions,
    )


def _rank(prediction: Prediction) -> tuple[float, int]:
    """By time and, where that is the same, by library calls and views."""
    return prediction.ms, sum(isinstance(step, Library) for step in prediction.plan.steps)


def _reasons(plan: FusionPlan, own: Iterable[str], lacks: str) -> tuple[tuple[str, str], ...]:
    nodes = [plan.graph.node(step.node) for step in plan.steps if isinstance(step, Library)]
    return tuple(
        (node.name, why_library(plan.graph, node, own=node.name in own, lacks=lacks))
        for node in nodes
        if not is_view(node)
    )


def _taken(plan: FusionPlan, nodes: Sequence[Node]) -> set[str]:
    """Captured operators that are no library call of a plan with kernels: in a kernel, or gone by a rewrite."""
    if not plan.kernels:
        return set()
    return {node.name for node in nodes} - {step.node for step in plan.steps if isinstance(step, Library)}


def _operator(graph: OpGraph, node: Node) -> Operator:
    type_ = node.type
    shape, dtype = (type_.shape, type_.dtype) if type_ else (None, None)
    return Operator(node.name, aten_name(node), shape, dtype, node.values, library_cost(graph, node))
