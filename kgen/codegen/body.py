"""The text of one mode of a ModelNew: calls of the library, and between two of them one run of kernels.

    linear_weight, linear_bias = kept.tensors                          weights for calls of the library
    linear = F.linear(x, linear_weight, linear_bias)                   a call of the library
    softmax = dense(linear, torch.float32)  # written over             memory that kernels read and write
    launch(_launch_kernels, softmax.data_ptr(), batch_size)            a run of kernels: one call of a C function
    return softmax
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Callable, Iterator, Mapping, Sequence

from kgen.candidate import GAP
from kgen.codegen.forward import Forward, python_name, targets, tuple_source, weight_source
from kgen.codegen.template import Argument, Rendering
from kgen.compiler.fusion.steps import FusionPlan, Kernel
from kgen.compiler.graph.dtypes import nbytes
from kgen.compiler.graph.graph import Node, Tensor
from kgen.compiler.graph.library_call import SHORTER, LibraryCall, written
from kgen.compiler.loops.program import Program

_FEW_STEPS = 8  # of a forward; in a longer one, tensors are freed as soon as nothing uses them
FEWEST_PARTS = 2  # temporaries of a run for one allocation; another allocation takes 2.5 us; benchmarks/results/host_time.md
_PART = GAP  # bytes; parts of an allocation begin at multiples of it, with so many unused ones at least in front of each

#: Functions of the same arguments as an operator. A call of an operator by its name takes 1.5 to 2.5 us more (two CPU cores).
_NAMES = {
    **SHORTER,
    **{f"aten.{operator}": function for operator, function in {
        "bmm.default": "torch.bmm", "cat.default": "torch.cat", "chunk.default": "torch.chunk", "flatten.using_ints": "torch.flatten",
        "matmul.default": "torch.matmul", "permute.default": "torch.permute", "reshape.default": "torch.reshape",
        "scaled_dot_product_attention.default": "F.scaled_dot_product_attention", "select.int": "torch.select",
        "squeeze.dim": "torch.squeeze", "stack.default": "torch.stack", "transpose.int": "torch.transpose",
        "unsqueeze.default": "torch.unsqueeze",
    }.items()},
}  # fmt: skip

#: A pointer that a kernel takes: its table, and its key in that.
Pointer = tuple[str, str]
_TENSORS, _WEIGHTS = "tensors", "weights"


@dataclass(frozen=True)
class Launch:
    """One kernel of a run: its launcher, its rows as source, and its pointers."""

    launcher: str
    rows: str
    pointers: tuple[Pointer, ...]


@dataclass
class Buffer:
    """Memory that a kernel of a run fills: the values in it, one after the other, and the launches that use it.

    ``sizes`` are the argument of ``new_empty``, ``elements`` their product, both as source. A buffer that ``leaves`` is a
    tensor of Python's for what follows; another one serves its run alone. Values of a run's table are known by ``key``.
    """

    key: str
    values: list[str]
    sizes: str
    elements: str
    dtype: str
    first: int
    last: int
    leaves: bool = False

    @property
    def name(self) -> str:
        """The name of its tensor: that of its last value."""
        return self.values[-1]


@dataclass
class Step:
    """A call of the library, or a run of kernels. ``lines`` stand before the launch, ``behind`` after it."""

    lines: list[str] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    dense: dict[str, str] = field(default_factory=dict)  # names of dense forms by their source
    made: list[str] = field(default_factory=list)  # names of Python
    used: set[str] = field(default_factory=set)  # likewise
    closed: bool = False  # nothing is added to it any more


@dataclass(frozen=True)
class Run:
    """A function of C that launches kernels one behind the other, and the arguments of each as source.

    ``tensors`` is the number of pointers to the call's tensors.
    """

    name: str
    calls: tuple[tuple[str, str], ...]
    tensors: int
    takes_weights: bool
    takes_batch: bool

    def packed(self, streams: bool) -> str:
        """The format of ``struct`` for its arguments, the stream last."""
        return f"{self.tensors}P" + "P" * self.takes_weights + "q" * self.takes_batch + "P" * streams


class Body:
    """The text of one mode.

    ``launcher`` gives a kernel's name in the file. ``prefix`` stands before names of which each mode has one. ``constants`` are
    names of the file's constants by their source. ``counts_changes`` says that changed buffers must show in their version.
    """

    def __init__(
        self, plan: FusionPlan, renderings: Mapping[str, Rendering], forward: Forward, launcher: Callable[[Kernel], str], *,
        prefix: str, constants: Mapping[str, str], counts_changes: bool, has_streams: bool,
    ) -> None:  # fmt: skip
        self.plan, self.graph, self.renderings, self.forward, self.launcher = plan, plan.graph, renderings, forward, launcher
        self.prefix, self.constants, self.counts_changes, self.has_streams = prefix, constants, counts_changes, has_streams
        self.first = python_name(self.graph.inputs[0].name)
        self.read: dict[str, tuple[str, str]] = {}  # weights that kernels read as they are: name and source by key
        self.derived: dict[str, str] = {}  # other tensors in the table of weights: source by key
        self.sources: dict[str, None] = {s: None for d in self.graph.folded for s in d.sources if self._is_own(s)}
        self.sources |= {a.tensor: None for a in self.filled.values() if self._is_own(a.tensor)}
        self.taken: dict[str, None] = {}  # tensors that calls of the library take from what is kept
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

    # Weights that are kept between calls

    @cached_property
    def keeps(self) -> bool:
        """Whether weights are kept between calls as forward takes them. A control reads each where it is used."""
        return bool(self.graph.weights) and bool(self.plan.kernels or self.graph.folded)

    @property
    def weights(self) -> dict[str, str]:
        """The paths of weights that a module's tables hold, by name."""
        return {python_name(w.name): w.path for w in self.graph.weights if "[" not in w.path}

    @property
    def listed(self) -> dict[str, str]:
        """Python source of weights that lie in a list or a dict, by name."""
        return {python_name(w.name): weight_source(w) for w in self.graph.weights if "[" in w.path}

    @cached_property
    def filled(self) -> dict[str, Argument]:
        """The memory that kernels have prepared from weights, by its name in the module, each once."""
        found: dict[str, Argument] = {}
        for rendering in self.renderings.values():
            for a in rendering.all_arguments:
                if a.filled:
                    found.setdefault(self.graph.fresh(a.name), a)
        return found

    @property
    def prepares(self) -> list[str]:
        """Statements that make what is derived from weights."""
        lines = [f"{d.name} = {_folded(d.call, [*map(self._kept_name, d.sources)])}" for d in self.graph.folded]
        for name, a in self.filled.items():
            weight = self._kept_name(a.tensor)
            lines.append(f"{name} = {weight}.new_empty({a.size})")
            source = _dense(_folded(a.filled.form, [weight]), a.dtype)
            lines.append(f"fill(_{a.filled.launcher}, {a.filled.rows}, {source}, {name})")
        return lines

    @property
    def prepared_bytes(self) -> int:
        """Bytes of what is made from weights and kept."""
        folded = sum(math.prod(d.type.shape) * nbytes(d.type.dtype) for d in self.graph.folded)
        return folded + sum(int(a.size) * nbytes(a.dtype) for a in self.filled.values() if a.size.isdecimal())

    @property
    def kept(self) -> dict[str, str]:
        """The arguments of ``Kept.take`` as source."""
        return {
            "read": tuple_source([name for name, _ in self.read.values()]),
            "pointed": tuple_source([*(source for _, source in self.read.values()), *self.derived.values()]),
            "tensors": tuple_source([*self.taken]),
            "sources": tuple_source([python_name(s) for s in self.sources]),
        }

    def _is_own(self, value: str) -> bool:
        """Whether the value is a weight of the module, and not folded from some."""
        return any(w.name == value for w in self.graph.weights)

    def _kept_name(self, value: str) -> str:
        return python_name(value) if self._is_own(value) else value

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
            return self._weight(value)
        if value in self.buffers:
            _, buffer = self.buffers[value]
            buffer.leaves = True
            name = buffer.name
        else:
            name = self.names[value]
        if step is not None:
            step.used.add(name)
        return name

    def _weight(self, value: str) -> str:
        if not self.keeps:
            return next(weight_source(w) for w in self.graph.weights if w.name == value)
        self.taken[self._kept_name(value)] = None
        return self._kept_name(value)

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
            self.taken |= {self.graph.fresh(a.name): None for a in before.arguments if a.role == "prepared"}
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
            self.derived[name] = name
            return _WEIGHTS, name
        if a.role == "workspace":
            name = self.graph.fresh(f"{kernel.name}_workspace") if self.renderings[kernel.name].before else "workspace"
            size = a.size.replace("rows", str(program.size))
            return self._written(step, _workspace(kernel), name, size, size, a.dtype)
        if a.role == "out":
            of = self.graph.type(a.tensor)
            return self._written(step, a.tensor, python_name(a.tensor), _shape(of), _elements(of), a.dtype)
        values = [*dict.fromkeys(s.tensor for s in program.stores if s.level == "element" and not s.into)]
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
            return _TENSORS, buffer.key
        return _TENSORS, self._name(value, step)

    def _overwritten(self, step: Step, a: Argument, values: list[str]) -> Pointer:
        """Memory of a value that a kernel writes ``values`` over; all of them are one tensor."""
        if a.tensor in self.buffers and self.buffers[a.tensor][0] is step:
            _, buffer = self.buffers[a.tensor]
            buffer.values.append(python_name(values[0]))
            self.buffers |= {v: (step, buffer) for v in values}
            return self._in_buffer(step, a.tensor)
        name = self._name(a.tensor, step)
        source = name if self._is_made(a.tensor) else _dense(name, a.dtype)
        local = python_name(values[0])
        step.lines.append(f"{local} = {source}  # written over")
        step.made.append(local)
        self.names |= {v: local for v in values}
        self.overwrites |= {v: step for v in values}
        return _TENSORS, local

    def _is_made(self, value: str) -> bool:
        """Whether kernels have made the tensor."""
        return value in self.buffers or value in self.overwrites

    def _operand(self, step: Step, a: Argument) -> Pointer:
        """A tensor that a kernel reads, or a buffer of the module that it changes."""
        if self._is_made(a.tensor):
            return self._in_buffer(step, a.tensor) if a.tensor in self.buffers else (_TENSORS, self._name(a.tensor, step))
        if self.graph.is_weight(a.tensor) and (a.role == "state" or a.tensor not in self._changing):
            return _WEIGHTS, self._kept_pointer(a)
        return _TENSORS, self._dense_local(step, self._name(a.tensor, step), a)

    @cached_property
    def _changing(self) -> set[str]:
        """Weights and buffers that forward itself changes, so that a copy of one serves one step."""
        found: set[str] = set()
        for node in self.graph.nodes:
            if node.effect:
                read = ("weight", "bias") if node.op == "batch_norm" else ()
                roles = node["roles"] if node.op == "batch_norm" else [""] * len(node.inputs)
                found |= {v for role, v in zip(roles, node.inputs) if isinstance(v, str) and role not in read}
        return found

    def _dense_local(self, step: Step, name: str, a: Argument) -> str:
        """The name of a tensor's dense form in a step; one copy serves all kernels of the step."""
        source = _dense(name, a.dtype)
        if source not in step.dense:
            others = [of for of in step.dense.values() if of.startswith(f"{name}_dense")]
            local = step.dense[source] = self.graph.fresh(f"{name}_dense" + "_other" * len(others))
            step.lines.append(f"{local} = {source}")
            step.made.append(local)
        return step.dense[source]

    def _kept_pointer(self, a: Argument) -> str:
        """The key of a weight in the table of weights."""
        name = self._kept_name(a.tensor)
        if a.role == "state":
            return self._read(name, f"typed({name}, torch.{a.dtype})")
        source = _dense(name, a.dtype)
        if self._is_own(a.tensor):
            return self._read(name, source)
        self.derived[source] = source
        return source

    def _read(self, name: str, source: str) -> str:
        self.read[source] = name, source
        return source

    # The text

    @cached_property
    def runs(self) -> list[Run]:
        """The functions of C that launch the kernels, in order."""
        steps = [step for step in self.steps if step.launches]
        names = [f"{self.prefix}launch_kernels" + (f"_{n + 1}" if len(steps) > 1 else "") for n in range(len(steps))]
        return [self._run(name, step) for name, step in zip(names, steps)]

    def _run(self, name: str, step: Step) -> Run:
        layout, weights = self.layout(step), [*self.read, *self.derived]
        tensors = layout.table(step)

        def source(pointer: Pointer) -> str:
            table, key = pointer
            return f"weights[{weights.index(key)}]" if table == _WEIGHTS else f"tensors[{tensors.index(layout.tensor(key))}]"

        return Run(
            name,
            tuple((x.launcher, ", ".join([*map(source, x.pointers), x.rows])) for x in step.launches),
            len(tensors),
            any(table == _WEIGHTS for x in step.launches for table, _ in x.pointers),
            any("batch_size" in x.rows for x in step.launches),
        )

    @cached_property
    def lines(self) -> list[str]:
        """The statements of the method."""
        begin = [f"{targets([*self.taken])} = kept.tensors"] if self.taken else []
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
        """The lines of all steps. In a long forward, a statement behind each frees what no later one uses, as modules do."""
        runs = iter(self.runs)
        texts = [self._launched(step, next(runs)) if step.launches else [*step.lines, *step.behind] for step in self.steps]
        over = self._over()
        long = sum(max(1, len(step.launches)) for step in self.steps) > _FEW_STEPS
        for number, text in enumerate(texts):
            yield from text
            if long and over[number] and number + 1 < len(texts):
                yield f"del {', '.join(over[number])}"

    def _over(self) -> list[list[str]]:
        """Names of which each step is the last that uses the tensor. A later step may make another tensor of the same name."""
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
        step.made += [tensor.name for tensor in layout.tensors if tensor not in layout.parts] + ["memory"] * bool(layout.parts)
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


