"""Problems: KernelBench-format files and exported programs, found, read, overridden, executed and checked.

A problem file has ``class Model(nn.Module)``, ``get_inputs()`` and, where ``Model`` takes arguments,
``get_init_inputs()``; its sizes are module-level constants. Reading a problem needs no torch: it parses the text and
replaces constants. :func:`load` executes it.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import linecache
import operator
import re
import sys
import traceback
import types
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, TypeVar

from kgen.errors import OverrideError, ProblemError
from kgen.problems import exported, syntax, trace_file
from kgen.problems.inlining import inlined, place

if TYPE_CHECKING:
    import torch

Made = TypeVar("Made")

MODES = ("train", "eval", "both")
SUFFIXES = (".py", exported.SUFFIX)  #: of files of a folder that are problems

#: By the suffix of a file that is no KernelBench-format text: the function that writes such a text from it.
READERS: Mapping[str, Callable[[Path], str]] = {exported.SUFFIX: exported.read, trace_file.SUFFIX: trace_file.read}

MOST_NAMES = 8  # problems that an error lists

#: The dtypes that a problem may be converted to, and those in which PyTorch itself rounds most.
DTYPES = ("float32", "bfloat16", "float16")
HALF = DTYPES[1:]

#: The last line of the source of a problem that is converted, and names of dtypes that float32 is no conversion
#: without.
_DTYPE_LINE = '__dtype__ = "{}"  # kgen converts the model and its floating inputs\n'
_CONVERTED = re.compile(r"^__dtype__ = \"(\w+)\"  # kgen.*", re.MULTILINE)
_OTHER_DTYPES = re.compile(r"bfloat16|float16|float64|half|double")

#: Module-level statements that a bare name may be found under, for messages.
_PACKAGED = (Path(__file__).parent / "files", Path(__file__).parents[2] / "problems")


@dataclass(frozen=True)
class Problem:
    """A problem file as text, its overrides applied, and the mode that it is to be run in.

    ``mode`` is ``train``, ``eval`` or ``both``; ``None`` until :func:`resolve_mode` has asked the model itself.
    ``asked_mode`` is what the user asked for (``None``: as constructed).
    """

    name: str
    path: str
    source: str
    overrides: tuple[tuple[str, Any], ...] = ()
    mode: str | None = None
    asked_mode: str | None = None

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source with the overrides applied, in hexadecimal."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def id(self) -> str:
        """Identity: the source with its overrides, and the mode."""
        return hashlib.sha256(f"{self.mode}\0{self.source}".encode()).hexdigest()

    def place(self, line: int) -> str:
        """The file and line that a line of the source comes from, as ``file:line``."""
        return place(self.path, self.source, line)

    @property
    def file_name(self) -> str:
        """The name of the problem's file without its folder. An older database may hold another path of it."""
        suffix = Path(self.path).suffix
        return f"{self.name}{suffix if suffix in READERS else '.py'}"

    @property
    def sizes(self) -> tuple[tuple[str, Any], ...]:
        """The overrides but the dtype, which is none of the file's constants."""
        return self.overrides[:-1] if self.dtype else self.overrides

    @property
    def dtype(self) -> str | None:
        """The dtype that the model and its floating inputs are converted to; ``None`` where the file's own ones
        stay."""
        found = _CONVERTED.findall(self.source)
        return found[-1] if found else None

    @property
    def modes(self) -> tuple[str, ...]:
        """The modes one by one: ``both`` is train, then eval."""
        return ("train", "eval") if self.mode == "both" else (self.mode or "train",)

    @property
    def title(self) -> str:
        """The name with its overrides, as people are shown it: ``linear_gelu_softmax(batch_size=64)``."""
        return self.name + (f"({', '.join(f'{k}={v!r}' for k, v in self.overrides)})" if self.overrides else "")


