"""The conditions that a device works under: clocks, temperature and throttling, as far as it reports them.

The driver's management library (NVML) needs no CUDA context, so the evaluator's parent can call it through ``ctypes``.
"""

from __future__ import annotations

import ctypes
import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Mapping

#: Reasons for lower clocks by bit (``nvmlClocksThrottleReasons``), without idleness and application clocks.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0


def of_gpu(uuid: str) -> Mapping[str, str | float]:
    """Clock, temperature, power and reasons of throttling of the GPU with that UUID; empty without the library."""
    library, device = _nvml(), ctypes.c_void_p()
    name = f"GPU-{uuid.removeprefix('GPU-')}"
    if library is None or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device)):
        return {}
    number, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
    asked = (
        ("sm_clock_mhz", library.nvmlDeviceGetClockInfo, [_SM_CLOCK], 1),
        ("temperature_c", library.nvmlDeviceGetTemperature, [_GPU_TEMPERATURE], 1),
        ("power_w", library.nvmlDeviceGetPowerUsage, [], 1000),
    )
    found: dict[str, str | float] = {
        name: number.value / unit for name, get, which, unit in asked if not get(device, *which, ctypes.byref(number))
    }
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


def of_host() -> Mapping[str, str | float]:
    """The load of the machine, and its lowest clock."""
    found: dict[str, str | float] = {"load": os.getloadavg()[0]}
    with suppress(OSError, ValueError):  # not every system tells clocks
        clocks = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        found["cpu_clock_mhz"] = min(map(float, clocks))
    return found
