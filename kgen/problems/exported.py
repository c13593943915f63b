"""Exported programs as problems: the text of a KernelBench-format file, written from a
``torch.export.ExportedProgram``.

    program ── source_of ──> class Model: parameters and buffers under their names, forward as calls of ATen operators
    model.pt2 ── read ──> the same text, made in a process of its own and kept by the file's hash

The text holds no weights. ``Model(...)`` draws them with the shapes and the coarse statistics of the program's own. So
a problem stays the same while its module is trained.
"""

from __future__ import annotations

import base64
import hashlib
import json
import keyword
import os
import re
import subprocess
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Sequence

from kgen import paths
from kgen.errors import ProblemError
from kgen.problems import spelling

if TYPE_CHECKING:
    import torch

SUFFIX = ".pt2"  #: of a saved program
_FORMAT = 1  # of the text; a change makes kept texts old
_PACKED_BYTES = 16384  # the longest compressed tensor that a text holds
_LINE = 100  # characters of a packed tensor in one line
_INLINE = 64  # numbers of a constant that stands where it is used
_LIFTED = "lifted_tensor"  # of the names that export gives to tensors that forward makes from numbers
_SECONDS = 600.0  # s; for reading one file

_HEAD = '''"""{title}: an exported program.

Weights and inputs are drawn, with the shapes and the rough statistics of those that the program was made with.
"""

{imports}

aten = torch.ops.aten
{flags}

class Part(nn.Module):
    """A part of the model: it holds tensors and other parts."""

    def __getitem__(self, name):
        return getattr(self, str(name))


def hold(root, path, value, persistent=True):
    """Give a parameter, a buffer or another tensor its place below the root."""
    *parts, name = path.split(".")
    for part in parts:
        if part not in root._modules:
            root.add_module(part, Part())
        root = root._modules[part]
    if isinstance(value, nn.Parameter):
        root.register_parameter(name, value)
    elif persistent is None:
        setattr(root, name, value)
    else:
        root.register_buffer(name, value, persistent=persistent)
'''

#: Functions of the text by name; each stands in it where it is called.
_HELPERS = {
    "normal": '''
def normal(shape, mean, std, dtype=torch.float32):
    """Normal numbers."""
    return (torch.randn(shape) * std + mean).to(dtype)
''',
    "uniform": '''
def uniform(shape, low, high, dtype=torch.float32):
    """Numbers between two others."""
    return (torch.rand(shape) * (high - low) + low).to(dtype)
''',
    "unpacked": '''
def unpacked(text, shape, dtype):
    """A tensor from its compressed bytes."""
    data = bytearray(zlib.decompress(base64.b64decode(text)))
    return torch.frombuffer(data, dtype=dtype).reshape(shape).to(torch.empty(0).device)
''',
    "strided": '''
def strided(x, stride):
    """The tensor with other strides."""
    return torch.empty_strided(x.shape, stride, dtype=x.dtype).copy_(x)
''',
}

#: Python's operators on sizes, by the names of their functions.
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "pow": "**"}

#: Methods in the place of operators that export puts behind a constant alone.
_OF_CONSTANTS = {"aten.lift_fresh_copy.default": "clone", "aten.detach_.default": "detach"}

#: Operators that check and compute nothing.
_CHECKS = (
    "_assert_tensor_metadata",
    "_assert_scalar",
    "_assert_async",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
)


def source_of(program: Any, title: str, inputs: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None,
              flags: Mapping[str, Any] | None = None) -> str:  # fmt: skip
    """The text of an exported program as a problem.

    ``inputs`` are example arguments (positional and by name; by default those that the program keeps), whose statistics
    ``get_inputs()`` has. ``flags`` are attributes of torch that the text sets, such as ``backends.cudnn.allow_tf32``.
    Arguments by name become parameters behind the positional ones.

    Raises :class:`ProblemError`, one line, for a program that no text can hold. Such a program branches on values, has
    sizes that depend on values, or takes unknown containers.
    """
    return _Writer(program, title, inputs or program.example_inputs, flags or {}).text()


def read(path: Path) -> str:
    """The text of a saved program, made in a process of its own, and kept in kgen's folder by the file's hash.

    ``torch.export.load`` runs code of the file: read only files that you trust. Raises :class:`ProblemError`.
    """
    try:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read: {error.strerror or error}") from error
    key = hashlib.sha256(f"{_FORMAT}\0{version('torch')}\0{path.stem}\0{content}".encode()).hexdigest()
    kept = paths.home() / "cache" / "exported" / f"{key}.py"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        pass
    text = _read_apart(path)
    paths.write_whole(kept, text)
    return text


