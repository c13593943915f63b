"""Fingerprints: a module, a call of it and the place, as one hash. Equal fingerprints have the same winners.

    classes (code of their methods and of what these call), attributes, kinds of tensors, modes, arguments, torch,
    device

A fingerprint needs no capture and reads no value of a tensor. A hit is checked by a forward of both before it is used.
"""

import dis
import functools
import hashlib
import re
import sys
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Iterator

import torch
from torch import nn

from kgen.devices.kinds import HOST, KINDS, kind_of
from kgen.devices.runtime import runtime
from kgen.optimized.twin import ALL_HOOKS, MARKS, base_of

_FORMAT = "1"  # a change makes all stored fingerprints old
#: A string that each process draws anew, such as an id of its session; huggingface_hub's is one.
_RANDOM = re.compile(r"[0-9a-f]{32,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CODES = 4096  # code objects, whose texts are kept: a method that is patched has another one
_DEPTH = 6  # of functions that call functions, and of values in attributes
_SKIPPED = {*MARKS, "_graph", "_code", "meta", "_parameters", "_buffers", "_modules", "training"}


def fingerprint(
    module: nn.Module, calls: list[tuple[tuple[Any, ...], dict[str, Any]]], settings: tuple[Any, ...]
) -> str:
    """The hash of a module with these calls (arguments, and those by name), under these settings."""
    writer = _Writer()
    writer.add("format", _FORMAT, torch.__version__, sys.version_info[:2], place(calls), *settings)
    for path, part in module.named_modules():
        writer.module(path, part)
    for args, kwargs in calls:
        writer.value(args)
        writer.value(kwargs)
    return writer.digest.hexdigest()


def place(calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> str:
    """The kind of device that a call's tensors are on: results of another one do not hold."""
    from kgen.optimized.calls import tensors_of

    devices = {x.device for x in tensors_of([[a, k] for a, k in calls])}
    device = next((d for d in devices if d.type in KINDS and kind_of(d).accelerator), torch.device(HOST.first))
    return runtime(device).place(device)


class _Writer:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.known: dict[int, int] = {}  # objects by the order in which they came
        self.kept: list[Any] = []  # that their ids stay theirs

    def add(self, *words: Any) -> None:
        for word in words:
            self.digest.update(f"{word}\0".encode(errors="replace"))

    def module(self, path: str, module: nn.Module) -> None:
        """A module without its submodules."""
        base, state = base_of(module), vars(module)
        self.add("module", path, base.__module__, base.__qualname__, state.get("training"))
        if self._first(base):
            for text in _class_texts(base):
                self.add(text)
        if isinstance(module, torch.fx.GraphModule):  # its class is torch's, and its forward its own
            self.add(module.code)
        for table in ("_parameters", "_buffers"):
            for name, x in state.get(table, {}).items():
                self.add(table, name)
                self.value(x)
        for name in sorted(state.keys() - _SKIPPED):
            self.add(name)
            # The keys of hooks count all hooks of the process.
            self.value([*state[name].values()] if name in ALL_HOOKS and state[name] else state[name])

    def value(self, value: Any, depth: int = 0) -> None:
        """A value: primitive ones by their text, tensors by their kinds, others by their classes and attributes."""
        if isinstance(value, torch.Tensor):
            first = self._first(value)
            strides = value.stride() if value.layout is torch.strided else value.layout
            self.add(
                type(value).__name__,
                tuple(value.shape),
                strides,
                value.dtype,
                value.device.type,
                first or self.known[id(value)],
            )
        elif value is None or isinstance(
            value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, torch.layout)
        ):
            self.add(type(value).__name__, repr(value))
        elif isinstance(value, (FunctionType, MethodType)):
            for text in _function_texts(getattr(value, "__func__", value), 0, set()):
                self.add(text)
        elif isinstance(value, (type, ModuleType)):
            self.add(getattr(value, "__module__", ""), value.__name__)
        elif not self._first(value) or depth > _DEPTH:
            self.add("seen", type(value).__qualname__, self.known[id(value)])
        elif isinstance(value, (list, tuple)):
            self.add(type(value).__name__, len(value))
            for item in value:
                self.value(item, depth + 1)
        elif isinstance(value, dict):
            self.add(type(value).__name__, len(value))
            for key, item in value.items():
                self.add(repr(key) if isinstance(key, (str, int, float, bool, tuple)) else type(key))
                self.value(item, depth + 1)
        elif isinstance(value, (set, frozenset)):
            self.add(type(value).__name__, sorted(map(repr, value)))
        else:
            self.add(type(value).__module__, type(value).__qualname__)
            self.value(getattr(value, "__dict__", None), depth + 1)

    def _first(self, value: Any) -> bool:
        """Whether an object comes for the first time."""
        if id(value) in self.known:
            return False
        self.known[id(value)] = len(self.known)
        self.kept.append(value)
        return True


def _class_texts(base: type) -> tuple[str, ...]:
    """The code of a class: its own methods and those that it inherits, but for torch's, whose version says enough.

    They are read each time: a method may be patched.
    """
    found: list[str] = []
    seen: set[int] = set()
    for one in base.__mro__:
        found.append(f"{one.__module__}.{one.__qualname__}")
        if one.__module__.split(".")[0] in ("torch", "builtins"):
            continue
        for name, value in sorted(vars(one).items(), key=lambda item: item[0]):
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, FunctionType):
                found += _function_texts(function, 0, seen)
            elif isinstance(value, (bool, int, float, str, tuple)) and not name.startswith("__"):
                found.append(f"{name}={value!r}")
    return tuple(found)


def _function_texts(function: FunctionType, depth: int, seen: set[int]) -> Iterator[str]:
    """The code of a function, and of the functions and numbers of its own package that it names."""
    if id(function) in seen:
        return
    seen.add(id(function))
    yield function.__qualname__
    yield from _code_texts(function.__code__)
    yield repr([x for x in (function.__defaults__ or ()) if isinstance(x, (bool, int, float, str, type(None)))])
    for cell in function.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # it is not filled yet
            continue
        if isinstance(inner, FunctionType) and depth < _DEPTH:
            yield from _function_texts(inner, depth + 1, seen)
        elif isinstance(inner, (bool, int, float, str)):
            yield repr(inner)
    package = function.__module__.split(".")[0] if function.__module__ else ""
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, FunctionType) and depth < _DEPTH and (value.__module__ or "").split(".")[0] == package:
            yield from _function_texts(value, depth + 1, seen)
        elif isinstance(value, (bool, int, float, str)) and not _RANDOM.fullmatch(str(value)):
            yield f"{name}={value!r}"


@functools.lru_cache(maxsize=_CODES)
def _code_texts(code: CodeType) -> tuple[str, ...]:
    found = [code.co_code.hex(), repr((code.co_names, code.co_varnames, code.co_freevars))]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _code_texts(constant)
        else:
            found.append(repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant))
    return tuple(found)


@functools.lru_cache(maxsize=_CODES)
def _names(code: CodeType) -> tuple[str, ...]:
    """The global names that a function's code reads, inner functions included."""
    found = [i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names(constant)
    return tuple(found)
