"""Targets: how a file for one kind of device is written, beyond the texts of its kernels."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Callable, Mapping, Sequence

from kgen.codegen.template import FOLDER
from kgen.devices.hardware import Hardware

#: Primitives of expressions that the C library has under the same name on every kind of device.
C_FUNCTIONS = (
    "FMA FMOD FMAX FMIN COPYSIGN ATAN2 HYPOT FLOOR CEIL TRUNC RINT EXP2 LOG2 LOG10 ATAN TAN ASIN ACOS SINH COSH ASINH "
    "ACOSH ATANH ERFC LGAMMA"
).split()


@dataclass(frozen=True)
class Helpers:
    """The functions that kernels call, each after those that it calls itself, as texts by where they stand.

    ``math`` are files of the device's ``functions``, ``table`` functions of
    :data:`kgen.compiler.loops.functions.FUNCTIONS`, ``kernels`` files of the device's ``kernels``, which may call both.
    """

    math: str
    table: str
    kernels: str
    symbols: frozenset[str]  #: of the kernels, and of those helpers that may name types


@dataclass(frozen=True)
class Target:
    """One kind of device.

    ``primitives`` spells the functions in capitals of an expression. ``half_primitives`` has other spellings where the
    result is of a half type, and cheaper functions serve; empty where there are none. ``qualifier`` stands before a
    helper function. A file has its kernels and their compiler's flags in constants of these names. Vector loads need
    pointers of ``alignment`` bytes. ``shared_axis`` is the parameter that all kernels of a file have in common; empty
    where there is none. ``folder`` has the files of helpers and types: that of the kind's templates, where another is
    not given. ``variants`` has the contexts that a template of ``kernels`` is rendered with, by the helpers' names. A
    template without variants is one helper. Functions:

    ``headers(helpers)``                     what comes before the kernels: includes and the helpers that they call
    ``flags(hardware, own, specific)``       the compiler's flags for kernels that ask for some of their own; with
                                             ``specific``, the architecture's own features are allowed, which later
                                             ones lack
    """

    device_type: str
    primitives: Mapping[str, str]
    qualifier: str
    source_constant: str
    flags_constant: str
    alignment: int
    headers: Callable[[Helpers], Sequence[str]]
    flags: Callable[[Hardware, Sequence[str], bool], list[str]]
    shared_axis: str = ""
    half_primitives: Mapping[str, str] = field(default_factory=dict)
    folder: Path = Path()
    variants: Mapping[str, Mapping[str, Mapping[str, object]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", FOLDER / self.device_type if self.folder == Path() else self.folder)


def types(helpers: Helpers, device_type: str) -> str:
    """The definitions of the types of elements that kernels and helpers name."""
    files = sorted((target(device_type).folder / "types").iterdir())
    return "\n".join(path.read_text() for path in files if path.stem in helpers.symbols)


_ADDED: dict[str, Target] = {}  # by plug-ins


def add(target: Target) -> None:
    """Take the target of a kind of device from outside."""
    _ADDED[target.device_type] = target


@lru_cache(maxsize=None)
def target(device_type: str) -> Target:
    """The target for one kind of device; its package has it in ``target.py``."""
    return _ADDED.get(device_type) or importlib.import_module(f"kgen.templates.{device_type}.target").TARGET
