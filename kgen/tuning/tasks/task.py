"""Kernel tasks: one step of a plan, cut out of its network.

    gelu_3 = SCHEDULE[linear, gelu](add_2, blocks.1.mlp.0.weight)      a step of a plan
    v1     = SCHEDULE[linear, gelu](x0, w0)                            the task: its operands are inputs and weights

Layers that a model repeats are one task. So are equal layers of two models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kgen.candidate import Plan
from kgen.codegen.template import Task, tasks
from kgen.compiler.fusion.programs import Programs
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library, Step
from kgen.compiler.graph.graph import Constant, Input, Node, OpGraph, Tensor, Weight
from kgen.compiler.loops.canonical import digest
from kgen.compiler.operators.facts import is_view, sums_of
from kgen.devices.hardware import Hardware
from kgen.protocol import Accuracy, Environment
from kgen.store.kernel_task import Operand, TaskKey

_KERNEL = "kernel"  #: the name of a task's kernel
_BATCH = "batch"  #: the input that tells the batch size where no operand does


@dataclass(frozen=True)
class KernelTask:
    """One step of a plan alone: what it computes, of which operands, for which device and class of accuracy.

    ``plan`` has this step alone, and ``control`` the same nodes as library calls, where the library has all of them.
    ``label`` is the step as people know it.
    """

    key: TaskKey
    label: str
    plan: FusionPlan
    control: FusionPlan | None
    hardware: Hardware
    accuracy: Accuracy

    @property
    def kernel(self) -> Kernel | None:
        """The kernel; ``None`` of a task that is a library call."""
        return next(iter(self.plan.kernels), None)

    @property
    def graph(self) -> OpGraph:
        return self.plan.graph

    @property
    def id(self) -> str:
        return self.key.id

    def of_schedule(self, schedule: str, prefix: str = "") -> Task:
        """The task for the template of that name; ``prefix`` stands before the kernel's name."""
        assert self.kernel is not None, "a library call has no schedule"
        (found,) = tasks(
            replace(self.plan, steps=(replace(self.kernel, schedule=schedule),)), self.hardware, self.accuracy, prefix
        )
        return found


class TaskMaker:
    """Cuts steps out of plans, for one device and class of accuracy. Equal steps are one task, made once."""

    def __init__(self, hardware: Hardware, accuracy: Accuracy, environment: Environment) -> None:
        self._hardware, self._accuracy, self._environment = hardware, accuracy, environment
        self._made: dict[tuple[str, ...], KernelTask | None] = {}
        # By the identity of the graph, because hashing it takes long; the graph stands beside the step's task.
        self._steps: dict[tuple[int, Step], tuple[OpGraph, KernelTask | None]] = {}

    def task(self, plan: FusionPlan, step: Step) -> KernelTask | None:
        """The task of a step. ``None`` where it does not stand alone: a view, a mere change of a buffer, a result of
        unknown shape."""
        key = id(plan.graph), step
        if key not in self._steps:
            self._steps[key] = plan.graph, self._found(plan, step)
        return self._steps[key][1]

    def _found(self, plan: FusionPlan, step: Step) -> KernelTask | None:
        graph = plan.graph
        nodes = [graph.node(name) for name in (step.nodes if isinstance(step, Kernel) else (step.node,))]
        if isinstance(step, Library) and (
            is_view(nodes[0]) or (nodes[0].effect and not _is_read(graph, nodes[0].name))
        ):
            return None
        if any(graph.known_type(name) is None for node in nodes for name in (node.name, *node.values)):
            return None
        names: dict[str, str] = {}
        nodes = _in_order(nodes)
        results = [name for name in step.outputs if not graph.node(name).effect or _is_read(graph, name)]
        if not results:
            return None
        alone = _alone(graph, nodes, results, names)
        if isinstance(step, Library):
            key = ("", repr(alone))
            return self._once(key, lambda: self._library(alone, nodes[0].op))
        program = digest(plan.program(step))
        kernel = replace(
            step,
            name=_KERNEL,
            nodes=tuple(names[n] for n in step.nodes),
            outputs=tuple(names[o] for o in step.outputs),
            overwrites=names.get(step.overwrites or ""),
        )
        return self._once(
            (program, repr(kernel), repr(alone)), lambda: self._kernel(alone, kernel, program, step.label(graph))
        )

    def _once(self, key: tuple[str, ...], make: Callable[[], KernelTask | None]) -> KernelTask | None:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _library(self, alone: OpGraph, label: str) -> KernelTask | None:
        control = _control(alone)
        return control and KernelTask(self._key(alone, ""), label, control, control, self._hardware, self._accuracy)

    def _kernel(self, alone: OpGraph, kernel: Kernel, program: str, label: str) -> KernelTask | None:
        plan = _plan_of(alone, [kernel])
        if digest(plan.program(kernel)) != program:  # it depends on the rest of its network
            return None
        return KernelTask(self._key(alone, program), label, plan, _control(alone), self._hardware, self._accuracy)

    def _key(self, alone: OpGraph, program: str) -> TaskKey:
        """All that decides which text of a task is fastest."""
        call = repr([(node.op, node.inputs, node.type, node.attrs, str(node.call)) for node in alone.nodes])
        return TaskKey(
            program=program or hashlib.sha256(call.encode()).hexdigest(),
            library=not program,
            precision=" ".join(
                f"{node.products}{' tf32' if node.tf32 else ''}" for node in alone.nodes if sums_of(node)
            ),
            operands=_operands(alone),
            accuracy=str(self._accuracy),
            device_type=self._hardware.device_type,
            device=self._hardware.name,
            arch=self._hardware.arch,
            compiler=self._environment.toolkit or self._environment.compiler,
            threads=self._environment.threads,
        )


