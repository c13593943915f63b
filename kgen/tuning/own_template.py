"""A user's template, tuned: its text, the space beside it, and the candidates that they make.

    kernel.cu.j2    text with parameters, for CUDA; kernel.cpp.j2 for C++; kernel.py.j2 is a whole file with class
    ModelNew
    kernel.py       beside it: SPACE, CONSTRAINTS, FLAGS, and class ModelNew, which calls the functions of `library`

The template and its space are the user's own code, and run in this process. Its candidates are judged as foreign.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Mapping

from kgen.candidate import Candidate, Params, Rejection, Trust
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.target import target
from kgen.devices.hardware import Hardware
from kgen.errors import InputError
from kgen.evaluator.pool import DevicePool
from kgen.problems import problem as problems, syntax
from kgen.problems.problem import Problem
from kgen.tuning.design import Design
from kgen.tuning.search.points import KernelSpace, Option, Point
from kgen.tuning.sweep import designed

#: Endings of templates, with the kind of device that each is for; one of Python is for any.
ENDINGS = {".cu.j2": "cuda", ".cpp.j2": "cpu", ".py.j2": None}
_MOST_COMBINATIONS = 1 << 16  #: before the constraints; all are listed
_VALUES = (bool, int, float, str)


@dataclass(frozen=True)
class OwnTemplate:
    """A template and the module beside it; ``name`` is the file's, and ``host`` the module's text."""

    path: Path
    text: str
    host: str
    space: Space[Any]
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def device_type(self) -> str | None:
        return ENDINGS[_ending(self.path)]

    @property
    def identity(self) -> tuple[str, str]:
        """The path, and a hash of both texts: another text is another sweep."""
        texts = f"{self.text}\0{self.host}".encode()
        return str(self.path), hashlib.sha256(texts).hexdigest()[:16]

    def source(self, problem: Problem, hardware: Hardware, params: Params) -> str:
        """The candidate's text. Raises :class:`InputError`, one line, where the template cannot be rendered."""
        rendered = self._rendered(problem, params)
        if self.device_type is None:
            return rendered
        device = target(hardware.device_type)
        name = f"{self.path.name.split('.')[0]}_{hashlib.sha256(rendered.encode()).hexdigest()[:12]}"
        return _FILE.format(
            title=(
                f"{self.name} with {', '.join(f'{k}={v}' for k, v in params.items()) or 'no parameters'}, for "
                f"{problem.title}."
            ),
            params=dict(params),
            constant=device.source_constant,
            text=_literal(rendered),
            flags_constant=device.flags_constant,
            flags=[*device.flags(hardware, (), False), *self.flags],
            name="".join(c if c.isalnum() else "_" for c in name),
            arguments=_ARGUMENTS[device.source_constant],
            host=self.host.strip(),
        )

    def _rendered(self, problem: Problem, params: Params) -> str:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

        texts = Environment(loader=FileSystemLoader(self.path.parent), undefined=StrictUndefined, trim_blocks=True,
                            lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
        try:
            return texts.get_template(self.name).render(**params, sizes=problems.sizes(problem.source))
        except TemplateError as error:
            line = f":{error.lineno}" if isinstance(getattr(error, "lineno", None), int) else ""
            raise InputError(f"{self.path}{line}: cannot be rendered with {dict(params)}: {error}") from error
        except Exception as error:  # of an expression of the user's text
            raise InputError(
                f"{self.path}: rendering it with {dict(params)} raised {type(error).__name__}: {error}"
            ) from error


#: Arguments of the build, by the constant that holds the source.
_ARGUMENTS = {
    "CUDA_SOURCE": 'cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS',
    "CPP_SOURCE": "cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS",
}
_FILE = '''"""{title}"""

import ctypes

from torch.utils.cpp_extension import load_inline

PARAMS = {params}

{constant} = {text}
{flags_constant} = {flags}
NAME = "{name}"

library = ctypes.CDLL(load_inline(name=NAME, {arguments}, is_python_module=False, no_implicit_headers=True))

{host}
'''


def read(path: Path) -> OwnTemplate:
    """Read a template, and run the module beside it for its space. Raises :class:`InputError`, one line."""
    ending = _ending(path)
    beside = path.with_name(path.name.removesuffix(ending) + ".py")
    text, host = _read(path), _read(beside)
    names: dict[str, Any] = {"__name__": "kgen_template", "__file__": str(beside), "library": None, "PARAMS": {}}
    try:
        tree = syntax.parse(host, str(beside))
        if ending != ".py.j2":
            exec(compile(_without_model(tree), str(beside), "exec"), names)
        else:
            exec(compile(tree, str(beside), "exec"), names)
    except SyntaxError as error:
        raise InputError(f"{beside}:{error.lineno}: syntax error: {error.msg}") from error
    except Exception as error:
        raise InputError(f"{beside}: its space raised {type(error).__name__}: {error}") from error
    if any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body):
        raise InputError(f"{beside}: an import from __future__ cannot stand inside of a candidate: remove it")
    if ending != ".py.j2" and not any(isinstance(n, ast.ClassDef) and n.name == "ModelNew" for n in tree.body):
        raise InputError(f"{beside}: has no class ModelNew, which calls the functions of `library`")
    flags = names.get("FLAGS", ())
    if not isinstance(flags, (list, tuple)) or not all(isinstance(flag, str) for flag in flags):
        raise InputError(f"{beside}: FLAGS is no list of flags for the compiler")
    return OwnTemplate(path, text, host, _space(beside, names.get("SPACE"), names.get("CONSTRAINTS", {})), tuple(flags))


