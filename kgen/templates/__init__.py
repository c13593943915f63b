"""Templates: families of kernels, each a Jinja2 file with its space of parameters beside it.

``cuda/inner_reduction/inner_reduction.cu.j2`` is the text of the family ``row`` in CUDA; ``cuda/row.py`` holds its ``TEMPLATE``: the axes and
constraints, and what the text is rendered with. A new family is such a pair of files; nothing else knows of it.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Mapping

from kgen.candidate import Params
from kgen.compiler.fusion import FusionPlan, Kernel
from kgen.evaluator.protocol import Accuracy
from kgen.hardware import Hardware
from kgen.templates.space import Space

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Task:
    """One kernel of a plan, to be rendered for a device, and the class of accuracy that its space is for."""

    plan: FusionPlan
    kernel: Kernel
    hardware: Hardware
    accuracy: Accuracy = Accuracy.FP32


@dataclass(frozen=True)
class Argument:
    """One pointer argument of a launcher, in order.

    ``role`` is ``in``, ``out`` (a tensor to be made), ``inout`` (written over), ``workspace`` (``size`` is Python source
    for its number of float32 elements, in which ``rows`` may be used) or ``prepared``: memory of ``size`` float32
    elements that is filled from the weight ``tensor``, kept between calls, and filled again when the weight changes.
    ``form`` spells what an ``in`` argument is of its tensor, such as its transpose.
    """

    name: str
    role: str
    tensor: str = ""
    size: str = ""
    ctype: str = "float"
    filled: Filled | None = None
    form: str = "{}"


@dataclass(frozen=True)
class Filled:
    """How prepared memory is filled: ``launcher(weight, memory, rows, stream)`` with the weight as ``form`` spells it."""

    launcher: str
    rows: int
    form: str = "{}"


@dataclass(frozen=True)
class Before:
    """What runs before a kernel's launcher: another launcher, then a ``call`` of the library as a Python statement, in which
    ``{rows}`` stands for the rows and arguments for themselves. ``function`` is the file of a function that it calls."""

    launcher: str
    arguments: tuple[Argument, ...]
    call: str
    function: str


@dataclass(frozen=True)
class Rendering:
    """What a template makes of a task: the context of its text and how its launcher is called.

    ``specific`` says that the text uses what one architecture alone has (``sm_90a``), and later ones do not.
    """

    context: Mapping[str, Any]
    arguments: tuple[Argument, ...]
    specific: bool = False
    before: Before | None = None

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """Those of every launcher, each once."""
        return tuple(dict.fromkeys((*(self.before.arguments if self.before else ()), *self.arguments)))


@dataclass(frozen=True)
class Template:
    """One family of kernels for one kind of device.

    ``lacks`` says in one line what a device of that kind lacks for it; empty where it lacks nothing.
    """

    family: str
    device_type: str
    file: str
    space: Callable[[Task], Space]
    render: Callable[[Task, Params], Rendering]
    lacks: Callable[[Hardware], str] = lambda hardware: ""


@lru_cache(maxsize=None)
def templates() -> Mapping[tuple[str, str], Template]:
    """All templates by (family, device type), found by looking through the folders beside this file."""
    found: dict[tuple[str, str], Template] = {}
    for device_type in ("cuda", "cpu"):
        package = importlib.import_module(f"kgen.templates.{device_type}")
        for folder in pkgutil.iter_modules(package.__path__):
            if folder.ispkg:
                template = importlib.import_module(f"{package.__name__}.{folder.name}.template").TEMPLATE
                found[template.family, template.device_type] = template
    return found


def families(hardware: Hardware) -> Mapping[str, str]:
    """The families with kernels for this kind of device, each with what this device lacks for it, if anything."""
    return {f: t.lacks(hardware) for (f, device_type), t in templates().items() if device_type == hardware.device_type}


def template_for(task: Task) -> Template:
    return templates()[task.kernel.family, task.hardware.device_type]
