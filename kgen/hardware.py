"""What the device can hold: the limits that constraints of a space are made of. Needs no torch but to probe a GPU."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from kgen.errors import DeviceError


@dataclass(frozen=True)
class Ceilings:
    """What a device was measured to reach: bytes read and written by a large copy (1e9 to the gigabyte), and operations
    of large products (1e12) by the type of their operands, each for a second. ``None`` where nothing was measured."""

    copy_gbytes_per_second: float | None = None
    float32_tflops: float | None = None
    tf32_tflops: float | None = None
    float16_tflops: float | None = None

    def tflops(self, type: str) -> float | None:
        """Of products of ``float32``, ``tf32`` or ``float16``."""
        return getattr(self, f"{type}_tflops")


@dataclass(frozen=True)
class Hardware:
    """Limits of one device. What a kind of device does not have is 0, empty or ``None``.

    ``arch`` is the compute capability, such as ``sm_90``, or the CPU's machine and widest vectors, such as
    ``x86_64-avx512``. ``shared_bytes_per_block`` is what a kernel may ask for with the opt-in attribute.
    ``copy_gbytes_per_second`` counts bytes read and bytes written of a device copy, 1e9 to the gigabyte.
    ``threads`` are the CPU cores that this process may use; ``vector_bits`` the widths of their vector registers.
    The rates of products, ``float32_tflops`` and so on, are those of :class:`Ceilings`.
    """

    device_type: str
    name: str
    arch: str
    max_threads_per_block: int
    warp_size: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    registers_per_multiprocessor: int
    registers_per_thread: int
    multiprocessors: int
    l2_bytes: int
    global_bytes: int
    copy_gbytes_per_second: float | None
    threads: int
    vector_bits: tuple[int, ...]
    float32_tflops: float | None = None
    tf32_tflops: float | None = None
    float16_tflops: float | None = None

    @property
    def ceilings(self) -> Ceilings:
        """What it was measured to reach."""
        return Ceilings(**{name: getattr(self, name) for name in Ceilings.__dataclass_fields__})

    @property
    def capability(self) -> int:
        """The compute capability as one number, 90 for ``sm_90`` and ``sm_90a``; 0 on the CPU."""
        found = re.fullmatch(r"sm_(\d+)[af]?", self.arch)
        return int(found[1]) if found else 0


@dataclass(frozen=True)
class _Example:
    """A common product of one compute capability: what stands in for it where there is no GPU to ask."""

    name: str
    shared_kbytes_per_block: int
    shared_kbytes_per_multiprocessor: int
    multiprocessors: int
    l2_mbytes: int
    global_gbytes: int


#: Shared memory is a property of the compute capability (CUDA C++ Programming Guide, "Technical Specifications per
#: Compute Capability"); counts and sizes are the named product's.
_EXAMPLES = {
    "sm_70": _Example("V100", 96, 96, 80, 6, 16),
    "sm_75": _Example("T4", 64, 64, 40, 4, 16),
    "sm_80": _Example("A100", 163, 164, 108, 40, 40),
    "sm_86": _Example("A10", 99, 100, 72, 6, 24),
    "sm_89": _Example("L4", 99, 100, 58, 48, 24),
    "sm_90": _Example("H100", 227, 228, 132, 50, 80),
    "sm_100": _Example("B200", 227, 228, 148, 126, 180),
    "sm_120": _Example("RTX 5090", 99, 100, 170, 96, 32),
}

#: The same for every compute capability in the table.
_MAX_THREADS_PER_BLOCK = 1024
_WARP_SIZE = 32
_REGISTERS_PER_MULTIPROCESSOR = 65536
_REGISTERS_PER_THREAD = 255

#: CPU flags of /proc/cpuinfo (``flags`` on x86, ``Features`` on ARM), with the vector width that each stands for.
_VECTOR_FLAGS = (("avx512f", "avx512", 512), ("avx2", "avx2", 256), ("sse2", "sse2", 128), ("asimd", "neon", 128))

_COPY_BYTES = 512 << 20  # far beyond any L2
_PRODUCT_SIZE = 4096  # of square matrices: enough to fill any chip
_REPEATS = 20

#: Devices whose products were measured at length, so that no probe needs to: TFLOP/s of the library in float32, TF32 and
#: float16, 1024x8192x8192 on random data.
_PRODUCT_TFLOPS = {"NVIDIA H200": (51.0, 413.0, 774.0)}


def for_arch(arch: str) -> Hardware:
    """Limits of a compute capability such as ``sm_90`` or ``sm_90a``, with a common product standing in for the rest.

    For rendering and compiling where there is no such GPU. Raises :class:`DeviceError` for one that is not known.
    """
    example = _EXAMPLES.get(re.sub(r"[af]$", "", arch))
    if example is None:
        raise DeviceError(f"no limits are known for {arch!r}; known are {', '.join(_EXAMPLES)}")
    return Hardware(
        device_type="cuda",
        name=f"{example.name} (assumed)",
        arch=arch,
        max_threads_per_block=_MAX_THREADS_PER_BLOCK,
        warp_size=_WARP_SIZE,
        shared_bytes_per_block=example.shared_kbytes_per_block << 10,
        shared_bytes_per_multiprocessor=example.shared_kbytes_per_multiprocessor << 10,
        registers_per_multiprocessor=_REGISTERS_PER_MULTIPROCESSOR,
        registers_per_thread=_REGISTERS_PER_THREAD,
        multiprocessors=example.multiprocessors,
        l2_bytes=example.l2_mbytes << 20,
        global_bytes=example.global_gbytes << 30,
        copy_gbytes_per_second=None,
        threads=0,
        vector_bits=(),
    )


def cpu() -> Hardware:
    """The CPU that this process runs on, with the cores that it may use."""
    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features") or "").split()
    vectors = [(name, bits) for flag, name, bits in _VECTOR_FLAGS if flag in flags]
    cores = len(os.sched_getaffinity(0))
    return Hardware(
        device_type="cpu",
        name=info.get("model name") or platform.processor() or platform.machine(),
        arch=f"{platform.machine()}-{vectors[0][0]}" if vectors else platform.machine(),
        max_threads_per_block=0,
        warp_size=0,
        shared_bytes_per_block=0,
        shared_bytes_per_multiprocessor=0,
        registers_per_multiprocessor=0,
        registers_per_thread=0,
        multiprocessors=cores,
        l2_bytes=_cpu_l2_bytes(),
        global_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        copy_gbytes_per_second=None,
        threads=cores,
        vector_bits=tuple(sorted({bits for _, bits in vectors})),
    )


def probe(device: str) -> Hardware:
    """Ask ``device`` (``cpu``, ``cuda`` or ``cuda:N``) itself, and time a copy and products on a GPU.

    Imports torch and opens a context on a GPU: call it in a child process. Raises :class:`DeviceError` where the
    device is not there.
    """
    if device == "cpu":
        return cpu()
    if not re.fullmatch(r"cuda(:\d+)?", device):
        raise DeviceError(f"{device!r} is no device: say cpu, cuda or cuda:N")
    import torch

    if not torch.cuda.is_available():
        raise DeviceError(f"{device}: torch sees no CUDA device here; use --device cpu")
    index = int(device.partition(":")[2] or torch.cuda.current_device())
    if index >= torch.cuda.device_count():
        raise DeviceError(f"{device}: there are only {torch.cuda.device_count()} CUDA devices here, counted from 0")
    properties = torch.cuda.get_device_properties(index)
    float32, tf32, float16 = _product_tflops(index, properties.name)
    host = cpu()
    return Hardware(
        device_type="cuda",
        name=properties.name,
        arch=f"sm_{properties.major}{properties.minor}",
        max_threads_per_block=_MAX_THREADS_PER_BLOCK,
        warp_size=properties.warp_size,
        shared_bytes_per_block=properties.shared_memory_per_block_optin,
        shared_bytes_per_multiprocessor=properties.shared_memory_per_multiprocessor,
        registers_per_multiprocessor=properties.regs_per_multiprocessor,
        registers_per_thread=_REGISTERS_PER_THREAD,
        multiprocessors=properties.multi_processor_count,
        l2_bytes=properties.L2_cache_size,
        global_bytes=properties.total_memory,
        copy_gbytes_per_second=_copy_gbytes_per_second(index),
        threads=host.threads,
        vector_bits=host.vector_bits,
        float32_tflops=float32,
        tf32_tflops=tf32,
        float16_tflops=float16,
    )


def _copy_gbytes_per_second(index: int) -> float | None:
    """The rate of the fastest of several device copies; ``None`` where the memory for them is taken."""
    import torch

    with torch.cuda.device(index):
        try:
            source = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device="cuda")
            target = torch.empty_like(source)
        except torch.OutOfMemoryError:
            return None
        return 2 * _COPY_BYTES / _fastest_ms(lambda: target.copy_(source)) / 1e6


def _product_tflops(index: int, name: str) -> tuple[float | None, float | None, float | None]:
    """Rates of the library's products in float32, TF32 and float16: those known of the device, or of the fastest of
    several. Devices without tensor cores for TF32 have none in it."""
    import torch

    if name in _PRODUCT_TFLOPS:
        return _PRODUCT_TFLOPS[name]
    flags, allowed = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32

    def rate(dtype: torch.dtype, allow_tf32: bool = False) -> float | None:
        flags.allow_tf32 = allow_tf32
        try:
            a, b = (torch.randn(_PRODUCT_SIZE, _PRODUCT_SIZE, dtype=dtype, device="cuda") for _ in "ab")
            return 2 * _PRODUCT_SIZE**3 / _fastest_ms(lambda: torch.mm(a, b)) / 1e9
        except torch.OutOfMemoryError:
            return None

    with torch.cuda.device(index):
        try:
            tf32 = rate(torch.float32, True) if torch.cuda.get_device_capability() >= (8, 0) else None
            return rate(torch.float32), tf32, rate(torch.float16)
        finally:
            flags.allow_tf32 = allowed


def _fastest_ms(run: Callable[[], object]) -> float:
    """Milliseconds of the fastest of several runs on the current device."""
    import torch

    times = []
    for _ in range(_REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return min(times)


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries in /proc/cpuinfo, or nothing where there is no such file."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_l2_bytes() -> int:
    """Bytes of the first core's level-2 cache, 0 where the system does not say."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text(encoding="utf-8").strip()
    except OSError:
        return 0
    return int(text.removesuffix("K")) << 10
