"""The text of one mode of a ModelNew: calls of the library, and between two of them one run of kernels.

linear_weight, linear_bias = kept.tensors                          weights for calls of the library
linear = F.linear(x, linear_weight, linear_bias)                   a call of the library
softmax = dense(linear, torch.float32)  # written over             memory that kernels read and write
launch(_launch_kernels, softmax.data_ptr(), batch_size)            a run of kernels: one call of a C function
return softmax
"""

from __future__ import annotations

from functools import cached_property
from typing import Callable, Iterator, Mapping

from kgen.codegen.forward import Forward, python_name, targets, tuple_source
from kgen.codegen.memory import TENSORS, WEIGHTS, Buffer, Launch, Layout, Memory, Pointer, Run, Step
from kgen.codegen.template import Argument, Rendering
from kgen.codegen.weights import Weights, dense
from kgen.compiler.fusion.steps import FusionPlan, Kernel
from kgen.compiler.graph.graph import Node, Tensor
from kgen.compiler.graph.library_call import SHORTER, written
from kgen.compiler.loops.program import Program

_FEW_STEPS = 8  # of a forward; in a longer one, tensors are freed as soon as nothing uses them
# Runs with so many temporaries allocate once: each allocation takes 2.5 us (benchmarks/results/host_time.md).
FEWEST_PARTS = 2

#: Functions of the same arguments as an operator. A call of an operator by its name takes 1.5 to 2.5 us more (two CPU
#: cores).
_NAMES = {
    **SHORTER,
    **{
        f"aten.{operator}": function
        for operator, function in {
            "bmm.default": "torch.bmm",
            "cat.default": "torch.cat",
            "chunk.default": "torch.chunk",
            "flatten.using_ints": "torch.flatten",
            "matmul.default": "torch.matmul",
            "permute.default": "torch.permute",
            "reshape.default": "torch.reshape",
            "scaled_dot_product_attention.default": "F.scaled_dot_product_attention",
            "select.int": "torch.select",
            "squeeze.dim": "torch.squeeze",
            "stack.default": "torch.stack",
            "transpose.int": "torch.transpose",
            "unsqueeze.default": "torch.unsqueeze",
        }.items()
    },
}


