"""Reading: an exported program as an :class:`OpGraph`.

Dimensions and numbers that differ between the program and the one at another batch follow the batch; all others are
fixed. Tensors that forward makes from numbers alone are computed here, once: they are literals of the graph.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Mapping, Sequence

from kgen.compiler.capture import as_eager, decompositions
from kgen.compiler.capture.aten_call import Call, NeedsFunctional, is_mutable, is_region
from kgen.compiler.capture.tracing import (
    Trace,
    failure,
    functional as made_functional,
    held_tensors,
    line_of,
    unknown_container,
)
from kgen.compiler.graph.graph import Constant, Decomposition, Input, Node, OpGraph, Ref, Tensor, Weight, memory_order
from kgen.compiler.graph.library_call import BatchSize, Literal, X, Y, aten, torch_
from kgen.compiler.graph.source import escaped, identifier, tensor_source
from kgen.compiler.operators import table as operators
from kgen.compiler.operators.library import LIBRARY_PARTS
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

if TYPE_CHECKING:
    import torch

#: Operators that read rows of a table, by their names where a kernel does not take them.
_LOOKUPS = frozenset(
    f"aten.{name}" for name in ("index_select.default", "index.Tensor", "gather.default", "embedding.default")
)
#: Operators that take elements of a dimension by their numbers, by their names where the dimension follows the batch.
_PICKS = frozenset(("aten.select.int", "aten.unbind.int"))
MOST_ELEMENTS = 16384  # elements of one constant; more would fill most of a rendered file


def read(trace: Trace) -> OpGraph:
    """The graph of a traced forward.

    Raises :class:`kgen.errors.CaptureError`, one line, where the program has what a graph cannot hold.
    """
    try:
        return _read(trace, False)
    except NeedsFunctional:
        return _read(trace, True)


def _read(trace: Trace, functional: bool) -> OpGraph:
    def reader(program: Any, other: Any = None, batches: tuple[int, int] | None = None) -> Reader:
        return Reader(trace, program, other, batches, functional)

    def prepared(program: Any) -> Any:
        return made_functional(trace, program) if functional else program

    program = prepared(trace.program)
    for size, other_size, other in trace.resized():
        found = reader(program, prepared(other), (size, other_size))
        graph = found.graph() if found.others else None
        if graph is not None and not _is_no_batch(graph):
            return graph
    return reader(program).graph()


def _is_no_batch(graph: OpGraph) -> bool:
    """Whether a product has the chosen size elsewhere than in its rows, as ``a.t() @ b`` has the first size of ``a``.

    Results must not follow that size, either: ``x @ x.t()`` has a row for each of ``x``. Or whether a lookup reads rows
    of a table that has it, as ``nodes[edges]`` does, at places whose number does not follow it. Or whether each reader
    takes one element by its number.
    """
    followed = {v.name for v in (*graph.inputs, *graph.nodes) if v.type and any(v.type.multiples)}
    readers = [n for n in graph.nodes if not followed.isdisjoint(n.values)]
    if readers and all(n.op in _PICKS for n in readers):
        return True
    lookups = (n for n in graph.nodes if n.op in _LOOKUPS and n.type and not any(n.type.multiples))
    tables = (graph.known_type(n.values[0]) for n in lookups)
    if any(t and any(t.multiples[:1]) for t in tables):
        return True
    products = (n for n in graph.nodes if n.op in OPS and OPS[n.op].kind is Kind.CONTRACTION)
    results = map(graph.known_type, graph.returns)
    if all(t is not None and any(t.multiples[:1]) for t in results):
        return False
    return any(any(graph.type(v).multiples[1:]) for n in products for v in n.values[:2])


class Reader:
    """Turns an exported program (and a second one at another batch size) into an :class:`OpGraph`; ``batches`` are both
    sizes."""

    def __init__(
        self, trace: Trace, program: Any, other: Any, batches: tuple[int, int] | None, functional: bool
    ) -> None:
        self.trace, self.program, self.batches, self.functional = trace, program, batches, functional
        self.nodes = list(program.graph.nodes)
        self.specs = dict(zip((n for n in self.nodes if n.op == "placeholder"), program.graph_signature.input_specs))
        user = [n for n, spec in self.specs.items() if spec.kind.name == "USER_INPUT"]
        self.sources = dict(zip(user, trace.sources, strict=True))
        self.others = self._followed(other)
        self.names: dict[Any, str] = {}
        self.types: dict[str, Tensor] = {}
        self.taken = {n.name for n in self.nodes}
        self.renamed: dict[Any, Any] = {}  # a value written in place -> the node that stands for it afterwards
        self.literals: dict[Any, Any] = {}  # values computed from numbers alone
        self.inputs: list[Input] = []
        self.weights: list[Weight] = []
        self.constants: list[Constant] = []
        self.guards: list[tuple[str, Any]] = list(trace.lengths)
        self.orders: list[tuple[int, ...]] = []  # of what forward returns
        self.calls: list[Node] = []

    @property
    def deterministic(self) -> bool:
        """Whether PyTorch uses algorithms alone that give the same result in each run."""
        import torch

        return torch.are_deterministic_algorithms_enabled()

    def failure(self, reason: str, n: Any) -> Exception:
        return failure(self.trace.loaded, reason, line_of(self.trace.loaded, n.meta.get("stack_trace")))

    def is_user_input(self, n: Any) -> bool:
        return n in self.sources

    def writes_input(self, given: Any, n: Any | None = None) -> Exception:
        """The error of a forward that changes an input: each call of it would have another input."""
        reason = (
            f"it writes into its input `{self.sources[given]}`: copy the input before, or use the operator that is not "
            "in place"
        )
        return self.failure(reason, n if n is not None else given)

    def refuse_parameter(self, given: Any, n: Any | None = None) -> None:
        """Raise where a call writes into a parameter: weights that are prepared once would be old in the next call."""
        spec = self.specs.get(given)
        if spec is not None and spec.kind.name == "PARAMETER":
            reason = f"it writes into its parameter `{spec.target}`: register it as a buffer"
            raise self.failure(reason, n if n is not None else given)

    def _followed(self, other: Any) -> dict[Any, Any]:
        """Each node with that of the other program; empty where a size or a number differs and is no multiple of the
        batch."""
        others = list(other.graph.nodes) if other is not None else []
        if len(others) != len(self.nodes):
            return {}
        pairs = dict(zip(self.nodes, others))
        if any(a.op != b.op or str(a.target) != str(b.target) for a, b in pairs.items()):
            return {}
        try:
            for a, b in pairs.items():
                for x, y in zip(_leaves(a), _leaves(b), strict=True):
                    if x != y and not (x != x and y != y):  # NaN is not equal to itself
                        _multiple(x, y, self.batches)
                for x, y in zip(_shape(a) or (), _shape(b) or (), strict=True):
                    if x != y:
                        _multiple(x, y, self.batches)
        except ValueError:
            return {}
        return pairs

    def graph(self) -> OpGraph:
        output, returns = "", ()
        needed = self._needed()
        for n in self.nodes:
            if n.op == "placeholder":
                self._placeholder(n, self.specs[n])
            elif n.op == "call_function" and n in needed:
                self._call(n)
            elif n.op == "output":
                output, returns = self._output(n)
        batch_input = next((i.name for i in self.inputs if i.type.multiples[:1] not in ((), (0,))), None)
        return OpGraph(
            tuple(self.inputs),
            tuple(self.weights),
            tuple(self.calls),
            returns,
            output,
            batch=self.batches[0] if batch_input else None,
            batch_input=batch_input,
            guards=tuple(self.guards),
            constants=tuple(self.constants),
            signature=self.trace.signature,
            orders=tuple(self.orders) if any(self.orders) else (),
        ).pruned()

    def _needed(self) -> set[Any]:
        """The nodes that the outputs need, and those that write in place; checks of sizes are not among them.

        Regions may write in place, but for those of a functional program.
        """
        found: set[Any] = set()
        for n in reversed(self.nodes):
            if n.op == "output" or n in found or is_mutable(n) or (is_region(n) and not self.functional):
                found.update((n, *n.all_input_nodes))
        return found

    # Placeholders

    def _placeholder(self, n: Any, spec: Any) -> None:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            self._argument(n, spec)
        elif kind in ("PARAMETER", "BUFFER"):
            self._weight(n, spec.target, kind == "BUFFER")
        elif kind == "CONSTANT_TENSOR":
            value = self.program.constants[spec.target]
            path = self._attribute(value)
            if path is not None:
                self._weight(n, path, True)
            elif _has_values(value):
                self.literals[n] = value.detach().clone()
            else:
                raise self.failure(f"the values of a tensor ({spec.target}) are not known before it runs", n)
        else:
            raise self.failure(f"it takes a {kind.lower()} ({n.name})", n)

    def _argument(self, n: Any, spec: Any) -> None:
        import torch

        if isinstance(n.meta.get("val"), torch.Tensor):
            name = self.names[n] = self._input_name(n)
            self.types[name] = self._type(n)
            self.inputs.append(Input(name, self.types[name], self.sources[n]))
        else:
            self.guards.append((self.sources[n], getattr(spec.arg, "value", n.meta.get("val"))))

    def _weight(self, n: Any, path: str, buffer: bool) -> None:
        name = self.names[n] = self._fresh(identifier(path))
        self.types[name] = self._type(n)
        self.weights.append(Weight(name, self.types[name], path, buffer))

    def _input_name(self, n: Any) -> str:
        """The parameter's own name where the argument is the parameter itself; export's name lower-cases it."""
        source = self.sources[n]
        if not source.isidentifier() or (source != n.name and source in self.taken):
            return n.name
        self.taken.add(source)
        return source

    def _fresh(self, stem: str) -> str:
        """A name that no value of the program has."""
        name, count = stem, 1
        while name in self.taken:
            name, count = f"{stem}_{count}", count + 1
        self.taken.add(name)
        return name

    def _attribute(self, value: "torch.Tensor") -> str | None:
        """The path at which a module holds a tensor that is no parameter and no buffer: ``block.scales[0]``."""
        return next((path for path, held in held_tensors(self.trace.module) if held is value), None)

    def _type(self, n: Any) -> Tensor | None:
        """The type of a value; ``None`` where it is no tensor or its shape depends on values."""
        shape = _shape(n)
        if shape is None:
            return None
        multiples = (0,) * len(shape)
        if n in self.others:
            other = _shape(self.others[n]) or shape
            multiples = tuple(0 if a == b else _multiple(a, b, self.batches) for a, b in zip(shape, other))
        return Tensor(shape, str(n.meta["val"].dtype).removeprefix("torch."), multiples)

    # Calls

    def _call(self, n: Any) -> None:
        if self._is_literal(n):
            return
        before = (
            {x: self.names[x] for x in n.all_input_nodes if x in self.names} if is_mutable(n) else {}
        )  # a write renames what it writes into
        call = Call(self, n)
        self.names[n] = n.name
        node = operators.recognise(
            operators.Captured(
                n.name,
                call.target,
                call.arguments,
                self._type(n),
                call.library_call(),
                call.effect,
                self.types,
                self.deterministic,
                self.trace.device_type != as_eager.TRACED_ON,
            )
        )
        if node.type is not None:
            self.types[node.name] = node.type
        if node.op not in OPS and not node.effect:
            node = replace(node, parts=self._parts(n, node, before))
        self.calls.append(node)

    def _parts(self, n: Any, node: Node, before: Mapping[Any, str]) -> Decomposition | None:
        """The decomposition of a call; ``None`` where it has none of operators in the table, alike at every batch.

        ``before`` has the names of its operands before it writes in place.
        """
        import torch
        import torch.utils._pytree as pytree

        if not isinstance(n.target, torch._ops.OpOverload):
            return None
        if torch.Tag.nondeterministic_seeded in n.target.tags and not decompositions.is_ours(n.target):
            return None
        read = [
            Ref(before[x]) if x in before else self.value(x)
            for x in pytree.tree_leaves((n.args, n.kwargs))
            if isinstance(x, torch.fx.Node)
        ]
        if not all(isinstance(x, Ref) and x.name in node.inputs for x in read):
            return None

        _, packet, overload = node.op.split(".")  # of a call in place, the operator that gives a new tensor
        target = getattr(getattr(torch.ops.aten, packet), overload) if is_mutable(n) else n.target

        def program(of: Any) -> Any:
            args, kwargs = torch.fx.node.map_arg((of.args, dict(of.kwargs)), lambda x: x.meta["val"])
            return decompositions.traced(target, args, kwargs)

        found = program(n)
        other = program(self.others[n]) if found is not None and self.others else None
        if found is None or (self.others and other is None):
            return None
        return PartReader(self, found, other, [f"@{node.inputs.index(x.name)}" for x in read]).decomposition()

    def _is_literal(self, n: Any) -> bool:
        """Compute the call where all its tensors are literals, and keep what it gives."""
        import torch

        sources = n.all_input_nodes
        random = torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        if not sources or random or any(x not in self.literals for x in sources):
            return False
        args, kwargs = torch.fx.node.map_arg((n.args, dict(n.kwargs)), lambda x: self.literals[x])
        value = n.target(*args, **kwargs)
        if is_mutable(n):
            self.names = {x: name for x, name in self.names.items() if x not in self.literals}
        if isinstance(value, torch.Tensor) and value.numel() > MOST_ELEMENTS:
            return False
        self.literals[n] = value
        return True

    def value(self, n: Any) -> Any:
        """A node's value as an argument: a reference, a literal number, or Python's own number."""
        import torch

        n = self.current(n)
        if n in self.names:
            return Ref(self.names[n])
        value = self.literals[n]
        if not isinstance(value, torch.Tensor):
            return value
        if value.dim() == 0:
            return Literal(value.item(), str(value.dtype).removeprefix("torch."))
        if value.numel() > MOST_ELEMENTS:
            raise self.failure(f"it makes a tensor of {value.numel()} numbers; register it as a buffer in __init__", n)
        name = self.names[n] = self._fresh("constant")
        dtype = str(value.dtype).removeprefix("torch.")
        self.types[name] = Tensor(tuple(value.shape), dtype)
        self.constants.append(Constant(name, self.types[name], tensor_source(value)))
        return Ref(name)

    def current(self, n: Any) -> Any:
        """The node that stands for a value after what was written into it in place so far."""
        while n in self.renamed:
            n = self.renamed[n]
        return n

    def number(self, a: Any, b: Any) -> Any:
        """A number of the program, and the same of the other one: it follows the batch where they differ."""
        if isinstance(a, int) and not isinstance(a, bool) and a != b:
            return BatchSize(_multiple(a, b, self.batches))
        return a

    # Outputs

    def _output(self, n: Any) -> tuple[str, tuple[str, ...]]:
        """Python source of what forward returned, its container restored; what it leaves in buffers becomes effects."""
        import torch
        import torch.utils._pytree as pytree

        returned: list[str] = []
        names: list[str] = []
        others = self.others[n].args[0] if self.others else n.args[0]
        for x, y, spec in zip(n.args[0], others, self.program.graph_signature.output_specs, strict=True):
            kind = spec.kind.name
            if kind == "BUFFER_MUTATION":
                self._keep(x, spec.target)
            elif kind == "USER_INPUT_MUTATION":
                raise self.writes_input(next(given for given in self.sources if given.name == spec.target))
            elif kind == "PARAMETER_MUTATION":
                self.refuse_parameter(next(given for given, of in self.specs.items() if of.target == spec.target))
            elif kind == "USER_OUTPUT":
                if isinstance(x, torch.fx.Node):
                    names.append(self._returned(x))
                    self.orders.append(_order(self.current(x).meta.get("val")))
                    returned.append(f"{{{names[-1]}}}")
                else:
                    returned.append(escaped(self.number(x, y)))
        if not names:
            raise failure(self.trace.loaded, "it returns no tensor")
        structure = pytree.tree_unflatten(returned, self.program.call_spec.out_spec)
        try:
            return _container_source(structure), tuple(names)
        except TypeError as error:
            raise failure(self.trace.loaded, unknown_container(str(error))) from error

    def _returned(self, n: Any) -> str:
        """The name of a value that forward returns."""
        value = self.value(n)
        if isinstance(value, Ref):
            if not hasattr(self.current(n).meta.get("val"), "shape") and value.name not in self.types:
                raise self.failure("it returns no tensor", n)
            return value.name
        made = value if isinstance(value, Literal) else torch_("tensor", value)
        self.calls.append(Node(n.name, "aten.scalar_tensor.default", (), self._type(n), made))
        self.names[n] = n.name
        return n.name

    def _keep(self, n: Any, target: str) -> None:
        """Write what a functional program leaves in a buffer into the buffer itself."""
        buffer = next(w for w in self.weights if w.path == target)
        name = self._fresh(f"{buffer.name}_kept")
        value = Ref(self._returned(n))
        call = aten("copy_.default", X, Y)
        self.calls.append(Node(name, "aten.copy_.default", (buffer.name, value.name), buffer.type, call, (), True))


class PartReader(Reader):
    """Turns the traced decomposition of one call into plain nodes; ``operands`` are the names of its placeholders."""

    def __init__(self, of: Reader, program: Any, other: Any, operands: Sequence[str]) -> None:
        self.trace, self.batches, self.functional = of.trace, of.batches, True
        self.nodes, self.operands = list(program.graph.nodes), operands
        self.program, self.specs, self.sources, self.renamed, self.literals = program, {}, {}, {}, {}
        self.others = self._followed(other)
        self.complete = bool(self.others) or other is None
        self.taken = {n.name for n in self.nodes}
        self.names, self.types, self.constants, self.calls = {}, {}, [], []

    def decomposition(self) -> Decomposition | None:
        """The nodes and results; ``None`` where one has no entry in the table, or writes into a view."""
        try:
            return self._decomposition()
        except NeedsFunctional:
            return None

    def _decomposition(self) -> Decomposition | None:
        import torch
        import torch.utils._pytree as pytree

        given = iter(self.operands)
        for n in self.nodes if self.complete else ():
            if n.op == "placeholder":
                self.names[n] = next(given)
                self.types[self.names[n]] = self._type(n)
            elif n.op == "call_function":
                self._call(n)
            elif n.op == "output":
                results = pytree.tree_leaves(n.args)
                known = all((node.op in OPS or node.op in LIBRARY_PARTS) and not node.effect for node in self.calls)
                if (
                    known
                    and not self.constants
                    and all(isinstance(r, torch.fx.Node) and r in self.names for r in results)
                ):
                    return Decomposition(tuple(self.calls), tuple(self.names[r] for r in results))
        return None

    def _parts(self, n: Any, node: Node, before: Mapping[Any, str]) -> None:
        """Parts are not taken apart any further: the trace did that."""


def _container_source(structure: Any) -> str:
    """Python source of a container of texts. Raises ``TypeError`` with the name of a class that is no known
    container."""
    if isinstance(structure, str):
        return structure
    if isinstance(structure, tuple):
        inner = ", ".join(map(_container_source, structure))
        return f"({inner},)" if len(structure) == 1 else f"({inner})"
    if isinstance(structure, list):
        return "[" + ", ".join(map(_container_source, structure)) + "]"
    if isinstance(structure, dict):
        # Doubled braces: the text is formatted with the values' names later.
        return "{{" + ", ".join(f"{escaped(k)}: {_container_source(v)}" for k, v in structure.items()) + "}}"
    raise TypeError(type(structure).__name__)


def _has_values(tensor: "torch.Tensor") -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return not tensor.is_meta and not isinstance(tensor, FakeTensor)


def _shape(n: Any) -> tuple[int, ...] | None:
    """The shape of a node's value; ``None`` where it is no tensor or a size depends on values."""
    value = n.meta.get("val")
    if not hasattr(value, "shape") or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)


def _order(value: Any) -> tuple[int, ...]:
    """The order of a value's dimensions in memory; empty where its sizes depend on values."""
    known = hasattr(value, "stride") and all(isinstance(n, int) for n in (*value.shape, *value.stride()))
    return memory_order(value.shape, value.stride()) if known else ()


def _leaves(n: Any) -> list[int | float]:
    """Numbers among a node's arguments, in order."""
    import torch.utils._pytree as pytree

    leaves, _ = pytree.tree_flatten((n.args, n.kwargs))
    return [x for x in leaves if isinstance(x, (int, float)) and not isinstance(x, bool)]


def _multiple(a: int | float, b: int | float, batches: tuple[int, int] | None) -> int:
    """m where ``a`` is m times the one batch and ``b`` m times the other; raises ``ValueError`` where there is none."""
    batch, other = batches or (0, 0)
    if batch and isinstance(a, int) and isinstance(b, int) and a % batch == 0 and b == a // batch * other:
        return a // batch
    raise ValueError(f"{a} and {b} do not follow the batch {batch}")
