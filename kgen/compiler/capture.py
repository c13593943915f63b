"""Capture: the graph of a module's forward, with ``torch.export``.

Capture exports the model at the problem's batch size and at another one. Dimensions that differ follow the batch; all
others are fixed.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Iterable

from kgen.compiler import operators
from kgen.compiler.graph import BatchSize, Code, Input, Node, OpGraph, Ref, Tensor, Weight, refs
from kgen.errors import CaptureError, ProblemError

if TYPE_CHECKING:
    import torch

    from kgen.problem import LoadedProblem

#: dtypes that kgen's kernels and evaluator take; integers and booleans may stand beside float32.
FLOATING = {"float64", "float16", "bfloat16", "complex64", "complex128"}


@dataclass(frozen=True)
class Capture:
    """One graph for each of the problem's modes; ``same`` where train and eval are the same computation."""

    graphs: tuple[tuple[str, OpGraph], ...]
    same: bool = field(default=False)


def capture(loaded: "LoadedProblem") -> Capture:
    """Capture the problem's forward in each of its modes.

    Raises :class:`CaptureError`, one line, where the forward cannot be exported or holds another floating dtype than
    float32, and :class:`kgen.errors.ProblemError` where the problem's own functions raise.
    """
    problem = loaded.problem
    graphs = {mode: _capture_mode(loaded, mode) for mode in problem.modes}
    other = {"train": "eval", "eval": "train"}
    if len(graphs) == 2:
        same = graphs["train"] == graphs["eval"]
    else:
        (mode,) = graphs
        try:
            same = _capture_mode(loaded, other[mode]) == graphs[mode]
        except CaptureError:
            same = False
    return Capture(tuple(graphs.items()), same)


def _capture_mode(loaded: "LoadedProblem", mode: str) -> OpGraph:
    import torch

    problem = loaded.problem
    inputs = loaded.inputs()
    _check_dtypes(problem.path, "get_inputs()", (t for t in inputs if isinstance(t, torch.Tensor)))
    model = _meta_model(loaded)
    module = model if model is not None else loaded.model()
    _check_dtypes(problem.path, "Model", [*module.parameters(), *module.buffers()])
    module.train(mode == "train")
    meta = model is not None
    try:
        program = _export(problem.path, module, inputs, "meta" if meta else None)
    except CaptureError:
        if not meta:
            raise
        # Plain tensor attributes and data-dependent constructors have no values on the meta device.
        meta, module = False, loaded.model()
        module.train(mode == "train")
        program = _export(problem.path, module, inputs, None)
    other, batch = None, None
    tensors = [t for t in inputs if isinstance(t, torch.Tensor) and t.dim()]
    if tensors:
        batch = tensors[0].shape[0]
        resized = [_resized(t, batch) if isinstance(t, torch.Tensor) and t.dim() else t for t in inputs]
        try:
            other = _export(problem.path, module, resized, "meta" if meta else None)
        except CaptureError:
            other = None
    sources = _argument_sources(module, inputs)
    found = _Reader(problem.path, module, program, other, batch, sources).graph()
    if not found.inputs:
        raise CaptureError(f"{problem.path}: forward takes no tensor")
    return found


def _resized(tensor: "torch.Tensor", batch: int) -> "torch.Tensor":
    """The tensor at the other batch size, twice the batch and one more, if its first dimension is the batch."""
    if tensor.shape[0] != batch:
        return tensor
    return tensor.new_zeros((2 * batch + 1, *tensor.shape[1:]), device="meta")


def _meta_model(loaded: "LoadedProblem") -> "torch.nn.Module | None":
    import torch

    try:
        with torch.device("meta"):
            model = loaded.model()
    except ProblemError:
        return None
    tensors = [*model.parameters(), *model.buffers()]
    return model if all(t.device.type == "meta" for t in tensors) else None


def _check_dtypes(path: str, where: str, tensors: Iterable["torch.Tensor"]) -> None:
    for tensor in tensors:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype in FLOATING:
            raise CaptureError(f"{path}: {where} holds {dtype}: kgen takes float32 only for now (and integers)")