def _without_model(tree: ast.Module) -> ast.Module:
    """The module without its class ModelNew and what follows it, which need the built library."""
    at = next(
        (n for n, node in enumerate(tree.body) if isinstance(node, ast.ClassDef) and node.name == "ModelNew"),
        len(tree.body),
    )
    return ast.Module([n for n in tree.body[:at] if not _reads_library(n)], [])


def _reads_library(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "library" for part in ast.walk(node))


def _space(path: Path, axes: Any, constraints: Any) -> Space[Any]:
    """The space of ``SPACE`` (values by name) and ``CONSTRAINTS`` (functions of parameters by the reason that they
    stand for)."""
    if not isinstance(axes, dict) or not axes:
        raise InputError(
            f"{path}: has no SPACE: a dict of the values of each parameter, such as {{'block': (128, 256)}}"
        )
    for name, values in axes.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"{path}: SPACE: {name!r} is no name of a parameter")
        if (
            not isinstance(values, (list, tuple))
            or not values
            or not all(isinstance(value, _VALUES) for value in values)
        ):
            raise InputError(f"{path}: SPACE: {name} needs a list of numbers or texts")
    if math.prod(map(len, axes.values())) > _MOST_COMBINATIONS:
        raise InputError(f"{path}: SPACE has more than {_MOST_COMBINATIONS} combinations: take fewer values")
    if not isinstance(constraints, dict) or not all(isinstance(k, str) and callable(v) for k, v in constraints.items()):
        raise InputError(f"{path}: CONSTRAINTS is no dict of functions by their reasons")
    made = tuple(_constraint(path, axes, reason, holds) for reason, holds in constraints.items())
    return Space(SimpleNamespace, tuple(Axis(name, tuple(values)) for name, values in axes.items()), made)


def _constraint(path: Path, axes: Mapping[str, Any], reason: str, holds: Callable[..., Any]) -> Constraint[Any]:
    reads = tuple(inspect.signature(holds).parameters)
    if unknown := [name for name in reads if name not in axes]:
        raise InputError(f"{path}: CONSTRAINTS: {reason!r} asks for {unknown[0]}, which SPACE does not have")

    def asked(schedule: Any) -> bool:
        try:
            return bool(holds(**{name: getattr(schedule, name) for name in reads}))
        except Exception as error:
            raise InputError(f"{path}: the constraint {reason!r} raised {type(error).__name__}: {error}") from error

    return Constraint(reason, reads, reason, asked)


def _ending(path: Path) -> str:
    for ending in ENDINGS:
        if path.name.endswith(ending) and path.name != ending:
            return ending
    raise InputError(f"{path}: a template's name ends with {', '.join(ENDINGS)}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file: a template has its space beside it in Python") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _literal(text: str) -> str:
    """The text as a literal of Python that people can read, where it is possible."""
    return repr(text) if '"""' in text or text.endswith(("\\", '"')) else f'r"""{text}"""'


class TemplateDesign(Design):
    """All candidates of a user's template for one problem, and the control, which leaves all to the library."""

    template: OwnTemplate
    plain: Design  #: kgen's own, for the control

    @cached_property
    def choices(self) -> Any:
        return (self.plain.choices[self.plain.control.option],)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        space = KernelSpace(self.template.name, tuple(self.template.space.allowed()))
        if not space:
            raise InputError(f"{self.template.path}: its constraints rule out every combination")
        return Option("", ()), Option(self.template.name, (space,))

    @property
    def promising(self) -> bool:
        return True

    @property
    def control(self) -> Point:
        return Point(0, ())

    def rejections(self) -> list[Rejection]:
        return [
            Rejection(self.template.name, params, broken.name, f"{broken.reason} ({', '.join(broken.reads)})")
            for params, broken in self.template.space.ruled_out()
        ]

    def obstacle(self, point: Point) -> str | None:
        return "its text is a template's own"

    def point(self, plan: str, params: Params) -> Point | None:
        space = self.options[1].kernels[0]
        return Point(1, (space.index(params),)) if plan == self.template.name and params in space else None

    def candidate(self, point: Point) -> Candidate:
        if point.option == 0:
            return replace(super().candidate(point), origin=Trust.FOREIGN)
        params = self.options[1].kernels[0][point.choice[0]]
        source = self.template.source(self.problem, self.hardware, params)
        return Candidate(source, self.template.name, params, self.hardware.device_type, kernels=1, origin=Trust.FOREIGN)


def design_of(template: OwnTemplate) -> Callable[[Problem, DevicePool, float], Design]:
    """The function that makes the design of a sweep over a template."""

    def made(problem: Problem, devices: DevicePool, until: float) -> Design:
        found = designed(problem, devices, until)
        kind = found.hardware.device_type
        if template.device_type not in (None, kind):
            raise InputError(
                f"{template.path}: is for {template.device_type}, and this device is {kind}: name another with --device"
            )
        design = TemplateDesign(found.problem, found.capture, found.hardware, found.accuracy)
        design.template, design.plain = template, found
        return design

    return made
