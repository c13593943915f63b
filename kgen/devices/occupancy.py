"""Occupancy: the share of a multiprocessor's warps that a kernel can keep resident, from the compiler's report.

Warps, registers and shared memory limit the resident blocks. The compiler does not report dynamic shared memory, so
the result is an upper bound.

Source: NVIDIA, "CUDA C++ Programming Guide", sections "Multiprocessor Level" and "Technical Specifications per Compute
Capability", and the occupancy calculator of the CUDA toolkit.
"""

from __future__ import annotations

import re

from kgen.devices.hardware import Hardware, for_arch
from kgen.errors import DeviceError
from kgen.protocol import KernelResources

#: The most resident warps and blocks of a multiprocessor, by compute capability.
_RESIDENT = {
    70: (64, 32),
    75: (32, 16),
    80: (64, 32),
    86: (48, 16),
    89: (48, 24),
    90: (64, 32),
    100: (64, 32),
    120: (48, 24),
}

_REGISTER_UNIT = 256  # registers; a warp gets a multiple of it
_RESERVED_BYTES = 1024  # bytes of shared memory; CUDA reserves them per block from compute capability 8.0 on


def threads_of(source: str) -> dict[str, int]:
    """Threads per block of each kernel in a candidate's source, from its launch bounds."""
    bounds = re.findall(r"__launch_bounds__\((\w+)[^)]*\)\s*(\w+)\s*\(", source)
    constants = dict(re.findall(r"constexpr\s+int\s+(\w+)\s*=\s*(\d+)\s*;", source))
    known = ((name, constants.get(threads, threads)) for threads, name in bounds)
    return {name: int(threads) for name, threads in known if threads.isdigit()}


def occupancy(arch: str, kernel: KernelResources, threads: int) -> float | None:
    """The occupancy, between 0 and 1, for blocks of ``threads`` threads; ``None`` for an unknown device."""
    try:
        hardware = for_arch(arch)
    except DeviceError:
        return None
    most_warps, most_blocks = _RESIDENT[hardware.capability]
    warps = -(-threads // hardware.warp_size)
    blocks = min(most_blocks, most_warps // warps, _by_registers(hardware, kernel, warps), _by_shared(hardware, kernel))
    return blocks * warps / most_warps


def _by_registers(hardware: Hardware, kernel: KernelResources, warps: int) -> int:
    """The most resident blocks by registers."""
    of_warp = -(-kernel.registers * hardware.warp_size // _REGISTER_UNIT) * _REGISTER_UNIT
    return hardware.registers_per_multiprocessor // max(1, of_warp) // warps


def _by_shared(hardware: Hardware, kernel: KernelResources) -> int:
    """The most resident blocks by static shared memory."""
    reserved = _RESERVED_BYTES if hardware.capability >= 80 else 0
    return hardware.shared_bytes_per_multiprocessor // max(1, kernel.shared_bytes + reserved)