def _read_apart(path: Path) -> str:
    command = [sys.executable, "-m", __name__, str(path)]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        )
    except subprocess.TimeoutExpired:
        raise ProblemError(f"{path}: is not read after {_SECONDS:.0f} s") from None
    try:
        answer = json.loads(ended.stdout.rpartition("\n")[2])
    except ValueError:
        last = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise ProblemError(f"{path}: the process that read it ended: {last[:300]}") from None
    if "error" in answer:
        raise ProblemError(answer["error"])
    return str(answer["text"])


def _main(path: Path) -> dict[str, str]:
    """The answer of the process that reads a file."""
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
        return {"text": source_of(program, path.stem)}
    except ProblemError as error:
        return {"error": f"{path}: {error}"}
    except Exception as error:
        message = " ".join(str(error).split()) or "no message"
        return {"error": f"{path}: torch.export.load raised {type(error).__name__}: {message[:300]}"}


class _Writer:
    """Writes one program as text."""

    def __init__(self, program: Any, title: str, inputs: Any, flags: Mapping[str, Any]) -> None:
        if inputs is None:
            raise ProblemError(
                "the program keeps no example inputs: export it again, and save it with torch.export.save"
            )
        self.program, self.title, self.inputs, self.flags = program, title, inputs, flags
        self.names: dict[Any, str] = {}  # Python source of each node's value
        self.taken = {"self", "torch", "nn", "aten", "math", "Part", "Model", "hold", "base64", "zlib", *_HELPERS}
        self.used: set[str] = set()  # helpers
        self.lines: list[str] = []  # of forward
        self.constants: list[str] = []  # statements before the model
        self.open: list[str] = []  # statements that the present one stands under
        self.device = ""  # Python source of the device of the inputs
        self.where = ""  # the part of the module that the last line is of

    def text(self) -> str:
        parameters, arguments = self._parameters()
        holds = list(self._holds())
        self._body(self.program.graph_module, "        ")
        given = "\n".join(f"        {line}," for line in arguments)
        flags = "".join(f"torch.{name} = {value!r}\n" for name, value in sorted(self.flags.items()))
        imports = ["import base64", "import zlib", ""] if "unpacked" in self.used else []
        imports += ["import torch", "import torch.nn as nn"]
        helpers = "".join(f"\n{text}" for name, text in _HELPERS.items() if name in self.used)
        head = _HEAD.format(title=self.title, imports="\n".join(imports), flags=flags and f"\n{flags}")
        held = "\n".join(f"        {line}" for line in holds)
        forward = "\n".join(self.lines)
        constants = "".join(f"\n{line}\n" for line in self.constants)
        return (
            f"{head}{helpers}{constants}\n\nclass Model(Part):\n    def __init__(self):\n        "
            f"super().__init__()\n{held}\n\n"
            f"    def forward({', '.join(['self', *parameters])}):\n{forward}\n\n\n"
            f"def get_inputs():\n    return [\n{given}\n    ]\n"
        )

    # Arguments

    def _parameters(self) -> tuple[list[str], list[str]]:
        """Names of forward's parameters, and Python source of an argument for each. Placeholders are given names."""
        import torch

        args, kwargs = self.inputs
        values = [*args, *kwargs.values()]
        signature = self.program.module_call_graph[0].signature
        known = list(signature.forward_arg_names or ()) if signature is not None else []
        named = known if len(known) == len(values) else [f"input_{at + 1}" for at in range(len(args))] + list(kwargs)
        names = [self._name(name) for name in named]
        kinds = (spec.kind.name for spec in self.program.graph_signature.input_specs)
        every = zip((n for n in self.program.graph.nodes if n.op == "placeholder"), kinds, strict=True)
        placeholders = [n for n, kind in every if kind == "USER_INPUT"]
        leaves = [(source, leaf) for name, value in zip(names, values) for source, leaf in _leaves(name, value)]
        if len(leaves) != len(placeholders):
            raise ProblemError("forward takes an argument of a class that is no tuple, list or dict")
        for n, (source, leaf) in zip(placeholders, leaves):
            self.names[n] = source
            if isinstance(leaf, torch.Tensor) and not self.device:
                self.device = f"{source}.device"
        if not self.device:
            raise ProblemError("forward takes no tensor")
        return names, [self._argument(value) for value in values]

    def _argument(self, value: Any) -> str:
        """Python source that makes an argument like this one."""
        import torch

        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if type(value) in (list, tuple):
            inner = ", ".join(map(self._argument, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self._argument(x)}" for key, x in value.items()) + "}"
        return self._value(value)

    # Tensors

    def _holds(self) -> Iterator[str]:
        """Statements that give the model its parameters and buffers in the order of the state dict, then other
        tensors."""
        import torch

        program = self.program
        held: dict[int, str] = {}
        specs = program.graph_signature.input_specs
        targets = {spec.target for spec in specs if spec.kind.name in ("PARAMETER", "BUFFER")}
        others = {
            name: x for name, x in program.constants.items() if name in targets and name not in program.state_dict
        }
        for path, value in [*program.state_dict.items(), *others.items()]:
            more = ", persistent=False" if path in others else ""
            if id(value) in held:
                yield f'hold(self, "{path}", {held[id(value)]}{more})'
                continue
            held[id(value)] = _access(path)
            made = self._tensor(value.detach())
            if isinstance(value, torch.nn.Parameter):
                made = f"nn.Parameter({made}{'' if value.requires_grad else ', requires_grad=False'})"
            yield f'hold(self, "{path}", {made}{more})'
        for n, spec in zip((n for n in program.graph.nodes if n.op == "placeholder"), specs):
            kind = spec.kind.name
            if kind == "CONSTANT_TENSOR" and spec.target.startswith(_LIFTED):
                self.names[n] = self._constant(program.constants[spec.target])
                continue
            if kind == "CONSTANT_TENSOR":
                yield f'hold(self, "{spec.target}", {self._tensor(program.constants[spec.target])}, persistent=None)'
            if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                self.names[n] = _access(spec.target)
            elif kind != "USER_INPUT":
                raise ProblemError(f"the program takes a {kind.lower().replace('_', ' ')} ({n.name})")

    def _constant(self, x: "torch.Tensor") -> str:
        """Python source of a tensor that forward makes from numbers alone; a long one stands before the model."""
        if x.numel() <= _INLINE:
            values = x.tolist()
            text = re.sub(r"\b(nan|inf)\b", r'float("\1")', repr(values))
            return f"torch.tensor({text}, dtype={x.dtype}, device={self.device})"
        name = self._name(f"CONSTANT_{len(self.constants) + 1}")
        self.constants.append(f"{name} = {self._tensor(x, exact=True)}")
        return f"{name}.to({self.device})"

    def _tensor(self, x: "torch.Tensor", exact: bool = False) -> str:
        """Python source that draws a tensor like this one, or makes one with the same values where these have a
        structure."""
        import torch

        if x.layout != torch.strided or x.is_quantized:
            raise ProblemError(f"it holds a tensor of layout {x.layout}: kgen takes dense ones")
        if type(x) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise ProblemError(f"it holds a {type(x).__name__}: kgen takes plain tensors")
        made = self._values(x.detach(), exact)
        if x.numel() and not x.is_contiguous() and spelling.is_dense(x):
            made = self._call("strided", made, spelling.tuple_of(x.stride()))
        return made

    def _values(self, x: "torch.Tensor", exact: bool) -> str:
        import torch

        shape, dtype = spelling.tuple_of(x.shape), str(x.dtype)
        if x.is_meta or not x.numel():
            return f"torch.zeros({shape}, dtype={dtype})"
        first = x.flatten()[0]
        if bool((x == first).all()):
            return f"torch.full({shape}, {spelling.number(first.item())}, dtype={dtype})"
        packed = spelling.packed(x) if exact or spelling.may_have_structure(x) else None
        if packed is not None and len(packed) <= _PACKED_BYTES and (exact or spelling.has_structure(x, packed)):
            text = base64.b64encode(packed).decode()
            lines = [f'"{text[at : at + _LINE]}"' for at in range(0, len(text), _LINE)]
            return self._call(
                "unpacked",
                lines[0] if len(lines) == 1 else "(\n            " + "\n            ".join(lines) + "\n        )",
                shape,
                dtype,
            )
        if exact and not (x.is_floating_point() and x.numel() > spelling.SAMPLE):
            raise ProblemError(f"it computes with a constant tensor of {x.numel()} numbers: register it as a buffer")
        if x.dtype == torch.bool:
            return f"torch.rand({shape}) < {round(float(x.float().mean()), 1) or 0.1}"
        if x.is_complex():
            return self._call("normal", shape, 0.0, spelling.rough(float(torch.view_as_real(x).double().std())), dtype)
        if not x.is_floating_point():
            low, high = spelling.rough_range(int(x.min()), int(x.max()))
            return f"torch.randint({low}, {high + 1}, {shape}, dtype={dtype})"
        return self._floats(x.float() if x.element_size() > 1 else x.to(torch.float32), shape, dtype)

    def _floats(self, x: "torch.Tensor", shape: str, dtype: str) -> str:
        import torch

        known = x.isfinite()
        finite = x if bool(known.all()) else x[known]  # a selection costs more than all sums together
        if not finite.numel():
            return f"torch.full({shape}, {spelling.number(float(x.flatten()[0]))}, dtype={dtype})"
        more = [] if dtype == "torch.float32" else [dtype]
        low, high = map(float, torch.aminmax(finite))
        std, mean = map(float, torch.std_mean(finite.double(), correction=0))
        if (low >= 0 or high <= 0) and abs(mean) < 4 * std:  # normal numbers would have the other sign, too
            step = (high - low) / 8
            low, high = round(low / step) * step if step else low, high
            return self._call("uniform", shape, spelling.digits(low), spelling.digits(high), *more)
        return self._call(
            "normal", shape, 0.0 if abs(mean) < std / 2 else spelling.digits(mean), spelling.rough(std), *more
        )

    def _call(self, helper: str, *arguments: Any) -> str:
        self.used.add(helper)
        return f"{helper}({', '.join(map(str, arguments))})"

    # Forward

    def _body(self, module: Any, indent: str) -> Any:
        """Write the statements of a graph; returns the values that it returns."""
        for n in module.graph.nodes:
            if n.op == "call_function" and not _is_check(n):
                self._statement(module, n, indent)
            elif n.op == "output":
                if module is not self.program.graph_module:
                    return n.args[0]
                self._output(n.args[0], indent)
        return None

    def _statement(self, module: Any, n: Any, indent: str) -> None:
        import torch

        self._mark(n, indent)
        if isinstance(n.target, torch._ops.HigherOrderOperator):
            self._region(module, n, indent)
            return
        if getattr(n.target, "__name__", "") == "getitem" and isinstance(self.names.get(n.args[0]), list):
            self.names[n] = self.names[n.args[0]][n.args[1]]
            return
        text = self._called(n)
        if not n.users and (schema := getattr(n.target, "_schema", None)) is not None and schema.is_mutable:
            self.lines.append(f"{indent}{text}")
            return
        name = self.names[n] = self._name(n.name)
        self.lines.append(f"{indent}{name} = {text}")

    def _mark(self, n: Any, indent: str) -> None:
        """Write the path of the part whose statements begin."""
        stack = n.meta.get("nn_module_stack") or {}
        where = next((str(path) for path, _ in reversed(list(stack.values()))), "")
        if where and not where.startswith("_") and where != self.where:
            self.where = where
            self.lines.append(f"{indent}# {where}")

    def _called(self, n: Any) -> str:
        """Python source of one call."""
        target = n.target
        args = [self._value(a) for a in n.args]
        kwargs = [
            f"{k}={self._value(v)}" for k, v in n.kwargs.items() if v is not None and not (k == "pin_memory" and not v)
        ]
        name = getattr(target, "__name__", str(target))
        if str(target) in _OF_CONSTANTS:
            return f"{args[0]}.{_OF_CONSTANTS[str(target)]}()"
        if hasattr(target, "_schema"):
            if str(target) == "aten.sym_size.int":
                return f"{args[0]}.shape[{args[1]}]"
            prefix = "" if target.namespace == "aten" else "torch.ops."
            return f"{prefix}{target}({', '.join([*args, *kwargs])})"
        if getattr(target, "__module__", "") == "_operator":
            if name == "getitem":
                return f"{args[0]}[{args[1]}]"
            if name in _SIGNS:
                return f"({args[0]} {_SIGNS[name]} {args[1]})"
            if name == "neg":
                return f"(-{args[0]})"
        raise ProblemError(f"forward calls {name}, which kgen does not write as a problem")

    def _opened(self, n: Any) -> tuple[str, Any, list[Any]]:
        """The statement that a region stands under (or none), its graph, and what that is given."""
        name = n.target.__name__
        if name == "wrap_with_set_grad_enabled":
            enabled, body, *args = n.args
            return f"with torch.set_grad_enabled({enabled}):", body, args
        if name == "wrap_with_autocast":
            device, dtype, enabled, cached, body, *args = n.args
            if not enabled and "torch.autocast" not in "".join(self.open):
                return "", body, args  # nothing is switched off
            more = f", dtype={dtype}" if dtype is not None else ""
            return f'with torch.autocast("{device}"{more}, enabled={enabled}, cache_enabled={cached}):', body, args
        raise ProblemError(f"forward has {name}, which depends on values or runs a function of its own")

    def _region(self, module: Any, n: Any, indent: str) -> None:
        """Write a graph that runs with other gradients or with autocast, under the statement that sets these."""
        statement, body, args = self._opened(n)
        inner = getattr(module, body.target)
        if statement:
            self.lines.append(f"{indent}{statement}")
            indent += "    "
        self.open.append(statement)
        for placeholder, given in zip((x for x in inner.graph.nodes if x.op == "placeholder"), args, strict=True):
            self.names[placeholder] = self.names[given]
        before = len(self.lines)
        returned = self._body(inner, indent)
        if statement and all(line.lstrip().startswith("#") for line in self.lines[before:]):
            self.lines.append(f"{indent}pass")
        self.open.pop()
        self.names[n] = [self.names[x] for x in returned]  # type: ignore[assignment]

    def _output(self, returned: Sequence[Any], indent: str) -> None:
        values = []
        for x, spec in zip(returned, self.program.graph_signature.output_specs, strict=True):
            kind = spec.kind.name
            if kind == "BUFFER_MUTATION":
                self.lines.append(f"{indent}{_access(spec.target)}.copy_({self.names[x]})")
            elif kind == "USER_OUTPUT":
                values.append(x)
            else:
                raise ProblemError(f"forward ends with a {kind.lower().replace('_', ' ')} of {spec.target or x}")
        self.lines.append(f"{indent}return {self._container(values)}")

    def _container(self, values: list[Any]) -> str:
        """Python source of forward's value: as the module returns it, or a tuple of its tensors where a class is
        unknown."""
        import torch
        import torch.utils._pytree as pytree

        sources = [self._value(x) for x in values]
        if any(isinstance(x, torch.fx.Node) and not hasattr(x.meta.get("val"), "shape") for x in values):
            raise ProblemError("forward returns a size, which is no tensor")
        spelled = _spelled(pytree.tree_unflatten(sources, self.program.call_spec.out_spec))
        if spelled is not None:
            return spelled
        found = [source for source, x in zip(sources, values) if isinstance(x, torch.fx.Node)]
        return f"({', '.join(found)},)"

    def _value(self, value: Any) -> str:
        """Python source of an argument of a call."""
        import torch

        if isinstance(value, torch.fx.Node):
            return self.names[value]
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self._value, value))}]"
        if isinstance(value, torch.device):
            return self.device
        if value is None or isinstance(value, (bool, int, str, complex)):
            return repr(value)
        if isinstance(value, float):
            return spelling.number(value)
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
            return str(value)
        raise ProblemError(f"forward is given a {type(value).__name__}, which kgen does not write as a problem")

    def _name(self, wanted: str) -> str:
        """A name that nothing else in the text has."""
        stem = (
            wanted
            if wanted.isidentifier() and not keyword.iskeyword(wanted)
            else "_" + "".join(c if c.isalnum() else "_" for c in wanted)
        )
        name, count = stem, 1
        while name in self.taken:
            name, count = f"{stem}_{count}", count + 1
        self.taken.add(name)
        return name


