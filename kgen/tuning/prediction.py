"""Predictions: the time that the limits of a device allow for each step of a plan, and so for plans and the control.

    step -> Cost (bytes, operations) -> max(bytes / copy rate, operations / rate of the arithmetic) + launch

A library call reaches a share of these rates that depends on its class of operators: :data:`LIBRARY_CLASSES`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Callable, Sequence, TypeVar

from kgen.codegen.registry import templates
from kgen.codegen.roofline import Work
from kgen.compiler.fusion.costs import Cost, kernel_cost, library_cost
from kgen.compiler.fusion.fusion import MOST_PLANS
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import flops, is_convolution, is_depthwise, is_view, kernel_size, sums_of
from kgen.compiler.operators.library import CHANNELS_LAST
from kgen.devices.hardware import Hardware, expected_ceilings
from kgen.devices.kinds import KINDS
from kgen.protocol import Accuracy

#: Predicted times that are nearer to each other than this share are ties: within the noise of a prediction.
WORTH = 0.98


#: Part of a plan's time; steps of less do not tell plans apart.
MAIN_PART = 0.05

#: Kernels of a plan. A compiler may take 120 s, and takes half a second for a kernel of a convolution.
MOST_KERNELS = 240

#: ms; of each small value that a kernel computes again for every element. It orders plans that are equal otherwise.
AGAIN_MS = 1e-6
#: ms; of a step of recurrent layers on a GPU: in a kernel of ours (assumed), then in the library.
#: The library took 6 to 10 us on an H200.
STEP_MS, LIBRARY_STEP_MS = 0.0016, 0.006
SMALL = 64  #: a value is small where a kernel's largest result has 64 times its elements


@dataclass(frozen=True)
class LibraryClass:
    """How near PyTorch's kernels for some operators come to the limits of a GPU.

    ``copy`` is the share of the copy rate at which operands and results move, each once; ``arithmetic`` the share of
    the rate of contractions. ``operators`` are ATen names without their overload. Shares are medians of eager PyTorch
    on an H200; on the CPU all count as 1 but convolutions, since no others were measured.
    """

    name: str
    copy: float
    arithmetic: float
    reason: str
    operators: tuple[str, ...] = ()


def _class(name: str, copy: float, arithmetic: float, reason: str, operators: str = "") -> LibraryClass:
    return LibraryClass(name, copy, arithmetic, reason, tuple(operators.split()))


ONE_PASS = _class("one pass", 1.0, 1.0, "reads its operands and writes its result once, at the rate of a copy")
_DEPTHWISE = _class("depthwise convolution", 0.16, 1.0, "0.5 to 0.85 TB/s: each output reads its window again")
_CHANNELS_ALONE = _class("convolution, 1x1", 0.88, 0.30, "a matmul over the channels: reads and writes once")
_CONVOLUTIONS = {
    1: _class("convolution, 1-d", 0.30, 0.25, "56 to 98 TFLOP/s in TF32; converts layouts before and behind"),
    2: _class("convolution, 2-d", 0.30, 0.30, "92 to 198 TFLOP/s in TF32; converts layouts before and behind"),
    3: _class("convolution, 3-d", 0.15, 0.10, "7 to 105 TFLOP/s in TF32: the fewer channels, the slower"),
}

_CHANNELS_LAST = _class(
    "convolution, channels last",
    0.75,
    0.6,
    "3.2 TB/s, and 190 to 300 TFLOP/s in TF32: reads images as they lie, with a ReLU and a sum in the same call",
)
_CHANNELS_FIRST = _class(
    "convolution, channels first",
    1.0,
    0.5,
    "oneDNN moves images to a layout of its own and back, in memory that is new in each call",
)

#: Operators that stand in no class count as :data:`ONE_PASS`.
LIBRARY_CLASSES = (
    _class("reduction", 0.98, 1.0, "reads its operand once", "sum mean amax amin prod linalg_vector_norm norm all any"),
    _class("extremum", 0.75, 1.0, "carries an index along", "max min argmax argmin"),
    _class("softmax", 0.5, 1.0, "reads long rows twice and more", "softmax _softmax log_softmax _log_softmax softmin"),
    _class(
        "several passes",
        0.3,
        1.0,
        "is made of several operators inside",
        "logsumexp var std var_mean std_mean triplet_margin_loss cosine_embedding_loss cosine_similarity "
        "pairwise_distance",
    ),
    _class(
        "norm", 0.4, 1.0, "reads its operand twice", "layer_norm native_layer_norm group_norm instance_norm rms_norm"
    ),
    _class("batch norm", 0.25, 1.0, "reads its operand for moments, then again", "batch_norm native_batch_norm"),
    _class(
        "running values", 0.45, 1.0, "reads and writes partial results", "cumsum cumprod logcumsumexp cummax cummin"
    ),
    _class(
        "pooling",
        0.13,
        1.0,
        "one thread an output; max pooling writes indices too",
        "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool3d "
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d",
    ),
    _class("reversal", 0.7, 1.0, "reads against the order of memory", "flip roll rot90"),
    _class(
        "selection",
        0.1,
        1.0,
        "sorts, or counts digits in several passes (assumed)",
        "topk sort argsort kthvalue median mode",
    ),
    _class(
        "loss",
        0.5,
        1.0,
        "writes terms before it reduces them",
        "smooth_l1_loss huber_loss mse_loss l1_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div "
        "cross_entropy_loss nll_loss hinge_embedding_loss margin_ranking_loss",
    ),
    _class(
        "sampling",
        0.15,
        1.0,
        "one thread an output: it computes weights, and reads each pixel again",
        "_upsample_bilinear2d_aa _upsample_bicubic2d_aa resize_bicubic grid_sample",
    ),
    _class(
        "copy across", 0.7, 1.0, "reads or writes across the order of memory", "clone contiguous cat stack repeat pad"
    ),
)

_CLASS_OF = {operator: found for found in LIBRARY_CLASSES for operator in found.operators}


def library_class(graph: OpGraph, node: Node) -> LibraryClass:
    """The class of a node that is left to the library."""
    if is_convolution(node):
        if node.op.endswith(CHANNELS_LAST):
            return _CHANNELS_LAST
        if is_depthwise(graph, node):
            return _DEPTHWISE
        window = kernel_size(graph, node)
        return _CHANNELS_ALONE if math.prod(window) == 1 else _CONVOLUTIONS[len(window)]
    base = node.op.removeprefix("aten.").split(".")[0].rstrip("_")
    return _CLASS_OF.get(base, ONE_PASS)


def cpu_class(node: Node) -> LibraryClass:
    """The class of a node that is left to the library on a CPU."""
    return _CHANNELS_FIRST if is_convolution(node) and not node.op.endswith(CHANNELS_LAST) else ONE_PASS


@dataclass(frozen=True)
class StepTime:
    """The predicted time of one step of a plan; ``bound`` is ``memory``, ``arithmetic``, ``steps``, or ``none`` for a
    view."""

    step: Kernel | Library
    cost: Cost
    ms: float
    bound: str

    def label(self, graph: OpGraph) -> str:
        """The step as plans are told apart by it: a kernel's label, or the name of a library call's operator."""
        return self.step.label(graph) if isinstance(self.step, Kernel) else graph.node(self.step.node).op


@dataclass(frozen=True)
class Prediction:
    """A plan with its predicted time, step by step."""

    plan: FusionPlan
    steps: tuple[StepTime, ...]

    @cached_property
    def ms(self) -> float:
        """Milliseconds, to the nanosecond: finer differences are those of rounding."""
        return round(sum(step.ms for step in self.steps), 6)


class Predictor:
    """Predicts times on one device, in milliseconds.

    ``accuracy`` says in which arithmetic PyTorch contracts. By default, matmuls are in float32, and those convolutions
    in TF32 that are marked so.
    """

    def __init__(self, hardware: Hardware, accuracy: Accuracy | None = None) -> None:
        self.hardware = hardware
        self.ceilings = expected_ceilings(hardware)
        self.kind = KINDS[hardware.device_type]
        self.accuracy = accuracy or Accuracy.PYTORCH
        # Plans and graphs are known by identity, because hashing them takes long; each stands beside its figures.
        self._known: dict[int, tuple[FusionPlan, Prediction]] = {}
        self._costs: dict[tuple[int, tuple[str, ...], tuple[str, ...]], tuple[OpGraph, Cost]] = {}

    def prediction(self, plan: FusionPlan) -> Prediction:
        """The plan's steps with their times."""
        if id(plan) not in self._known:
            self._known[id(plan)] = plan, Prediction(plan, tuple(self._step(plan, step) for step in plan.steps))
        return self._known[id(plan)][1]

    def ms(self, plan: FusionPlan) -> float:
        """The plan's predicted time."""
        return self.prediction(plan).ms

    def order(self, found: Sequence[FusionPlan], control: FusionPlan) -> list[FusionPlan]:
        """Plans in the order to try them: :data:`kgen.compiler.fusion.fusion.Order`. Plans of too many kernels are
        left out.

        Where the library multiplies in TF32 and kernels must not, the best plan with the library's product comes
        second.
        """
        few = [plan for plan in found if len(plan.kernels) <= MOST_KERNELS]
        ordered = in_order(few, control, self.ms, self.main)
        beside = min((plan for plan in few if plan.kernels and self._keeps_tf32(plan)), key=self.ms, default=None)
        if beside is None or beside is ordered[0]:
            return ordered
        first, *rest = (plan for plan in ordered if plan is not beside)
        return [first, beside, *rest]

    def _keeps_tf32(self, plan: FusionPlan) -> bool:
        """Whether the library multiplies in TF32 where a kernel of the plan would need several products."""
        nodes = (plan.graph.node(step.node) for step in plan.steps if isinstance(step, Library))
        return any(self._in_tf32(node) and self._products(plan.graph, node) > 1 for node in nodes)

    def main(self, plan: FusionPlan) -> frozenset[tuple[str, int]]:
        """The steps that take more than :data:`MAIN_PART` of the plan's time, launches aside: by label, with their
        number's bits.

        Equal steps count together: each layer of a network takes a small part alone.
        """
        steps = self.prediction(plan).steps
        least = MAIN_PART * sum(step.ms for step in steps)
        alike: dict[str, list[float]] = {}
        for step in steps:
            alike.setdefault(step.label(plan.graph), []).append(step.ms - self.kind.launch_ms)
        return frozenset((label, len(ms).bit_length()) for label, ms in alike.items() if sum(ms) > least)

    def limit_ms(self, graph: OpGraph) -> float:
        """The least time that the device allows: its bytes once, or its operations, whichever takes longer.

        Operations count in the fastest arithmetic that is as accurate as PyTorch's. Launches do not count.
        """
        operations = sum(self._least_ms(graph, node) for node in graph.nodes)
        return max(self._copy_ms(Work.of(graph).nbytes), operations)

    def step_limit_ms(self, plan: FusionPlan, step: Kernel | Library) -> float:
        """The least time that the device allows for one step, as :meth:`limit_ms` for all of them."""
        nodes = [plan.graph.node(name) for name in (step.nodes if isinstance(step, Kernel) else (step.node,))]
        nbytes = plan.bytes_moved(step) if isinstance(step, Kernel) else library_cost(plan.graph, nodes[0]).nbytes
        return max(self._copy_ms(nbytes), sum(self._least_ms(plan.graph, node) for node in nodes))

    def _step(self, plan: FusionPlan, step: Kernel | Library) -> StepTime:
        if isinstance(step, Library):
            return self._library(plan.graph, step)
        key = id(plan.graph), step.nodes, step.outputs
        if key not in self._costs:
            products = min((self._products(plan.graph, plan.graph.node(name)) for name in step.nodes), default=3)
            self._costs[key] = plan.graph, kernel_cost(plan, step, self._row_bytes, products, self._shares)
        _, cost = self._costs[key]
        share = templates(self.hardware.device_type)[step.schedule].share
        found = self._time(step, cost, self._copy_ms(cost.nbytes), self._kernel_ms(cost) / share)
        return replace(found, ms=found.ms + AGAIN_MS * computed_again(plan, step))

    def _library(self, graph: OpGraph, step: Library) -> StepTime:
        node = graph.node(step.node)
        cost = library_cost(graph, node)
        if is_view(node):
            return StepTime(step, cost, 0.0, "none")
        found = library_class(graph, node) if self.kind.accelerator else cpu_class(node)
        contraction = sums_of(node)
        type_ = "float16" if _is_half(graph, node) else "tf32" if contraction and self._in_tf32(node) else "float32"
        arithmetic_ms = cost.flops / self._rate(type_) / found.arithmetic
        return self._time(step, cost, self._copy_ms(cost.nbytes) / found.copy, arithmetic_ms)

    def _time(self, step: Kernel | Library, cost: Cost, memory_ms: float, arithmetic_ms: float) -> StepTime:
        if cost.blocks:
            memory_ms /= min(1.0, cost.blocks / self.hardware.multiprocessors)
        one_step_ms = STEP_MS if isinstance(step, Kernel) else LIBRARY_STEP_MS
        bounds = {
            "memory": memory_ms,
            "arithmetic": arithmetic_ms,
            "steps": cost.steps * one_step_ms if self.kind.accelerator else 0.0,
        }
        bound = max(bounds, key=bounds.__getitem__)
        return StepTime(step, cost, bounds[bound] + self.kind.launch_ms, bound)

    def _kernel_ms(self, cost: Cost) -> float:
        if not cost.products:
            return cost.flops / self._rate("float32")
        return cost.flops * cost.products / self._rate("float16")

    def _least_ms(self, graph: OpGraph, node: Node) -> float:
        """Milliseconds of a contraction's operations, in float32 or in tensor-core products, whichever is faster."""
        contraction = sums_of(node)
        if contraction is None:
            return 0.0
        operations = flops(graph, node)
        products = self._products(graph, node)
        return min(operations / self._rate("float32"), operations * products / self._rate("float16"))

    def _products(self, graph: OpGraph, node: Node) -> int:
        """Products that are as accurate as PyTorch: three of float16 stand for float32, one for TF32; one on a CPU."""
        if _is_half(graph, node) or not self.kind.accelerator or self.accuracy is Accuracy.TF32:
            return 1
        return node.products if self.accuracy is Accuracy.PYTORCH else 3

    def _in_tf32(self, node: Node) -> bool:
        """Whether PyTorch multiplies in TF32: everywhere in that class, and in marked convolutions by its own flags."""
        return self.accuracy is Accuracy.TF32 or (self.accuracy is Accuracy.PYTORCH and node.tf32)

    def _copy_ms(self, nbytes: int) -> float:
        return nbytes / self.ceilings.copy_gbytes_per_second / 1e6

    def _rate(self, type_: str) -> float:
        """Operations a millisecond; devices without TF32 compute in float32."""
        return (self.ceilings.tflops(type_) or self.ceilings.float32_tflops) * 1e9

    @property
    def _shares(self) -> int:
        """Blocks that may share a row: one for each multiprocessor of a GPU, and one on a CPU."""
        return self.hardware.multiprocessors if self.hardware.registers_per_multiprocessor else 1

    @property
    def _row_bytes(self) -> int:
        """Bytes of a row that its blocks can keep: half of the registers of a chip, or a core's level-2 cache."""
        return 2 * self.hardware.registers_per_multiprocessor * self._shares or self.hardware.l2_bytes