def _export(path: str, module: "torch.nn.Module", inputs: list, device: str | None) -> Any:
    import logging
    import warnings

    import torch

    if device is not None:
        inputs = [t.to(device) if isinstance(t, torch.Tensor) else t for t in inputs]
    else:
        inputs = [torch.zeros_like(t, device="cpu") if isinstance(t, torch.Tensor) and t.is_meta else t for t in inputs]
    logger = logging.getLogger("torch.export")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module, tuple(inputs), strict=False)
    except (Exception, SystemExit) as error:
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CaptureError(f"{path}: forward cannot be captured: {type(error).__name__}: {text[:240]}") from error
    finally:
        logger.setLevel(level)


class _Reader:
    """Turns an exported program (and a second one at another batch size) into an :class:`OpGraph`."""

    def __init__(
        self,
        path: str,
        module: "torch.nn.Module",
        program: Any,
        other: Any,
        batch: int | None,
        sources: list[str],
    ) -> None:
        self.path, self.module, self.program, self.batch = path, module, program, batch
        self.nodes = list(program.graph.nodes)
        others = list(other.graph.nodes) if other is not None else []
        alike = len(others) == len(self.nodes) and all(
            a.op == b.op and str(a.target) == str(b.target) for a, b in zip(self.nodes, others)
        )
        self.others = dict(zip(self.nodes, others)) if alike else {}
        if self.others and not self._follows():
            self.others = {}
        self.names: dict[Any, str] = {}
        self.types: dict[str, Tensor] = {}
        self.taken = {n.name for n in self.nodes}
        placeholders = [n for n in self.nodes if n.op == "placeholder"]
        kinds = [spec.kind.name for spec in program.graph_signature.input_specs]
        user = [n for n, kind in zip(placeholders, kinds, strict=True) if kind == "USER_INPUT"]
        self.sources = dict(zip(user, sources, strict=True))
        self.renamed: dict[Any, Any] = {}  # a value written in place -> the node that stands for it afterwards

    def is_user_input(self, n: Any) -> bool:
        return n in self.sources

    def _follows(self) -> bool:
        """Whether every size and number that differs is an integer multiple of the batch in both programs."""
        try:
            for a, b in self.others.items():
                for x, y in zip(_leaves(a), _leaves(b), strict=True):
                    if x != y:
                        _multiple(x, y, self.batch)
                val_a, val_b = a.meta.get("val"), b.meta.get("val")
                if hasattr(val_a, "shape"):
                    for x, y in zip(val_a.shape, val_b.shape):
                        if x != y:
                            _multiple(int(x), int(y), self.batch)
        except ValueError:
            return False
        return True

    def graph(self) -> OpGraph:
        import torch
        from torch.export.graph_signature import InputKind

        inputs: list[Input] = []
        weights: list[Weight] = []
        guards: list[tuple[str, Any]] = []
        specs = iter(self.program.graph_signature.input_specs)
        nodes: list[Node] = []
        output, returns = "", ()
        for n in self.nodes:
            if n.op == "placeholder":
                spec = next(specs)
                if spec.kind == InputKind.USER_INPUT:
                    name = self.names[n] = self._input_name(n)
                    if isinstance(n.meta.get("val"), torch.Tensor):
                        inputs.append(Input(name, self._type(n), self.sources[n]))
                        self.types[name] = self._type(n)
                    else:
                        guards.append((self.sources[n], getattr(spec.arg, "value", n.meta.get("val"))))
                elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                    name = self._weight_name(spec.target)
                    self.names[n] = name
                    self.types[name] = self._type(n)
                    weights.append(Weight(name, self.types[name], spec.target, spec.kind == InputKind.BUFFER))
                else:
                    name = self._weight_name(spec.target)
                    self.names[n], self.types[name] = name, self._type(n)
                    weights.append(Weight(name, self.types[name], self._constant_path(spec.target), True))
            elif n.op == "call_function":
                nodes.append(self._node(n))
            elif n.op == "output":
                returned = n.args[0]
                output, returns = self._output(returned)
            else:
                raise CaptureError(f"{self.path}: forward cannot be captured: it has a {n.op} ({n.target})")
        batch_input = next((i.name for i in inputs if i.type.multiples[:1] not in ((), (0,))), None)
        return OpGraph(
            tuple(inputs), tuple(weights), tuple(nodes), returns, output,
            batch=self.batch if batch_input else None, batch_input=batch_input, guards=tuple(guards),
        ).pruned()  # fmt: skip

    def _input_name(self, n: Any) -> str:
        """The parameter's own name where the argument is the parameter itself; export's name lower-cases it."""
        source = self.sources[n]
        if not source.isidentifier() or (source != n.name and source in self.taken):
            return n.name
        self.taken.add(source)
        return source

    def _weight_name(self, target: str) -> str:
        """A name for a weight that no value of the program and no other weight has."""
        stem = name = _identifier(target)
        count = 1
        while name in self.taken:
            name, count = f"{stem}_{count}", count + 1
        self.taken.add(name)
        return name

    def _constant_path(self, target: str) -> str:
        """Where the module itself holds a tensor that export lifted as a constant."""
        constant = self.program.constants[target]
        for prefix, module in self.module.named_modules():
            for key, value in vars(module).items():
                if value is constant:
                    return f"{prefix}.{key}" if prefix else key
        raise CaptureError(
            f"{self.path}: forward makes a constant tensor ({target}) that belongs to no attribute of the model; "
            "register it as a buffer in __init__"
        )

    def _type(self, n: Any) -> Tensor | None:
        value = n.meta.get("val")
        if not hasattr(value, "shape"):
            return None
        shape = tuple(int(s) for s in value.shape)
        multiples = (0,) * len(shape)
        if n in self.others:
            other = tuple(int(s) for s in self.others[n].meta["val"].shape)
            multiples = tuple(0 if a == b else _multiple(a, b, self.batch) for a, b in zip(shape, other))
        return Tensor(shape, str(value.dtype).removeprefix("torch."), multiples)

    def _node(self, n: Any) -> Node:
        call = _Call(self, n)
        self.names[n] = n.name
        node = operators.recognise(
            operators.Captured(n.name, call.target, call.arguments, self._type(n), call.source(), call.effect, self.types)
        )
        if node.type is not None:
            self.types[n.name] = node.type
        return node

    def _renamed(self, n: Any) -> Any:
        while not isinstance(n, (int, float, str, list)) and n in self.renamed:
            n = self.renamed[n]
        return n

    def _output(self, returned: Any) -> tuple[str, tuple[str, ...]]:
        """Python source of the value that forward returned, its container restored from the out spec."""
        spec = self.program.call_spec.out_spec
        returned = [self._renamed(x) for x in returned]
        flat = [f"{{{self.names[x]}}}" if x in self.names else repr(x) for x in returned]
        import torch.utils._pytree as pytree

        structure = pytree.tree_unflatten(flat, spec)
        names = tuple(self.names[x] for x in returned if x in self.names)
        if not names:
            raise CaptureError(f"{self.path}: forward returns no tensor")
        return _spell_container(structure), names