def _operands(graph: OpGraph) -> tuple[Operand, ...]:
    kinds: Sequence[tuple[str, Sequence[Input | Weight | Constant]]] = (
        ("input", graph.inputs), ("weight", graph.weights), ("constant", graph.constants))  # fmt: skip
    return tuple(Operand.dense(kind, value.type.shape, value.type.dtype) for kind, values in kinds for value in values)


def _alone(graph: OpGraph, nodes: Sequence[Node], outputs: Sequence[str], names: dict[str, str]) -> OpGraph:
    """The nodes as a graph of their own, under canonical names, which ``names`` gets."""
    inside = {node.name for node in nodes}
    inputs: list[Input] = []
    weights: list[Weight] = []
    constants: list[Constant] = []
    buffers = {w.name for w in graph.weights if w.buffer}
    texts = {c.name: c.text for c in graph.constants}
    for value in dict.fromkeys(v for node in nodes for v in node.values if v not in inside):
        type_ = graph.type(value)
        if graph.is_weight(value):
            names[value] = f"w{len(weights)}"
            weights.append(Weight(names[value], type_, names[value], value in buffers))
        elif value in texts:
            names[value] = f"c{len(constants)}"
            constants.append(Constant(names[value], type_, texts[value]))
        else:
            names[value] = f"x{len(inputs)}"
            inputs.append(Input(names[value], type_))
    names |= {node.name: f"v{number}" for number, node in enumerate(nodes)}
    renamed = tuple(
        replace(
            node,
            name=names[node.name],
            inputs=tuple(names[i] if isinstance(i, str) else i for i in node.inputs),
            parts=None,
            origin="",
        )
        for node in nodes
    )
    leading = next((i.name for i in inputs if i.type.multiples[:1] not in ((), (0,))), None)
    if not inputs or (leading is None and graph.batch and _follows_batch(graph, nodes)):
        leading = _BATCH if graph.batch else None
        inputs.insert(0, Input(_BATCH, Tensor((graph.batch or 1,), "float32", (1 if graph.batch else 0,))))
    returns = tuple(names[o] for o in outputs)
    text = f"{{{returns[0]}}}" if len(returns) == 1 else f"({', '.join(f'{{{r}}}' for r in returns)})"
    return OpGraph(
        inputs=tuple(inputs),
        weights=tuple(weights),
        nodes=renamed,
        returns=returns,
        output=text,
        batch=graph.batch if leading else None,
        batch_input=leading,
        constants=tuple(constants),
        signature=", ".join(["self", *(i.name for i in inputs)]),
        orders=tuple(graph.order(o) for o in outputs),
        weight_copies=graph.weight_copies,
    )


def _in_order(nodes: Sequence[Node]) -> list[Node]:
    """The nodes with each behind those that it reads: a kernel names what it stores first."""
    waiting, found = {node.name: node for node in nodes}, list[Node]()

    def take(node: Node) -> None:
        if waiting.pop(node.name, None) is not None:
            for value in node.values:
                if value in waiting:
                    take(waiting[value])
            found.append(node)

    for node in nodes:
        take(node)
    return found


def _is_read(graph: OpGraph, name: str) -> bool:
    return bool(graph.users(name)) or name in graph.returns


def _follows_batch(graph: OpGraph, nodes: Sequence[Node]) -> bool:
    return any(graph.type(name).batched for node in nodes for name in (node.name, *node.values))


def _control(alone: OpGraph) -> FusionPlan | None:
    """The nodes as library calls; ``None`` where the library does not have all of them."""
    return (
        _plan_of(alone, [Library(node.name) for node in alone.nodes])
        if all(node.call is not None for node in alone.nodes)
        else None
    )


def _plan_of(graph: OpGraph, steps: Sequence[Kernel | Library]) -> FusionPlan:
    data = Plan.of_mode([(step.schedule if isinstance(step, Kernel) else "", ["task"]) for step in steps])
    return FusionPlan(data, (), graph, tuple(steps), Programs(graph))
