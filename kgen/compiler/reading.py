"""Reading: an exported program as an :class:`OpGraph`.

Dimensions and numbers that differ between the program and the one at another batch follow the batch; all others are fixed.
Tensors that forward makes from numbers alone are computed here, once: they are literals of the graph.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

from kgen.compiler import operators
from kgen.compiler.graph import BatchSize, Code, Constant, Input, Literal, Node, OpGraph, Ref, Tensor, Weight, refs
from kgen.compiler.tracing import Trace, failure, functional as made_functional, line_of

if TYPE_CHECKING:
    import torch

MOST_ELEMENTS = 16384  # of a tensor that forward makes from numbers; beyond it, its text would fill most of the file

#: Python's functions that may stand in a program, as source.
_FUNCTIONS = {operator.getitem: "{}[{}]"}


class _NeedsFunctional(Exception):
    """The program writes in place where the graph cannot follow, or has regions that a functional one has not."""


def read(trace: Trace) -> OpGraph:
    """The graph of a traced forward.

    Raises :class:`kgen.errors.CaptureError`, one line, where the program has what a graph cannot hold.
    """
    try:
        return _read(trace, False)
    except _NeedsFunctional:
        return _read(trace, True)


def _read(trace: Trace, functional: bool) -> OpGraph:
    def reader(program: Any, other: Any = None, batch: int | None = None) -> _Reader:
        return _Reader(trace, program, other, batch, functional)

    def prepared(program: Any) -> Any:
        return made_functional(trace.loaded, program) if functional else program

    program = prepared(trace.program)
    for size, other in trace.resized():
        found = reader(program, prepared(other), size)
        if found.others:
            return found.graph()
    return reader(program).graph()


class _Reader:
    """Turns an exported program (and a second one at another batch size) into an :class:`OpGraph`."""

    def __init__(self, trace: Trace, program: Any, other: Any, batch: int | None, functional: bool) -> None:
        self.trace, self.program, self.batch, self.functional = trace, program, batch, functional
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
        self.calls: list[Node] = []

    def failure(self, reason: str, n: Any) -> Exception:
        return failure(self.trace.loaded, reason, line_of(self.trace.loaded, n.meta.get("stack_trace")))

    def is_user_input(self, n: Any) -> bool:
        return n in self.sources

    def _followed(self, other: Any) -> dict[Any, Any]:
        """Each node with that of the other program; empty where a size or a number differs and is no multiple of the batch."""
        others = list(other.graph.nodes) if other is not None else []
        if len(others) != len(self.nodes):
            return {}
        pairs = dict(zip(self.nodes, others))
        if any(a.op != b.op or str(a.target) != str(b.target) for a, b in pairs.items()):
            return {}
        try:
            for a, b in pairs.items():
                for x, y in zip(_leaves(a), _leaves(b), strict=True):
                    if x != y:
                        _multiple(x, y, self.batch)
                for x, y in zip(_shape(a) or (), _shape(b) or (), strict=True):
                    if x != y:
                        _multiple(x, y, self.batch)
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
            tuple(self.inputs), tuple(self.weights), tuple(self.calls), returns, output,
            batch=self.batch if batch_input else None, batch_input=batch_input, guards=tuple(self.guards),
            constants=tuple(self.constants), signature=self.trace.signature,
        ).pruned()  # fmt: skip

    def _needed(self) -> set[Any]:
        """The nodes that the outputs need, and those that write in place; checks of sizes are not among them."""
        found: set[Any] = set()
        for n in reversed(self.nodes):
            if n.op == "output" or n in found or _is_mutable(n):
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
        name = self.names[n] = self._fresh(_identifier(path))
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
        import torch.utils._pytree as pytree

        for prefix, module in self.trace.module.named_modules():
            for key, held in vars(module).items():
                if key.startswith("_") or not isinstance(held, (type(value), list, tuple, dict)):
                    continue
                for path, leaf in pytree.tree_flatten_with_path(held)[0]:
                    if leaf is value:
                        return ".".join([*([prefix] if prefix else []), key]) + "".join(map(str, path))
        return None

    def _type(self, n: Any) -> Tensor | None:
        """The type of a value; ``None`` where it is no tensor or its shape depends on values."""
        shape = _shape(n)
        if shape is None:
            return None
        multiples = (0,) * len(shape)
        if n in self.others:
            other = _shape(self.others[n]) or shape
            multiples = tuple(0 if a == b else _multiple(a, b, self.batch) for a, b in zip(shape, other))
        return Tensor(shape, str(n.meta["val"].dtype).removeprefix("torch."), multiples)

    # Calls

    def _call(self, n: Any) -> None:
        if self._is_literal(n):
            return
        call = _Call(self, n)
        self.names[n] = n.name
        node = operators.recognise(
            operators.Captured(n.name, call.target, call.arguments, self._type(n), call.source(), call.effect, self.types)
        )
        if node.type is not None:
            self.types[n.name] = node.type
        self.calls.append(node)

    def _is_literal(self, n: Any) -> bool:
        """Compute the call where all its tensors are literals, and keep what it gives."""
        import torch

        sources = n.all_input_nodes
        random = torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        if not sources or random or any(x not in self.literals for x in sources):
            return False
        args, kwargs = torch.fx.node.map_arg((n.args, dict(n.kwargs)), lambda x: self.literals[x])
        value = n.target(*args, **kwargs)
        if _is_mutable(n):
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
            return Literal(value.item(), _literal(value))
        if value.numel() > MOST_ELEMENTS:
            raise self.failure(
                f"it makes a tensor of {value.numel()} numbers; register it as a buffer in __init__", n
            )
        name = self.names[n] = self._fresh("constant")
        dtype = str(value.dtype).removeprefix("torch.")
        self.types[name] = Tensor(tuple(value.shape), dtype)
        self.constants.append(Constant(name, self.types[name], _literal(value)))
        return Ref(name)

    def current(self, n: Any) -> Any:
        """The node that stands for a value after what was written into it in place so far."""
        while n in self.renamed:
            n = self.renamed[n]
        return n

    def number(self, a: Any, b: Any) -> Any:
        """A number of the program, and the same of the other one: it follows the batch where they differ."""
        if isinstance(a, int) and not isinstance(a, bool) and a != b:
            return BatchSize(_multiple(a, b, self.batch))
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
            elif kind == "USER_OUTPUT":
                if isinstance(x, torch.fx.Node):
                    names.append(self._returned(x))
                    returned.append(f"{{{names[-1]}}}")
                else:
                    returned.append(_escaped(self.number(x, y)))
        if not names:
            raise failure(self.trace.loaded, "it returns no tensor")
        structure = pytree.tree_unflatten(returned, self.program.call_spec.out_spec)
        return self._spell_container(structure), tuple(names)

    def _returned(self, n: Any) -> str:
        """The name of a value that forward returns."""
        value = self.value(n)
        if isinstance(value, Ref):
            if _shape(self.current(n)) is None and value.name not in self.types:
                raise self.failure("it returns a tensor whose shape depends on values, or no tensor", n)
            return value.name
        text = value.text if isinstance(value, Literal) else f"torch.tensor({value!r})"
        self.calls.append(Node(n.name, "aten.scalar_tensor.default", (), self._type(n), text))
        self.names[n] = n.name
        return n.name

    def _keep(self, n: Any, target: str) -> None:
        """Write what a functional program leaves in a buffer into the buffer itself."""
        buffer = next(w for w in self.weights if w.path == target)
        name = self._fresh(f"{buffer.name}_kept")
        value = Ref(self._returned(n))
        call = "torch.ops.aten.copy_.default({0}, {1})"
        self.calls.append(Node(name, "aten.copy_.default", (buffer.name, value.name), buffer.type, call, (), True))

    def _spell_container(self, structure: Any) -> str:
        if isinstance(structure, str):
            return structure
        if isinstance(structure, tuple):
            inner = ", ".join(map(self._spell_container, structure))
            return f"({inner},)" if len(structure) == 1 else f"({inner})"
        if isinstance(structure, list):
            return "[" + ", ".join(map(self._spell_container, structure)) + "]"
        if isinstance(structure, dict):
            # Doubled braces: the text is formatted with the values' names later.
            return "{{" + ", ".join(f"{_escaped(k)}: {self._spell_container(v)}" for k, v in structure.items()) + "}}"
        raise failure(self.trace.loaded, f"it returns a {type(structure).__name__}: return a tuple, a list or a dict")


class _Call:
    """One call of an ATen operator, read for the table and spelled as Python source."""

    def __init__(self, reader: _Reader, n: Any) -> None:
        self.reader, self.n = reader, n
        target = n.target
        self.is_operator = hasattr(target, "_schema")
        if self.is_operator:
            self.target = str(target)  # aten.linear.default
        elif target in _FUNCTIONS:
            self.target = f"_operator.{target.__name__}"
        else:
            raise self._unknown()
        other = reader.others.get(n)
        self.args = tuple(self._read(a, b) for a, b in zip(n.args, other.args if other else n.args))
        self.kwargs = {
            k: self._read(v, other.kwargs[k] if other and k in other.kwargs else v) for k, v in n.kwargs.items()
        }
        self.effect = _is_mutable(n)
        if self.effect and self._writes_own_value():
            # x.relu_() on a value of the graph: the same as y = relu(x) with y for x from here on.
            self.target = self.target.replace("_.", ".", 1)
            self.effect = False
            reader.renamed[n.args[0]] = n

    def _unknown(self) -> Exception:
        """The error for a call of no operator. Functional programs have no regions without gradients and no ``vmap``."""
        name = getattr(self.n.target, "__name__", str(self.n.target))
        if name == "wrap_with_autocast":
            return self.reader.failure("it uses torch.autocast, and kgen takes float32 only for now", self.n)
        if not self.reader.functional:
            return _NeedsFunctional()
        return self.reader.failure(f"it calls {name}, which is no operator", self.n)

    def _writes_own_value(self) -> bool:
        """Whether the call writes in place into a value that the graph itself made."""
        target = self.n.target
        if not (self.args and isinstance(self.args[0], Ref) and target._schema.name.endswith("_")):
            return False
        base = root = self.n.args[0]
        while root.op != "placeholder" and _is_mutable(root):
            root = root.args[0]  # a tensor that was written in place is the same tensor
        if root.op == "placeholder":
            return self.reader.is_user_input(root)
        if _is_view(base):
            raise _NeedsFunctional
        if any(_is_view(u) and any(self._after(w) for w in u.users) for u in base.users if not self._after(u)):
            raise _NeedsFunctional
        return True

    def _after(self, other: Any) -> bool:
        """Whether the other call comes after this one."""
        order = self.reader.nodes
        return order.index(other) > order.index(self.n)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by the schema's names, defaults filled in; tensors as ``Ref``."""
        if not self.is_operator:
            return {str(i): a for i, a in enumerate(self.args)}
        schema = self.n.target._schema.arguments
        given = {a.name: v for a, v in zip(schema, self.args)} | self.kwargs
        defaults = {a.name: tuple(a.default_value) if isinstance(a.default_value, list) else a.default_value for a in schema}
        return defaults | given

    def _read(self, a: Any, b: Any) -> Any:
        import torch

        if isinstance(a, torch.fx.Node):
            return self.reader.value(a)
        if isinstance(a, (list, tuple)):
            return tuple(self._read(x, y) for x, y in zip(a, b))
        if a is None or isinstance(a, (bool, int, float, str)):
            return self.reader.number(a, b)
        if isinstance(a, torch.device):
            return Code("{device}")
        return Code(str(a))

    def source(self) -> str:
        """The call as Python source, tensors as ``{0}``, ``{1}``, ... in the order of :func:`refs`."""
        order = refs(self.arguments)

        def spell(value: Any) -> str:
            if isinstance(value, Ref):
                return f"{{{order.index(value.name)}}}"
            if isinstance(value, tuple):
                return "[" + ", ".join(spell(v) for v in value) + "]"
            return value.text if isinstance(value, (Code, Literal)) else _escaped(value)

        positional = [spell(a) for a in self.args]
        keywords = [f"{k}={spell(v)}" for k, v in self.kwargs.items()]
        if not self.is_operator:
            return _FUNCTIONS[self.n.target].format(*positional)
        return f"torch.ops.{self.target}({', '.join(positional + keywords)})"