class _Call:
    """One call of an ATen operator, read for the table and spelled as Python source."""

    def __init__(self, reader: _Reader, n: Any) -> None:
        self.reader, self.n = reader, n
        target = n.target
        self.is_operator = hasattr(target, "_schema")
        if self.is_operator:
            self.target = str(target)  # aten.linear.default
        else:
            self.target = f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
        other = reader.others.get(n)
        self.args = tuple(self._read(a, b) for a, b in zip(n.args, other.args if other else n.args))
        self.kwargs = {
            k: self._read(v, other.kwargs[k] if other and k in other.kwargs else v) for k, v in n.kwargs.items()
        }
        self.effect = bool(self.is_operator and target._schema.is_mutable)
        if self.effect and self._writes_own_value():
            # x.relu_() on a value of the graph: the same as y = relu(x) with y for x from here on.
            self.target = self.target.replace("_.", ".", 1)
            self.effect = False
            reader.renamed[n.args[0]] = n

    def _writes_own_value(self) -> bool:
        """Whether the call writes in place into a value that the graph itself made."""
        target = self.n.target
        if not (self.args and isinstance(self.args[0], Ref) and target._schema.name.endswith("_")):
            return False
        base = root = self.n.args[0]
        while root.op != "placeholder" and hasattr(root.target, "_schema") and root.target._schema.is_mutable:
            root = root.args[0]  # what was written in place is still the tensor that it was
        if root.op == "placeholder":
            return self.reader.is_user_input(root)
        if _is_view(base):
            raise CaptureError(
                f"{self.reader.path}: forward writes in place into a view ({self.n.target} of {base.target}); "
                "write it without the underscore"
            )
        if any(_is_view(u) and any(self._after(w) for w in u.users) for u in base.users if not self._after(u)):
            raise CaptureError(
                f"{self.reader.path}: forward writes in place ({self.n.target}) into a value of which it uses a view later; "
                "write it without the underscore"
            )
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
        return {a.name: given.get(a.name, a.default_value) for a in schema}

    def _read(self, a: Any, b: Any) -> Any:
        import torch

        if isinstance(a, torch.fx.Node):
            return Ref(self.reader.names[self.reader._renamed(a)])
        if isinstance(a, (list, tuple)):
            return tuple(self._read(x, y) for x, y in zip(a, b))
        if isinstance(a, bool) or a is None or isinstance(a, str):
            return a
        if isinstance(a, int):
            return a if a == b else BatchSize(_multiple(a, b, self.reader.batch))
        if isinstance(a, float):
            return a
        if isinstance(a, torch.device):
            return Code("_device")
        return Code(str(a))

    def source(self) -> str:
        """The call as Python source, tensors as ``{0}``, ``{1}``, ... in the order of :func:`refs`."""
        order = refs(self.arguments)

        def spell(value: Any) -> str:
            if isinstance(value, Ref):
                return f"{{{order.index(value.name)}}}"
            if isinstance(value, tuple):
                return "[" + ", ".join(spell(v) for v in value) + "]"
            if isinstance(value, (BatchSize, Code)):
                return str(value) if isinstance(value, BatchSize) else value.text
            if isinstance(value, float) and value != value:
                return "float('nan')"
            if isinstance(value, float) and value in (float("inf"), float("-inf")):
                return f"float('{value}')"
            return repr(value)

        positional = [spell(a) for a in self.args]
        keywords = [f"{k}={spell(v)}" for k, v in self.kwargs.items()]
        if self.target == "_operator.getitem":
            return f"{positional[0]}[{positional[1]}]"
        if not self.is_operator:
            raise CaptureError(f"{self.reader.path}: forward cannot be captured: it calls {self.target}")
        return f"torch.ops.{self.target}({', '.join(positional + keywords)})"


