"""The conditions of a timing: clocks, temperature and throttling, as far as the device reports them.

The driver's management library (NVML) needs no CUDA context, so the parent can call it through ``ctypes``.
"""

import ctypes
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Mapping

#: Reasons for lower clocks by bit (``nvmlClocksThrottleReasons``), without idleness and application clocks.
_REASONS = {
    0x04: "power cap", 0x08: "hardware slowdown", 0x10: "sync boost", 0x20: "thermal (software)",
    0x40: "thermal (hardware)", 0x80: "power brake",
}
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0

Conditions = tuple[tuple[str, str | float], ...]


def conditions(key: str, cold: bool) -> Conditions:
    """The present conditions of the device named by ``key`` (see :class:`DeviceLock`), and of the cache."""
    found: dict[str, str | float] = {"cache": "cold" if cold else "warm"}
    found |= _gpu(key.removeprefix("cuda-")) if key.startswith("cuda-") else _cpu()
    return tuple(found.items())


def worse(before: Conditions, after: Conditions) -> Conditions:
    """The worse of both: the lower clock, the higher temperature and load, every reason of throttling."""
    found = dict(before)
    for name, value in after:
        other = found.get(name, value)
        if isinstance(value, str) or isinstance(other, str):
            parts = dict.fromkeys(part for text in (other, value) for part in str(text).split(", ") if part != "none")
            found[name] = ", ".join(parts) or "none"
        else:
            found[name] = min(value, other) if name.endswith("mhz") else max(value, other)
    return tuple(found.items())


def _gpu(uuid: str) -> Mapping[str, str | float]:
    library, device = _nvml(), ctypes.c_void_p()
    name = f"GPU-{uuid.removeprefix('GPU-')}"
    if library is None or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device)):
        return {}
    number, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
    asked = (("sm_clock_mhz", library.nvmlDeviceGetClockInfo, [_SM_CLOCK], 1),
             ("temperature_c", library.nvmlDeviceGetTemperature, [_GPU_TEMPERATURE], 1),
             ("power_w", library.nvmlDeviceGetPowerUsage, [], 1000))
    found: dict[str, str | float] = {
        name: number.value / unit for name, get, which, unit in asked if not get(device, *which, ctypes.byref(number))}
    if not library.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(reasons)):
        names = [text for bit, text in _REASONS.items() if reasons.value & bit]
        found["throttle"] = ", ".join(names) or "none"
    return found


@cache
def _nvml() -> ctypes.CDLL | None:
    with suppress(OSError):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    return None


def _cpu() -> Mapping[str, str | float]:
    found: dict[str, str | float] = {"load": os.getloadavg()[0]}
    with suppress(OSError, ValueError):  # not every system tells clocks
        clocks = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        found["cpu_clock_mhz"] = min(map(float, clocks))
    return found