@dataclass
class Memory:
    """A tensor that a run allocates, for the buffers of these keys. Each is last used before the next is written."""

    keys: list[str]
    name: str
    sizes: str
    elements: list[str]
    dtype: str
    values: list[str]
    last: int
    leaves: bool

    @property
    def count(self) -> str:
        """Python source of the number of elements."""
        return self.elements[0] if len(self.elements) == 1 else f"max({', '.join(self.elements)})"

    @property
    def comment(self) -> str:
        return f"  # {', then '.join(self.values)}" if len(self.values) > 1 else ""

    def takes(self, buffer: Buffer) -> bool:
        """Whether the buffer may lie here."""
        return not self.leaves and not buffer.leaves and self.dtype == buffer.dtype and self.last < buffer.first

    def add(self, buffer: Buffer) -> None:
        self.keys.append(buffer.key)
        self.values += [v for v in buffer.values if v != self.values[-1]]
        self.elements += [e for e in [buffer.elements] if e not in self.elements]
        self.sizes = self.count
        self.last = buffer.last


@dataclass(frozen=True)
class Layout:
    """The tensors that a run allocates. ``parts`` are those that lie in one allocation, ``memory``, of which Python has pointers."""

    tensors: tuple[Memory, ...]
    parts: tuple[Memory, ...] = ()

    @classmethod
    def of(cls, step: Step, fewest_parts: int | None) -> Layout:
        """The layout of a step. From ``fewest_parts`` on, tensors of the run alone are parts of one; with ``None``, never."""
        tensors: list[Memory] = []
        for b in step.buffers:
            fits = [t for t in tensors if t.takes(b)]
            found = next((t for t in fits if b.elements in t.elements), fits[0] if fits else None)
            if found:
                found.add(b)
            else:
                tensors.append(Memory([b.key], b.name, b.sizes, [b.elements], b.dtype, [*b.values], b.last, b.leaves))
        own = sorted((t for t in tensors if not t.leaves), key=lambda t: "batch_size" in t.sizes)  # constant places first
        parts = own if fewest_parts is not None and len(own) >= fewest_parts else []
        _name_apart(tensors, numbered=bool(parts))
        return cls(tuple(tensors), tuple(parts))

    @property
    def places(self) -> list[tuple[str, str]]:
        """Where all parts but the first begin, in bytes as source."""
        first, *rest = self.parts or (None,)
        found = []
        for before, part in zip(self.parts, rest):
            size = f"({_bytes(before)} + {2 * _PART - 1}) & -{_PART}"
            place = str(int(_bytes(before)) + 2 * _PART - 1 & -_PART) if _bytes(before).isdecimal() else size
            found.append((part.name, f"{before.name} + ({place})" if before is not first else place))
        return found

    @property
    def size(self) -> str:
        """The bytes of ``memory`` as source."""
        return f"{self.parts[-1].name} + {_bytes(self.parts[-1])}"

    def division(self, like: str) -> list[str]:
        """The statements that make places of all parts but the first, and allocate ``memory`` on the device of a tensor."""
        lines = [f"{name} = {place}{part.comment}" for (name, place), part in zip(self.places, self.parts[1:])]
        names = ", ".join(part.name for part in self.parts)
        return [*lines, f"memory = {like}.new_empty({self.size}, dtype=torch.uint8)  # {names}", "at = memory.data_ptr()"]

    def pointer(self, name: str) -> str:
        """Python source of a pointer to a tensor."""
        places = {part.name: f"at + {part.name}" if number else "at" for number, part in enumerate(self.parts)}
        return places.get(name, f"{name}.data_ptr()")

    def tensor(self, key: str) -> str:
        """The name of the tensor behind a key of the run's table: a buffer's key, or a name already."""
        return next((t.name for t in self.tensors if key in t.keys), key)

    def table(self, step: Step) -> list[str]:
        """The names of the tensors in the run's table, in order."""
        keys = [key for launch in step.launches for table, key in launch.pointers if table == _TENSORS]
        return list(dict.fromkeys(map(self.tensor, keys)))