@dataclass(frozen=True)
class LoadedProblem:
    """A problem whose file was executed: its class and its two functions."""

    problem: Problem
    module: types.ModuleType

    @property
    def model_class(self) -> type:
        return self.module.Model

    def init_inputs(self) -> list:
        """Arguments of ``Model``: those of ``get_init_inputs()``, or none."""
        function = getattr(self.module, "get_init_inputs", None)
        return self._list("get_init_inputs()", function) if function else []

    def inputs(self) -> list:
        """Arguments of ``forward``, as ``get_inputs()`` makes them; floating tensors in the problem's dtype."""
        import torch
        from torch.utils._pytree import tree_map_only

        found = self._list("get_inputs()", self.module.get_inputs)
        if not self.problem.dtype:
            return found
        dtype = getattr(torch, self.problem.dtype)
        return tree_map_only(torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, found)

    def _list(self, what: str, function: Any) -> list:
        """The arguments that ``function`` gives, one for each entry."""
        found = _call(self.problem, what, function)
        if not isinstance(found, (list, tuple)):
            raise ProblemError(f"{self.problem.path}: {what} gives a {type(found).__name__}, not a list of arguments")
        return list(found)

    def model(self) -> "torch.nn.Module":
        """A model in the problem's dtype, constructed on torch's default device, in its constructor's mode."""
        arguments = self.init_inputs()
        return _call(self.problem, "Model(...)", lambda: converted(self.model_class(*arguments), self.problem.dtype))


def converted(model: "torch.nn.Module", dtype: str | None) -> "torch.nn.Module":
    """The model with its floating parameters and buffers in the dtype, if one is named."""
    import torch

    return model.to(getattr(torch, dtype)) if dtype else model


def without_values(make: Callable[[], Made]) -> Made:
    """``make()`` on the meta device, or as it is where the problem's functions need values."""
    import torch

    try:
        with torch.device("meta"):
            return make()
    except ProblemError:
        return make()


def problem_files() -> dict[str, Path]:
    """All problems that a bare name finds: ``./problems`` first, then those that come with kgen."""
    found: dict[str, Path] = {}
    for folder in (Path("problems"), *_PACKAGED):
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("_"):
                found.setdefault(path.stem, path)
    return found


def find_problem(reference: str) -> Path:
    """The file that ``reference`` names: a path, or a bare name."""
    path = Path(reference)
    if path.is_file():
        return path
    files = problem_files()
    if reference in files:
        return files[reference]
    if path.is_dir():
        raise ProblemError(f"{reference} is a folder: name a problem file in it")
    near = [*dict.fromkeys([*difflib.get_close_matches(reference, files), *files])][:MOST_NAMES]
    known = ", ".join(near) + (f", and {len(files) - len(near)} more: kgen problems" if len(files) > len(near) else "")
    raise ProblemError(f"no problem {reference!r}: neither a file nor one of the known names ({known or 'none'})")


def read_problem(
    reference: str, overrides: Mapping[str, str] | None = None, mode: str | None = None, dtype: str | None = None
) -> Problem:
    """Read a problem file without executing it. An exported program is loaded, which runs code of its file.

    ``overrides`` maps names of module-level constants to the text of their new values. ``dtype`` is one of
    :data:`DTYPES`. The source then ends with it, so that the problem's identity has it. float32 changes nothing where
    the file names no other floating dtype. Raises :class:`ProblemError` for a file that is missing, unreadable, no
    Python, or has no ``Model``, and :class:`OverrideError` for an override that does not fit.
    """
    path = find_problem(reference)
    source = _source(path)
    _parse(path, source)
    return _problem(path, inlined(path, source), overrides, mode, dtype)


def parse_problem(
    name: str,
    source: str,
    overrides: Mapping[str, str] | None = None,
    mode: str | None = None,
    dtype: str | None = None,
) -> Problem:
    """A problem from its text alone, which is not executed; no file is read. Raises what :func:`read_problem` does."""
    path = Path(f"{name}.py")
    _parse(path, source)
    return _problem(path, source, overrides, mode, dtype)