def _leaves(source: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of an argument, with the Python source that reads each, in the order of torch's pytrees."""
    if type(value) in (list, tuple):
        for at, x in enumerate(value):
            yield from _leaves(f"{source}[{at}]", x)
    elif isinstance(value, dict):
        for key, x in value.items():
            yield from _leaves(f"{source}[{key!r}]", x)
    else:
        yield source, value


def _spelled(structure: Any) -> str | None:
    """Python source of tuples, lists and dicts of sources; ``None`` where there is another container."""
    if isinstance(structure, str):
        return structure
    if type(structure) in (tuple, list):
        inner = [_spelled(x) for x in structure]
        if None in inner:
            return None
        text = ", ".join(map(str, inner))
        return f"[{text}]" if isinstance(structure, list) else f"({text}{',' if len(inner) == 1 else ''})"
    if type(structure) is dict:
        pairs = {key: _spelled(x) for key, x in structure.items()}
        return None if None in pairs.values() else "{" + ", ".join(f"{key!r}: {x}" for key, x in pairs.items()) + "}"
    return None


def _access(path: str) -> str:
    """Python source that reads a tensor of the model: ``self.layers[0].weight``."""
    source = "self"
    for name in path.split("."):
        plain = name.isidentifier() and not keyword.iskeyword(name)
        source += f".{name}" if plain else f"[{name if name.isdecimal() and str(int(name)) == name else repr(name)}]"
    return source


def _is_check(n: Any) -> bool:
    """Whether a call only checks something, or reads a size that nothing needs."""
    return getattr(n.target, "_opname", "") in _CHECKS or (str(n.target) == "aten.sym_size.int" and not n.users)


if __name__ == "__main__":
    answer = _main(Path(sys.argv[1]))
    print("\n" + json.dumps(answer), end="")
