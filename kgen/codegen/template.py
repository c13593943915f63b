"""The interface of a schedule's folder: what a task is, and what a template makes of it."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from kgen.candidate import Params
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.space import Space
from kgen.compiler.fusion.steps import FusionPlan, Kernel
from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.graph.library_call import LibraryCall, X
from kgen.compiler.loops.program import Program
from kgen.compiler.rewrites.rewrite import Offer
from kgen.devices.hardware import Hardware
from kgen.protocol import Accuracy

#: The folder of all templates, below which their Jinja2 texts lie.
FOLDER = Path(__file__).parent.parent / "templates"


@dataclass(frozen=True)
class Task:
    """One kernel of a plan, to be rendered for a device; its space depends on the accuracy class."""

    plan: FusionPlan
    kernel: Kernel
    hardware: Hardware
    accuracy: Accuracy = Accuracy.FP32

    @property
    def tf32(self) -> bool:
        """Whether products as accurate as TF32 are accurate enough: in its class, or where PyTorch multiplies so."""
        if self.accuracy is not Accuracy.PYTORCH:
            return self.accuracy is Accuracy.TF32
        return any(self.plan.graph.node(name).products == 1 for name in self.kernel.nodes)

    @property
    def surroundings(self) -> tuple[Any, ...]:
        """Facts of the plan that a space may read: whether the kernel is its only step, and which value it overwrites.

        The last fact says which values of the kernel earlier steps use. A value is a number, or -1."""
        plan, kernel = self.plan, self.kernel
        values = tuple(dict.fromkeys(v for name in kernel.nodes for v in plan.graph.node(name).values))
        over = values.index(kernel.overwrites) if kernel.overwrites else -1
        return len(plan.steps) == 1, over, tuple(map(self.used_before, values))

    def used_before(self, value: str) -> bool:
        """Whether an earlier step of the plan reads or makes the value."""
        return self.plan.first_use.get(value, math.inf) < self.plan.numbers[self.kernel.outputs]

    def read_later(self, value: str) -> bool:
        """Whether a later step of the plan reads the value."""
        return self.plan.last_read.get(value, -1) > self.plan.numbers[self.kernel.outputs]

    def program(self, two_passes: bool = False) -> Program:
        """The kernel's loop program; with ``two_passes``, reductions that one pass could find take two."""
        known = self.__dict__.setdefault("_programs", {})  # each schedule of the task asks for it
        if two_passes not in known:
            known[two_passes] = self.plan.program(self.kernel, two_passes=two_passes)
        return known[two_passes]


def tasks(
    plan: FusionPlan, hardware: Hardware, accuracy: Accuracy = Accuracy.FP32, prefix: str = ""
) -> tuple[Task, ...]:
    """The task of each kernel of a plan. ``prefix`` stands before the kernels' names where a file has those of two
    plans."""
    return tuple(Task(plan, replace(kernel, name=prefix + kernel.name), hardware, accuracy) for kernel in plan.kernels)


def parameter(meaning: str, default: Any = MISSING) -> Any:
    """A field of a schedule that is a parameter: what it means, and its value where a space has no such axis."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Schedule:
    """How a kernel does its task: the values of the template's parameters, which constraints, costs and the text read
    alike.

    The schedule of a template is a class of its own. It has a :func:`parameter` for each axis of its spaces, and
    properties for all that follows from these.
    """

    task: Task = field(repr=False)

    @cached_property
    def program(self) -> Program:
        return self.task.program()

    @property
    def early(self) -> bool:
        """Whether the kernel is launched while the one before it ends."""
        return False

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the compiler that the kernel asks for."""
        return ()


