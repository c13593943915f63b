"""Devices, tools and caches of this machine that sweeps and exports set up before their processes start."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from kgen.devices.kinds import HOST, KINDS, kind_of
from kgen.devices.runtime import RUNTIMES, runtime
from kgen.errors import DeviceError


@dataclass(frozen=True)
class Check:
    """One finding: the part, whether it is there, details, and how to get a missing one.

    ``needed`` is false for a part that only some uses need.
    """

    name: str
    ok: bool
    needed: bool
    found: str
    remedy: str = ""


def resolve_device(asked: str | None = None) -> str:
    """The device to use: ``cpu``, ``cuda`` or ``cuda:N``. The default is CUDA where torch sees a GPU.

    Opens no context. Raises :class:`DeviceError` where ``asked`` is no device, or names a missing one.
    """
    asking = RUNTIMES.values() if asked is None else [runtime(_named(asked))]
    found = next(
        device for one in sorted(asking, key=lambda one: one is RUNTIMES[HOST.name]) if (device := one.found(asked))
    )
    return found


def gpu_arch() -> str | None:
    """The compute capability of this machine's first GPU, such as ``sm_90``; ``None`` without a GPU."""
    device = resolve_device()
    return runtime(device).arch(device) if kind_of(device).accelerator else None


def _named(asked: str) -> str:
    """``asked`` itself. Raises :class:`DeviceError` where it cannot be the name of a device."""
    try:
        kind = kind_of(asked)
    except KeyError:
        kind = None
    if kind is None or asked != kind.name and not (kind.accelerator and re.fullmatch(rf"{kind.name}:\d+", asked)):
        raise DeviceError(f"{asked!r} is no device: say cpu, cuda or cuda:N")
    return asked


def resolve_devices(asked: str | None = None) -> tuple[str, ...]:
    """The devices of a sweep: one device, several CUDA devices (``cuda:0,cuda:1``), or all of them (``cuda:all``).

    The existence of a named device is not checked here, because asking torch takes seconds. The processes on that
    device start in that time and check it. Raises :class:`DeviceError` where a name is no device, is given twice, or
    is ``cuda:all`` without a GPU.
    """
    names = [name.strip() for name in (asked or "").split(",")]
    if len(names) == 1 and names[0].endswith(":all"):
        return runtime(resolve_device(names[0].removesuffix(":all"))).every()
    if asked is None:
        return (resolve_device(),)
    if len(names) == 1:
        return (_named(asked),)
    devices = tuple(KINDS[name].first if name in KINDS else name for name in names)
    for name in devices:
        if not name or not kind_of(_named(name)).accelerator or devices.count(name) > 1:
            raise DeviceError(f"{asked!r}: several devices are CUDA devices, each named once, such as cuda:0,cuda:1")
    return devices


def cxx() -> str:
    """The C++ compiler that builds candidates: ``CXX``, or ``c++``, as torch has it in the program of a user."""
    return os.environ.get("CXX") or "c++"


def find_own_tools() -> None:
    """Add kgen's own environment to ``PATH``, so that torch finds ninja there without activation."""
    own = str(Path(sys.executable).parent)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if own not in folders:
        os.environ["PATH"] = os.pathsep.join([*folders, own])


def keep_bytecode(folder: Path) -> None:
    """Keep Python's bytecode in ``folder`` if torch was installed without bytecode and none can be written beside it.

    Many container images are like that. Each process would compile torch's modules again, which takes seconds. Call
    this before torch is imported. It also holds for processes that are started later.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None or sys.pycache_prefix:
        return
    written = not sys.dont_write_bytecode and os.access(Path(spec.origin).parent, os.W_OK)
    if written or Path(importlib.util.cache_from_source(spec.origin)).exists():
        return
    sys.pycache_prefix, sys.dont_write_bytecode = str(folder.resolve()), False
    os.environ |= {"PYTHONPYCACHEPREFIX": sys.pycache_prefix, "PYTHONDONTWRITEBYTECODE": ""}