class Body:
    """The text of one mode.

    ``launcher`` gives a kernel's name in the file. ``prefix`` stands before names of which each mode has one.
    ``constants`` are names of the file's constants by their source. ``counts_changes`` says that changed buffers must
    show in their version.
    """

    def __init__(
        self,
        plan: FusionPlan,
        renderings: Mapping[str, Rendering],
        forward: Forward,
        launcher: Callable[[Kernel], str],
        *,
        prefix: str,
        constants: Mapping[str, str],
        counts_changes: bool,
        has_streams: bool,
    ) -> None:
        self.plan, self.graph, self.renderings, self.forward, self.launcher = (
            plan,
            plan.graph,
            renderings,
            forward,
            launcher,
        )
        self.prefix, self.constants, self.counts_changes, self.has_streams = (
            prefix,
            constants,
            counts_changes,
            has_streams,
        )
        self.first = python_name(self.graph.inputs[0].name)
        self.weights = Weights(plan, renderings)
        self.steps: list[Step] = []
        self.buffers: dict[str, tuple[Step, Buffer]] = {}  # by value
        self.overwrites: dict[str, Step] = {}  # values that kernels write over tensors of earlier steps
        self.names = {i.name: python_name(i.name) for i in self.graph.inputs}
        self.names |= {c.name: c.name for c in self.graph.constants}
        for step in plan.steps:
            if isinstance(step, Kernel):
                self._kernel(step)
            else:
                self._library(self.graph.node(step.node))
        self.returned = [self._name(value, None) for value in self.graph.returns]

    # Calls of the library

    def _library(self, node: Node) -> None:
        step = Step(closed=True)
        names = [self._name(v, step) for v in node.values]
        call = written(node.call, names.__getitem__, f"{self.first}.device", _NAMES)
        local = self.names[node.name] = python_name(node.name)
        if self.graph.users(node.name) or node.name in self.graph.returns:
            call, step.made = f"{local} = {call}", [local]
        step.lines.append(call)
        if node.op == "batch_norm" and node.effect:
            states = [v for role, v in zip(node["roles"], node.inputs) if role.startswith("running_")]
            step.behind += self._counted(states, step)
        self._add(step)

    def _add(self, step: Step) -> None:
        if self.steps:
            self.steps[-1].closed = True
        self.steps.append(step)

    def _name(self, value: str, step: Step | None) -> str:
        """A value as Python knows it, for a step that uses it."""
        if self.graph.is_weight(value):
            return self.weights.take(value)
        if value in self.buffers:
            _, buffer = self.buffers[value]
            buffer.leaves = True
            name = buffer.name
        else:
            name = self.names[value]
        if step is not None:
            step.used.add(name)
        return name

    def _counted(self, states: list[str], step: Step) -> list[str]:
        """The statement that counts running statistics as changed. Neither kernels nor batch norm do so."""
        if not states or not self.counts_changes:
            return []
        return [f"torch.autograd.graph.increment_version([{', '.join(self._name(s, step) for s in states)}])"]

    # Kernels

    def _kernel(self, kernel: Kernel) -> None:
        rendering, program = self.renderings[kernel.name], self.plan.program(kernel)
        if rendering.before:
            before = rendering.before
            self._launch(kernel, program, before.launcher, before.arguments)
            step = Step(closed=True)
            workspace = self._name(_workspace(kernel), step)
            self.weights.taken |= {self.graph.fresh(a.name): None for a in before.arguments if a.role == "prepared"}
            step.lines.append(before.call.format(rows=program.size, workspace=workspace))
            self._add(step)
        step = self._launch(kernel, program, self.launcher(kernel), rendering.arguments)
        step.behind += self._counted([a.tensor for a in rendering.arguments if a.role == "state"], step)

    def _launch(self, kernel: Kernel, program: Program, launcher: str, arguments: tuple[Argument, ...]) -> Step:
        """Add a launch to the last run, or to a new one. Returns its step."""
        if not self.steps or self.steps[-1].closed:
            self._add(Step())
        step, rows = self.steps[-1], str(program.size)
        if program.moments_of is not None or any(self.graph.node(n).op == "unbiased_variance" for n in kernel.nodes):
            step.lines.append(f"if {rows if program.moments_of else program.col_size} < 2:")
            step.lines.append('    raise ValueError("batch norm in train mode needs more than one value per channel")')
        pointers = tuple(self._pointer(step, kernel, program, a) for a in arguments)
        step.launches.append(Launch(launcher, rows, pointers))
        return step

    def _pointer(self, step: Step, kernel: Kernel, program: Program, a: Argument) -> Pointer:
        if a.role == "prepared":
            name = self.graph.fresh(a.name)
            self.weights.derived[name] = name
            return WEIGHTS, name
        if a.role == "workspace":
            name = self.graph.fresh(f"{kernel.name}_workspace") if self.renderings[kernel.name].before else "workspace"
            size = a.size.replace("rows", str(program.size))
            return self._written(step, _workspace(kernel), name, size, size, a.dtype)
        if a.role == "out":
            of = self.graph.type(a.tensor)
            return self._written(step, a.tensor, python_name(a.tensor), _shape(of), _elements(of), a.dtype)
        values = [*dict.fromkeys(s.tensor for s in program.stores if s.level == "element" and not s.into)]
        values += [s.tensor for s in program.scatters if s.source == a.tensor]
        if a.role == "inout" and values:
            return self._overwritten(step, a, values)
        return self._operand(step, a)  # of an ``inout`` tensor, too, where all results go into buffers of the module

    def _written(self, step: Step, value: str, name: str, sizes: str, elements: str, dtype: str) -> Pointer:
        """Memory for a value of a kernel, unless an earlier launch has made it."""
        if value not in self.buffers:
            at = len(step.launches)
            buffer = Buffer(value, [name], sizes, elements, dtype, at, at)
            step.buffers.append(buffer)
            self.buffers[value] = step, buffer
        return self._in_buffer(step, value)

    def _in_buffer(self, step: Step, value: str) -> Pointer:
        of, buffer = self.buffers[value]
        if of is step:
            buffer.last = len(step.launches)
            return TENSORS, buffer.key
        return TENSORS, self._name(value, step)

    def _overwritten(self, step: Step, a: Argument, values: list[str]) -> Pointer:
        """Memory of a value that a kernel writes ``values`` over; all of them are one tensor."""
        if a.tensor in self.buffers and self.buffers[a.tensor][0] is step:
            _, buffer = self.buffers[a.tensor]
            buffer.values.append(python_name(values[0]))
            self.buffers |= dict.fromkeys(values, (step, buffer))
            return self._in_buffer(step, a.tensor)
        name = self._name(a.tensor, step)
        source = name if self._is_made(a.tensor) else dense(name, a.dtype)
        local = python_name(values[0])
        step.lines.append(f"{local} = {source}  # written over")
        step.made.append(local)
        self.names |= dict.fromkeys(values, local)
        self.overwrites |= dict.fromkeys(values, step)
        return TENSORS, local

    def _is_made(self, value: str) -> bool:
        """Whether kernels have made the tensor."""
        return value in self.buffers or value in self.overwrites

    def _operand(self, step: Step, a: Argument) -> Pointer:
        """A tensor that a kernel reads, or a buffer of the module that it changes."""
        if self._is_made(a.tensor):
            return (
                self._in_buffer(step, a.tensor) if a.tensor in self.buffers else (TENSORS, self._name(a.tensor, step))
            )
        if self.graph.is_weight(a.tensor) and (a.role == "state" or a.tensor not in self.weights.changing):
            return WEIGHTS, self.weights.pointer(a)
        return TENSORS, self._dense_local(step, self._name(a.tensor, step), a)

    def _dense_local(self, step: Step, name: str, a: Argument) -> str:
        """The name of a tensor's dense form in a step; one copy serves all kernels of the step."""
        source = dense(name, a.dtype)
        if source not in step.dense:
            others = [of for of in step.dense.values() if of.startswith(f"{name}_dense")]
            local = step.dense[source] = self.graph.fresh(f"{name}_dense" + "_other" * len(others))
            step.lines.append(f"{local} = {source}")
            step.made.append(local)
        return step.dense[source]

    # The text

    @cached_property
    def runs(self) -> list[Run]:
        """The functions of C that launch the kernels, in order."""
        steps = [step for step in self.steps if step.launches]
        names = [f"{self.prefix}launch_kernels" + (f"_{n + 1}" if len(steps) > 1 else "") for n in range(len(steps))]
        return [self._run(name, step) for name, step in zip(names, steps)]

    def _run(self, name: str, step: Step) -> Run:
        layout, weights = self.layout(step), [*self.weights.read, *self.weights.derived]
        tensors = layout.table(step)

        def source(pointer: Pointer) -> str:
            table, key = pointer
            return (
                f"weights[{weights.index(key)}]"
                if table == WEIGHTS
                else f"tensors[{tensors.index(layout.tensor(key))}]"
            )

        return Run(
            name,
            tuple((x.launcher, ", ".join([*map(source, x.pointers), x.rows])) for x in step.launches),
            len(tensors),
            any(table == WEIGHTS for x in step.launches for table, _ in x.pointers),
            any("batch_size" in x.rows for x in step.launches),
        )

    @cached_property
    def lines(self) -> list[str]:
        """The statements of the method."""
        begin = [f"{targets([*self.weights.taken])} = kept.tensors"] if self.weights.taken else []
        for constant in self.graph.constants:
            begin.append(f"{constant.name} = on_device({self.constants[constant.text]}, {self.first}.device)")
        lines = [*begin, *self._steps()]
        single = self.graph.output == f"{{{self.graph.returns[0]}}}"
        lines.append(f"return {self.returned[0] if single else tuple_source(self.returned)}")
        if self.graph.batch_input is not None and any("batch_size" in line for line in lines):
            source = next(i for i in self.graph.inputs if i.name == self.graph.batch_input)
            lines.insert(0, self.forward.batch_size(python_name(source.name), source))
        return lines

    def _steps(self) -> Iterator[str]:
        """The lines of all steps. In a long forward, a statement behind each frees what no later one uses, as modules
        do."""
        runs = iter(self.runs)
        texts = [
            self._launched(step, next(runs)) if step.launches else [*step.lines, *step.behind] for step in self.steps
        ]
        over = self._over()
        long = sum(max(1, len(step.launches)) for step in self.steps) > _FEW_STEPS
        for number, text in enumerate(texts):
            yield from text
            if long and over[number] and number + 1 < len(texts):
                yield f"del {', '.join(over[number])}"

    def _over(self) -> list[list[str]]:
        """Names of which each step is the last that uses the tensor. A later step may make another tensor of the same
        name."""
        last: dict[str, int] = {}
        over: list[list[str]] = [[] for _ in self.steps]
        for number, step in enumerate(self.steps):
            for name in step.made:
                if name in last:
                    over[last[name]].append(name)
                last[name] = number
            last |= {name: number for name in step.used if name in last}
        for name, number in last.items():
            over[number] += [name] if name not in self.returned else []
        return over

    def _launched(self, step: Step, run: Run) -> list[str]:
        layout = self.layout(step)
        allocations = [self._allocation(tensor) for tensor in layout.tensors if tensor not in layout.parts]
        allocations += layout.division(self.first) if layout.parts else []
        step.made += [tensor.name for tensor in layout.tensors if tensor not in layout.parts] + ["memory"] * bool(
            layout.parts
        )
        arguments = [f"_{run.name}", *map(layout.pointer, layout.table(step))]
        arguments += ["kept.pointers"] if run.takes_weights else []
        arguments += ["batch_size"] if run.takes_batch else []
        arguments += ["stream"] if self.has_streams else []
        return [*step.lines, *allocations, f"launch({', '.join(arguments)})", *step.behind]

    def layout(self, step: Step) -> Layout:
        return Layout.of(step, FEWEST_PARTS if self.has_streams else None)

    def _allocation(self, tensor: Memory) -> str:
        own = "" if tensor.dtype == self.graph.inputs[0].type.dtype else f", dtype=torch.{tensor.dtype}"
        return f"{tensor.name} = {self.first}.new_empty({tensor.sizes}{own}){tensor.comment}"


def _workspace(kernel: Kernel) -> str:
    """The key of a kernel's workspace among the values, none of which has a blank in its name."""
    return f"{kernel.name} workspace"


def _shape(tensor: Tensor) -> str:
    """Python source of the sizes as arguments of ``new_empty``, which reads a tuple in 0.7 us more."""
    return ", ".join(map(str, tensor.sizes())) or "()"


def _elements(tensor: Tensor) -> str:
    """Python source of the number of elements."""
    return " * ".join(map(str, tensor.sizes())) or "1"