def _is_half(graph: OpGraph, node: Node) -> bool:
    """Whether the node is a contraction of operands of a half type."""
    operand = graph.known_type(node.values[0]) if sums_of(node) else None
    return operand is not None and is_narrow(operand.dtype)


def computed_again(plan: FusionPlan, kernel: Kernel) -> int:
    """The number of small values that a kernel without reductions computes for every element of its results."""
    if plan.program(kernel).reductions or plan.program(kernel).contraction:
        return 0
    largest = max(plan.graph.type(name).numel for name in kernel.outputs)
    found = [plan.graph.node(name) for name in kernel.nodes]
    return sum(node.type is not None and not is_view(node) and SMALL * node.type.numel <= largest for node in found)


Plan = TypeVar("Plan")


def in_order(
    found: Sequence[Plan], control: Plan, ms: Callable[[Plan], float], main: Callable[[Plan], object] | None = None
) -> list[Plan]:
    """The fastest of these plans by prediction, in the order to try them; ties keep their order.

    The control comes behind plans that may beat it and in front of those that are predicted to be slower. There are
    :data:`kgen.compiler.fusion.cutter.MOST_PLANS` at most. ``main`` gives the steps that take a plan's time. On either
    side of the control, plans whose main steps an earlier one has come last: they measure the same kernels again.
    """
    ranked = sorted(found, key=ms)
    repeats: set[int] = set()
    seen: set[object] = set()
    for plan in ranked if main else ():
        steps = main(plan)
        repeats |= {id(plan)} if steps in seen else set()
        seen.add(steps)
    slower = {id(plan) for plan in ranked if WORTH * ms(plan) > ms(control)}
    ranked = sorted(ranked, key=lambda plan: (id(plan) in slower, id(plan) in repeats))[: MOST_PLANS - 1]
    before = sum(id(plan) not in slower for plan in ranked)
    return [*ranked[:before], control, *ranked[before:]]
