"""Winners: the files that a sweep has chosen, loaded and given the weights of a module of the user's program.

Winner (plain data) ── load ──> the file's ModelNew ── link ──> its tables of tensors are those of the module itself
"""

import hashlib
import sys
import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Iterator, Mapping

import torch
from torch import nn

from kgen.evaluator.candidates.build import Extension, read_extension
from kgen.optimized.calls import TensorShape
from kgen.problems.problem import Problem, load as load_problem
from kgen.protocol.statistics import Interval

_loading = threading.RLock()
_loaded: dict[str, type[nn.Module]] = {}  # by the hash of the text


@dataclass(frozen=True)
class Winner:
    """A file that is faster than what it takes the place of, and the call that it is for.

    ``speedup`` is over the fastest of ``baselines`` (milliseconds by name), by the finals of its ``sweep``. ``kernels``
    and ``library`` are the steps of its plan. ``batch`` is the first size of the inputs, where other ones are right as
    well.
    """

    candidate: str
    source: str = field(repr=False)
    problem: str
    problem_source: str = field(repr=False)
    shapes: tuple[TensorShape, ...]
    speedup: Interval
    baselines: tuple[tuple[str, float], ...]
    sweep: str
    median_ms: float
    kernels: tuple[str, ...] = ()
    library: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The winner as JSON values, but for its texts."""
        return {k: v for k, v in asdict(self).items() if k not in ("source", "problem_source")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], source: str, problem_source: str) -> "Winner":
        """The inverse of :meth:`to_json`. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for other values."""
        shapes = tuple(
            TensorShape(tuple(x["sizes"]), tuple(x["strides"]), str(x["dtype"]), bool(x["contiguous"]))
            for x in value["shapes"]
        )
        return cls(
            candidate=str(value["candidate"]),
            source=source,
            problem=str(value["problem"]),
            problem_source=problem_source,
            shapes=shapes,
            speedup=Interval(*(float(value["speedup"][k]) for k in ("low", "mid", "high"))),
            baselines=tuple((str(name), float(ms)) for name, ms in value["baselines"]),
            sweep=str(value["sweep"]),
            median_ms=float(value["median_ms"]),
            kernels=tuple(map(str, value["kernels"])),
            library=tuple(map(str, value["library"])),
        )

    def inputs(self) -> list[Any]:
        """Inputs like those that it was swept with, drawn by its problem's text."""
        return load_problem(Problem(self.problem, self.problem, self.problem_source)).inputs()


def load(source: str, libraries: Mapping[str, str]) -> type[nn.Module]:
    """The class of a file's ``ModelNew``; the file's code runs in this process.

    ``libraries`` are the paths of built libraries by the contents of their extensions. A library that is not among them
    is built by the file itself.
    """
    key = hashlib.sha256(source.encode()).hexdigest()
    with _loading:
        if key not in _loaded:
            name = f"kgen_optimized_{key[:16]}"
            module = sys.modules[name] = ModuleType(name)
            with _built(libraries):
                exec(compile(source, f"<{name}>", "exec"), module.__dict__)
            _loaded[key] = module.ModelNew
    return _loaded[key]


def link(made: type[nn.Module], owner: nn.Module) -> nn.Module:
    """A ``ModelNew`` that reads its parameters and buffers from the tables of ``owner``.

    Weights that are replaced, moved or written there are seen. Raises where the owner lacks a part.
    """
    with torch.device("meta"), torch.no_grad():
        found = made()
    for path, part in found.named_modules():
        own = owner.get_submodule(path)
        for table in ("_parameters", "_buffers"):
            missing = [
                name for name, x in vars(part)[table].items() if x is not None and vars(own)[table].get(name) is None
            ]
            if missing:
                raise KeyError(f"{path}.{missing[0]}".lstrip("."))
            vars(part)[table] = vars(own)[table]
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                vars(part)[name] = getattr(own, name)
    found.train(True)
    return found


def prepared_bytes(module: nn.Module) -> int:
    """Bytes that a ``ModelNew`` holds beside the weights: what it has derived from them."""
    kept = [value for value in vars(module).values() if hasattr(value, "made") and hasattr(value, "weights")]
    return sum(x.untyped_storage().nbytes() for one in kept for x in one.made)


def extension_of(source: str) -> Extension | None:
    """The extension that a file builds; ``None`` for a file without kernels."""
    return read_extension(source)


@contextmanager
def _built(libraries: Mapping[str, str]) -> Iterator[None]:
    """Have ``load_inline`` find built libraries; all other calls of it build as ever."""
    from torch.utils import cpp_extension

    build = cpp_extension.load_inline

    def load_inline(name: str, cpp_sources: Any = "", cuda_sources: Any = "", *args: Any, **options: Any) -> Any:
        flags = tuple(options.get("extra_cflags") or ()), tuple(options.get("extra_cuda_cflags") or ())
        if isinstance(cpp_sources, str) and isinstance(cuda_sources or "", str) and not args:
            library = libraries.get(Extension(name, cpp_sources, cuda_sources or "", *flags).content)
            if library is not None and Path(library).is_file():
                return library
        return build(name, cpp_sources, cuda_sources or None, *args, **options)

    cpp_extension.load_inline = load_inline
    try:
        yield
    finally:
        cpp_extension.load_inline = build