@dataclass(frozen=True)
class Argument:
    """One pointer argument of a launcher, in order.

    ``role`` is one of these:

    ``in``          a tensor that is read
    ``out``         a tensor that the call makes
    ``inout``       a tensor that is read and written over
    ``state``       a buffer of the module that is updated
    ``workspace``   memory of the call; ``size`` is its float32 elements as Python source, in which ``rows`` may occur
    ``prepared``    memory of ``size`` elements of the weight ``tensor``'s dtype, filled from it whenever that changes
    """

    name: str
    role: str
    tensor: str = ""
    size: str = ""
    dtype: str = "float32"
    filled: Filled | None = None

    @property
    def ctype(self) -> str:
        """The C type of an element."""
        return DTYPES[self.dtype].memory


@dataclass(frozen=True)
class Filled:
    """How prepared memory is filled: ``launcher(weight, memory, rows, stream)`` with ``form`` of the weight, such as
    its transpose."""

    launcher: str
    rows: int
    form: LibraryCall = X


@dataclass(frozen=True)
class Before:
    """The steps before a kernel's launcher: another launcher, then a call of the library.

    ``call`` is a Python statement in which ``{rows}`` stands for the rows, ``{workspace}`` for the kernel's workspace,
    and prepared memory has its own name. ``function`` is the file of a function that it calls.
    """

    launcher: str
    arguments: tuple[Argument, ...]
    call: str
    function: str


@dataclass(frozen=True)
class Rendering:
    """A rendered task: the context of the template's text, and the arguments of its launcher.

    ``flags`` are those of the compiler that it asks for. ``specific`` says that the text uses features of one
    architecture (``sm_90a``) that later ones lack. ``symbols`` are the helpers and types that the finished text needs.
    """

    context: Mapping[str, Any]
    arguments: tuple[Argument, ...]
    flags: tuple[str, ...] = ()
    specific: bool = False
    before: Before | None = None
    symbols: tuple[str, ...] = ()

    @property
    def all_arguments(self) -> tuple[Argument, ...]:
        """The arguments of every launcher, each once."""
        return tuple(dict.fromkeys((*(self.before.arguments if self.before else ()), *self.arguments)))


def _no_lack(hardware: Hardware) -> str:
    return ""


def _nothing_copied(program: Program) -> Sequence[str]:
    return ()


def _library_arithmetic(params: Params) -> Arithmetic | None:
    return None


@dataclass(frozen=True)
class Template:
    """One schedule of loop programs for one kind of device: the interface of its folder.

    ``name`` is the folder's name, which plans show. ``file`` is the Jinja2 text below ``folder``. Functions:

    ``takes(program)``          whether a kernel of this schedule computes the program
    ``schedule(task, **params)``  what the parameters decide for a task
    ``space(task)``             the combinations of parameters for a task
    ``render(schedule)``        the context of the text, and how its launcher is called
    ``lacks(hardware)``         what a device of that kind lacks for it, in one line; empty where it lacks nothing
    ``copied(program)``         the operands of which :func:`render` prepares a copy where they are weights
    ``arithmetic(params)``      how its contractions are multiplied; ``None`` where it computes none

    The space follows from what the kernel computes, and from :attr:`Task.surroundings`: layers that a model repeats
    share one. Where it follows from more of the plan, ``reads_plan`` says so. ``share`` is the part of the device's
    rate that its contractions reach, by which plans are ordered. ``in_place``, ``biased`` and ``offers`` are those of
    :class:`kgen.compiler.fusion.template.Template`, which this class implements.
    """

    name: str
    device_type: str
    file: str
    takes: Callable[[Program], bool]
    schedule: type[Schedule]
    space: Callable[[Task], Space]
    render: Callable[[Any], Rendering]
    lacks: Callable[[Hardware], str] = _no_lack
    copied: Callable[[Program], Sequence[str]] = _nothing_copied
    arithmetic: Callable[[Params], Arithmetic | None] = _library_arithmetic
    in_place: bool = False
    share: float = 1.0
    biased: bool = False
    offers: frozenset[Offer] = frozenset()
    reads_plan: bool = False
    folder: Path = FOLDER

    @property
    def parameters(self) -> dict[str, str]:
        """The meaning of each parameter, in one line."""
        return {f.name: f.metadata["meaning"] for f in fields(self.schedule) if "meaning" in f.metadata}