def _name_apart(tensors: list[Memory], numbered: bool) -> None:
    """Tensors for more than one buffer are called ``memory``, with a number where one is ``numbered`` or there are several."""
    shared = [t for t in tensors if len(t.keys) > 1]
    for number, tensor in enumerate(shared):
        tensor.name = f"memory_{number + 1}" if numbered or len(shared) > 1 else "memory"
    workspaces = [t for t in tensors if t.name == "workspace"]
    for number, tensor in enumerate(workspaces[1:]):
        tensor.name = f"workspace_{number + 2}"


def _workspace(kernel: Kernel) -> str:
    """The key of a kernel's workspace among the values, none of which has a blank in its name."""
    return f"{kernel.name} workspace"


def _folded(call: LibraryCall, names: Sequence[str]) -> str:
    """Python source of a tensor that is computed from weights of these names."""
    return written(call, names.__getitem__, f"{names[0]}.device")


def _dense(source: str, dtype: str) -> str:
    """Python source of a tensor as a kernel takes it."""
    return f"dense({source}, torch.{dtype})"


def _shape(tensor: Tensor) -> str:
    """Python source of the sizes as arguments of ``new_empty``, which reads a tuple in 0.7 us more."""
    return ", ".join(map(str, tensor.sizes())) or "()"


def _bytes(part: Memory) -> str:
    """Python source of a part's size, with one number for those that are multiplied."""
    factors = [str(nbytes(part.dtype)), *part.count.split(" * ")]
    if not all(re.fullmatch(r"\w+", factor) for factor in factors):
        return f"{nbytes(part.dtype)} * {part.count if part.count.startswith('max(') else f'({part.count})'}"
    number = math.prod(int(factor) for factor in factors if factor.isdecimal())
    return " * ".join([str(number), *(factor for factor in factors if not factor.isdecimal())])


def _elements(tensor: Tensor) -> str:
    """Python source of the number of elements."""
    return " * ".join(map(str, tensor.sizes())) or "1"