def _argument_sources(module: "torch.nn.Module", inputs: list) -> list[str]:
    """Python source that reads each leaf of ``inputs`` from forward's parameters, in the order of export's placeholders."""
    import torch.utils._pytree as pytree

    parameters = iter(inspect.signature(module.forward).parameters.values())
    tops: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            tops += [f"{parameter.name}[{at}]" for at in range(len(inputs) - len(tops))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            tops.append(parameter.name)
    return [
        top + "".join(f".{key.name}" if isinstance(key, pytree.GetAttrKey) else str(key) for key in path)
        for top, value in zip(tops, inputs)
        for path, _ in pytree.tree_flatten_with_path(value)[0]
    ]


def _is_view(n: Any) -> bool:
    """Whether a call's result may share its operand's memory."""
    schema = getattr(n.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


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
    """A Python and C identifier for a dotted name: ``linear.weight`` -> ``linear_weight``."""
    name = re.sub(r"\W", "_", path)
    return f"w_{name}" if name[0].isdigit() else name


def _spell_container(structure: Any) -> str:
    if isinstance(structure, str):
        return structure
    if isinstance(structure, tuple):
        inner = ", ".join(_spell_container(s) for s in structure)
        return f"({inner},)" if len(structure) == 1 else f"({inner})"
    if isinstance(structure, list):
        return "[" + ", ".join(_spell_container(s) for s in structure) + "]"
    if isinstance(structure, dict):
        # Doubled braces: the text is formatted with the values' names later.
        return "{{" + ", ".join(f"{k!r}: {_spell_container(v)}" for k, v in structure.items()) + "}}"
    raise CaptureError(f"forward returns a {type(structure).__name__}, which kgen cannot restore")