def _has_values(tensor: "torch.Tensor") -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return not tensor.is_meta and not isinstance(tensor, FakeTensor)


def _is_mutable(n: Any) -> bool:
    """Whether a call writes into one of its arguments."""
    schema = getattr(n.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _is_view(n: Any) -> bool:
    """Whether a call's result may share its operand's memory."""
    schema = getattr(n.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def _shape(n: Any) -> tuple[int, ...] | None:
    """The shape of a node's value; ``None`` where it is no tensor or a size depends on values."""
    value = n.meta.get("val")
    if not hasattr(value, "shape") or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)


def _leaves(n: Any) -> list[int | float]:
    """Numbers among a node's arguments, in order."""
    import torch.utils._pytree as pytree

    leaves, _ = pytree.tree_flatten((n.args, n.kwargs))
    return [x for x in leaves if isinstance(x, (int, float)) and not isinstance(x, bool)]


def _multiple(a: int | float, b: int | float, batch: int | None) -> int:
    """m where ``a == m * batch`` and ``b == m * (2 * batch + 1)``; raises ``ValueError`` where there is none."""
    if batch and isinstance(a, int) and isinstance(b, int) and a % batch == 0 and b == a // batch * (2 * batch + 1):
        return a // batch
    raise ValueError(f"{a} and {b} do not follow the batch {batch}")


def _identifier(path: str) -> str:
    """A Python and C identifier for a path: ``linear.weight`` -> ``linear_weight``."""
    name = re.sub(r"\W+", "_", path).strip("_") or "weight"
    return f"w_{name}" if name[0].isdigit() else name


def _escaped(value: Any) -> str:
    """A value as Python source that ``str.format`` leaves as it is."""
    return spell_value(value).replace("{", "{{").replace("}", "}}")


def spell_value(value: Any) -> str:
    """A number, string or nested list of them as Python source; infinities and NaN as calls."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(spell_value, value)) + "]"
    return str(value) if isinstance(value, BatchSize) else repr(value)


def _literal(tensor: "torch.Tensor") -> str:
    """Python source that makes the tensor again."""
    import torch

    text = spell_value(tensor.tolist())
    plain = (torch.float32, torch.int64, torch.bool)
    return f"torch.tensor({text})" if tensor.dtype in plain and tensor.numel() else f"torch.tensor({text}, dtype={tensor.dtype})"