def _problem(
    path: Path, source: str, overrides: Mapping[str, str] | None, mode: str | None, dtype: str | None
) -> Problem:
    """The problem of a text that was parsed, with its overrides applied."""
    source, values = _override(path, source, overrides or {})
    tree = _parse(path, source)
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))} | set(
        _constants(tree)
    )
    defined |= {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    for name, what in (("Model", "class Model(nn.Module)"), ("get_inputs", "function get_inputs()")):
        if name not in defined:
            raise ProblemError(f"{path}: has no {what}, which the KernelBench format needs")
    if dtype is not None and (dtype in HALF or _OTHER_DTYPES.search(source)):
        source, values = f"{source.rstrip()}\n\n\n{_DTYPE_LINE.format(dtype)}", (*values, ("dtype", dtype))
    return Problem(path.stem, str(path), source, values, mode, mode)


def _source(path: Path) -> str:
    """The text of a problem's file; that of a program or a definition is written from it."""
    try:
        if path.suffix in READERS:
            return READERS[path.suffix](path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"{path}: cannot be read: {error}") from error


def sizes(source: str) -> dict[str, Any]:
    """The module-level constants of a problem's source that are literals: what ``-D`` can replace."""
    found: dict[str, Any] = {}
    for name, expression in _constants(syntax.parse(_CONVERTED.sub("", source))).items():
        try:
            found[name] = ast.literal_eval(expression)
        except ValueError:
            continue
    return found


def load(problem: Problem) -> LoadedProblem:
    """Execute the problem's file as a module of its own."""
    name = f"kgen_problem_{problem.source_hash[:16]}"
    module = types.ModuleType(name)
    module.__file__ = problem.path
    # The text executed differs from the file where constants were replaced: linecache is given what was executed.
    filename = f"<{problem.path}>"
    linecache.cache[filename] = (len(problem.source), None, problem.source.splitlines(True), filename)
    sys.modules[name] = module
    code = compile(problem.source, filename, "exec")
    _call(problem, "the file", lambda: exec(code, module.__dict__))
    return LoadedProblem(problem, module)


def resolve_mode(loaded: LoadedProblem, model: "torch.nn.Module") -> LoadedProblem:
    """The same problem with its mode settled: as asked, or as ``model``'s constructor left it."""
    mode = loaded.problem.asked_mode or ("train" if model.training else "eval")
    return replace(loaded, problem=replace(loaded.problem, mode=mode))


def _parse(path: Path, source: str) -> ast.Module:
    try:
        return syntax.parse(source, str(path))
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise ProblemError(f"{where}: syntax error: {error.msg}") from error
    except ValueError as error:
        raise ProblemError(f"{path}: is not Python source: {error}") from error


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Module-level constants by name, with the expression that each is assigned (the last assignment wins)."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        else:
            continue
        for target, value in pairs:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                inner = list(zip(target.elts, value.elts))
            else:
                inner = [(target, value)]
            for name, expression in inner:
                if isinstance(name, ast.Name):
                    found[name.id] = expression
    return found


_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def _value(expression: ast.expr) -> Any:
    """The value of a literal, or of arithmetic of numbers such as ``2048 * 2``. Raises ``ValueError`` for others."""
    if isinstance(expression, ast.BinOp) and type(expression.op) in _ARITHMETIC:
        return _ARITHMETIC[type(expression.op)](_value(expression.left), _value(expression.right))
    if isinstance(expression, ast.Tuple):
        return tuple(map(_value, expression.elts))
    return ast.literal_eval(expression)


def _override(path: Path, source: str, overrides: Mapping[str, str]) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """``source`` with each overridden constant's value replaced in place, and the values set."""
    constants = _constants(syntax.parse(source))
    asked: dict[tuple[int, int], tuple[str, Any]] = {}  # by place: names of one assignment share it
    edits: dict[tuple[int, int], str] = {}
    values: list[tuple[str, Any]] = []
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    for name, text in overrides.items():
        if name not in constants:
            known = ", ".join(constants) or "none"
            raise OverrideError(f"{path}: -D {name}: no such module-level constant (there are: {known})")
        try:
            new = ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            raise OverrideError(f"-D {name}={text}: the value is not a Python literal") from error
        expression = constants[name]
        try:
            old = _value(expression)
        except ValueError as error:
            raise OverrideError(
                f"{path}: -D {name}: the constant is computed ({ast.unparse(expression)}); override what it is made of"
            ) from error
        if type(new) is not type(old):
            raise OverrideError(
                f"-D {name}={text}: the constant is of type {type(old).__name__} ({old!r}), "
                f"the value of type {type(new).__name__}"
            )
        start = starts[expression.lineno - 1] + expression.col_offset
        end = starts[expression.end_lineno - 1] + expression.end_col_offset  # type: ignore[operator]
        other, same = asked.setdefault((start, end), (name, new))
        if new != same:
            raise OverrideError(
                f"{path}: -D {name}={text}: {other} and {name} are assigned one value together; give both the same"
            )
        if new != old:
            edits[start, end] = repr(new)
            values.append((name, new))
    data = source.encode()
    for (start, end), text in sorted(edits.items(), reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode(), tuple(sorted(values))


def _call(problem: Problem, what: str, function: Any) -> Any:
    """``function()``, with anything it raises turned into one line that names the place in the problem's file.

    Its output goes to stderr, since stdout is for results.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function()
    except ProblemError:
        raise
    except (Exception, SystemExit) as error:
        filename = f"<{problem.path}>"
        places = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == filename]
        where = problem.place(places[-1]) if places else problem.path
        message = " ".join(str(error).split()) or "no message"
        raise ProblemError(f"{where}: {what} raised {type(error).__name__}: {message[:300]}") from error
