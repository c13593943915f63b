"""What sweeps and exports need of this machine, settled before their processes start."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

from kgen.errors import DeviceError


def resolve_device(asked: str | None = None) -> str:
    """``cpu``, ``cuda`` or ``cuda:N``: as asked or, by default, CUDA where torch sees a GPU. Opens no context.

    Raises :class:`DeviceError` for what is no device, or is not there.
    """
    if asked is not None and _named(asked) == "cpu":
        return asked
    # Otherwise torch asks CUDA itself, which starts it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    if not torch.cuda.is_available():
        if asked is not None:
            raise DeviceError(f"{asked}: torch sees no CUDA device here; use --device cpu")
        return "cpu"
    device = asked or "cuda"
    index, count = int(device.partition(":")[2] or 0), torch.cuda.device_count()
    if index >= count:
        raise DeviceError(f"{device}: CUDA devices are counted from 0, and there are only {count} here")
    return device


def _named(asked: str) -> str:
    """``asked``, if it can be a device's name. Raises :class:`DeviceError`."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", asked):
        raise DeviceError(f"{asked!r} is no device: say cpu, cuda or cuda:N")
    return asked


def resolve_devices(asked: str | None = None) -> tuple[str, ...]:
    """The devices of a sweep: one of :func:`resolve_device`'s, several CUDA devices (``cuda:0,cuda:1``), or all
    (``cuda:all``).

    Whether a device that is named is there is left to who starts on it: asking torch takes seconds, in which that can
    start. Raises :class:`DeviceError` for what is no device, is not there as far as torch was asked, or is named twice.
    """
    names = [name.strip() for name in (asked or "").split(",")]
    if names == ["cuda:all"]:
        resolve_device("cuda")
        import torch

        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    if asked is None:
        return (resolve_device(),)
    if len(names) == 1:
        return (_named(asked),)
    devices = tuple("cuda:0" if name == "cuda" else name for name in names)
    for name in devices:
        if not name.startswith("cuda") or devices.count(name) > 1:
            raise DeviceError(f"{asked!r}: several devices are CUDA devices, each named once, such as cuda:0,cuda:1")
    return tuple(map(_named, devices))


def find_own_tools() -> None:
    """Let torch find ninja where it was installed with kgen, though that environment may not be activated."""
    own = str(Path(sys.executable).parent)
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if own not in folders:
        os.environ["PATH"] = os.pathsep.join([*folders, own])


def keep_bytecode(folder: Path) -> None:
    """Keep Python's bytecode in ``folder`` where torch came without, and none is written beside it, as in many container
    images: every process would otherwise compile torch's modules anew, which takes seconds. To be called before torch
    is imported; holds for processes that are started later, too."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None or sys.pycache_prefix:
        return
    written = not sys.dont_write_bytecode and os.access(Path(spec.origin).parent, os.W_OK)
    if written or Path(importlib.util.cache_from_source(spec.origin)).exists():
        return
    sys.pycache_prefix, sys.dont_write_bytecode = str(folder.resolve()), False
    os.environ |= {"PYTHONPYCACHEPREFIX": sys.pycache_prefix, "PYTHONDONTWRITEBYTECODE": ""}
