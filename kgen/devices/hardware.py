"""Limits of a device, from which templates make the constraints of their spaces. Only probing a GPU needs torch."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Callable

from kgen.errors import DeviceError


@dataclass(frozen=True)
class Ceilings:
    """Measured rates of a device; ``None`` where nothing was measured.

    ``copy_gbytes_per_second`` counts bytes read and bytes written of a large copy, in units of 1e9 bytes.
    The other rates are 1e12 operations per second of large matmuls, by the type of their operands.
    """

    copy_gbytes_per_second: float | None = None
    float32_tflops: float | None = None
    tf32_tflops: float | None = None
    float16_tflops: float | None = None

    def tflops(self, type: str) -> float | None:
        """The rate of matmuls in ``type``: ``float32``, ``tf32`` or ``float16``."""
        return getattr(self, f"{type}_tflops")


@dataclass(frozen=True)
class Hardware:
    """Limits of one device. A limit that a kind of device does not have is 0, empty or ``None``.

    ``arch`` is the compute capability, such as ``sm_90``, or the CPU's machine and widest vectors, such as
    ``x86_64-avx512``. ``shared_bytes_per_block`` is the limit with the opt-in attribute.
    ``threads`` are the CPU cores that this process may use, and ``vector_bits`` the widths of their vector registers.
    ``copy_gbytes_per_second`` and the rates of matmuls are those of :class:`Ceilings`.
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
        """The measured rates."""
        return Ceilings(**{name: getattr(self, name) for name in Ceilings.__dataclass_fields__})

    @property
    def capability(self) -> int:
        """The compute capability as one number, 90 for ``sm_90`` and ``sm_90a``; 0 on the CPU."""
        found = re.fullmatch(r"sm_(\d+)[af]?", self.arch)
        return int(found[1]) if found else 0


#: TFLOP/s of the library's matmuls in float32, TF32 and float16, 1024x8192x8192 on random data. These devices were
#: measured at length, so a probe does not measure them again.
_MATMUL_TFLOPS = {"NVIDIA H200": (51.0, 413.0, 774.0)}

_COPY_SHARE = 0.88  # of the datasheet's memory rate; an H200 reaches it, others are assumed to
_MATMUL_SHARE = 0.78  # of the datasheet's rate in matmuls; an H200 reaches 0.76 to 0.83, others are assumed to


def _datasheet(copy: float, float32: float, tf32: float | None, float16: float) -> Ceilings:
    """The ceilings that a model is assumed to reach, from its datasheet's GB/s and dense TFLOP/s."""
    share = _MATMUL_SHARE
    return Ceilings(copy * _COPY_SHARE, float32 * share, None if tf32 is None else tf32 * share, float16 * share)


@dataclass(frozen=True)
class _Example:
    """A common model of one compute capability, used where there is no GPU to ask."""

    name: str
    shared_kbytes_per_block: int
    shared_kbytes_per_multiprocessor: int
    multiprocessors: int
    l2_mbytes: int
    global_gbytes: int
    ceilings: Ceilings


#: Shared memory is a property of the compute capability; the other figures are those of the named model.
#: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_EXAMPLES = {
    "sm_70": _Example("V100", 96, 96, 80, 6, 16, _datasheet(900, 15.7, None, 125)),
    "sm_75": _Example("T4", 64, 64, 40, 4, 16, _datasheet(320, 8.1, None, 65)),
    "sm_80": _Example("A100", 163, 164, 108, 40, 40, _datasheet(1555, 19.5, 156, 312)),
    "sm_86": _Example("A10", 99, 100, 72, 6, 24, _datasheet(600, 31.2, 62.5, 125)),
    "sm_89": _Example("L4", 99, 100, 58, 48, 24, _datasheet(300, 30.3, 60, 121)),
    "sm_90": _Example("H200", 227, 228, 132, 50, 141, Ceilings(4230.0, *_MATMUL_TFLOPS["NVIDIA H200"])),
    "sm_100": _Example("B200", 227, 228, 148, 126, 180, _datasheet(8000, 75, 1125, 2250)),
    "sm_120": _Example("RTX 5090", 99, 100, 170, 96, 32, _datasheet(1792, 104.8, 104.8, 209.5)),
}

# These limits are equal for every compute capability in the table.
_MAX_THREADS_PER_BLOCK = 1024  # threads
_WARP_SIZE = 32  # threads
_REGISTERS_PER_MULTIPROCESSOR = 65536  # registers of 32 bits
_REGISTERS_PER_THREAD = 255  # registers of 32 bits

#: CPU flags of /proc/cpuinfo (``flags`` on x86, ``Features`` on ARM), each with its name and vector width in bits.
_VECTOR_FLAGS = (("avx512f", "avx512", 512), ("avx2", "avx2", 256), ("sse2", "sse2", 128), ("asimd", "neon", 128))

_CPU_GBYTES_PER_CORE = 8.0  # GB/s read and written by one of few cores; assumed, order of server CPUs
_CPU_TERAFLOPS_PER_LANE = 0.0057  # TFLOP/s of a core and float32 lane; 2 cores with AVX-512: 0.18 in a linear layer

_COPY_BYTES = 512 << 20  # bytes; far beyond any L2
_MATMUL_SIZE = 4096  # rows and columns of square matrices; fills any GPU
_REPEATS = 20  # runs, of which the fastest counts


def for_arch(arch: str) -> Hardware:
    """Limits of a compute capability such as ``sm_90`` or ``sm_90a``; sizes, counts and rates are those of a common
    model.

    For rendering and compiling without such a GPU. Raises :class:`DeviceError` for an unknown compute capability.
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
        threads=0,
        vector_bits=(),
        **asdict(example.ceilings),
    )


def expected_ceilings(hardware: Hardware) -> Ceilings:
    """The ceilings of a device; a ceiling that was not measured is assumed.

    A GPU's are those of the nearest older architecture in the table. A CPU's follow from its cores and vectors. It has
    no tensor cores, so TF32 and float16 are as fast as float32.
    """
    if not hardware.capability:
        lanes = max(hardware.vector_bits, default=128) / 32
        float32 = hardware.threads * lanes * _CPU_TERAFLOPS_PER_LANE
        assumed = Ceilings(hardware.threads * _CPU_GBYTES_PER_CORE, float32, float32, float32)
    else:
        older = [arch for arch in _EXAMPLES if int(arch.removeprefix("sm_")) <= hardware.capability]
        assumed = _EXAMPLES[older[-1] if older else next(iter(_EXAMPLES))].ceilings
    measured = {name: value for name, value in asdict(hardware.ceilings).items() if value is not None}
    return replace(assumed, **measured)


#: Flags of CPUs that compute in a half type, as /proc/cpuinfo has them.
_HALF_FLAGS = {"bfloat16": {"avx512_bf16", "amx_bf16", "bf16"}, "float16": {"avx512_fp16", "amx_fp16", "asimdhp"}}


def lacks_instructions(dtype: str | None) -> str:
    """One line where this machine's CPU has no instructions for a half type; else empty."""
    info = _cpuinfo()
    flags = (info.get("flags") or info.get("Features") or "").split()
    if dtype not in _HALF_FLAGS or _HALF_FLAGS[dtype].intersection(flags):
        return ""
    return f"this CPU has no instructions for {dtype}: PyTorch and the kernels convert it to float32 and back"


def cpu() -> Hardware:
    """Limits of this machine's CPU, with the cores that this process may use."""
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


def gpu(device: str) -> Hardware:
    """Read the limits of a GPU of NVIDIA's (``cuda`` or ``cuda:N``), and time a copy and matmuls.

    This imports torch and opens a context: call it in a child process. Raises :class:`DeviceError` where the device
    does not exist.
    """
    import torch

    if not torch.cuda.is_available():
        raise DeviceError(f"{device}: torch sees no CUDA device here; use --device cpu")
    index = int(device.partition(":")[2] or torch.cuda.current_device())
    if index >= torch.cuda.device_count():
        raise DeviceError(f"{device}: there are only {torch.cuda.device_count()} CUDA devices here, counted from 0")
    properties = torch.cuda.get_device_properties(index)
    float32, tf32, float16 = _matmul_tflops(index, properties.name)
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
    """The rate of the fastest of several device copies; ``None`` where memory for them is lacking."""
    import torch

    with torch.cuda.device(index):
        try:
            source = torch.zeros(_COPY_BYTES, dtype=torch.uint8, device="cuda")
            target = torch.empty_like(source)
        except torch.OutOfMemoryError:
            return None
        return 2 * _COPY_BYTES / _fastest_ms(lambda: target.copy_(source)) / 1e6


def _matmul_tflops(index: int, name: str) -> tuple[float | None, float | None, float | None]:
    """Rates of the library's matmuls in float32, TF32 and float16: the known ones, or the fastest of several runs.

    The rate in TF32 is ``None`` for devices without tensor cores for it.
    """
    import torch

    if name in _MATMUL_TFLOPS:
        return _MATMUL_TFLOPS[name]
    flags, allowed = torch.backends.cuda.matmul, torch.backends.cuda.matmul.allow_tf32

    def rate(dtype: torch.dtype, allow_tf32: bool = False) -> float | None:
        flags.allow_tf32 = allow_tf32
        try:
            a, b = (torch.randn(_MATMUL_SIZE, _MATMUL_SIZE, dtype=dtype, device="cuda") for _ in "ab")
            return 2 * _MATMUL_SIZE**3 / _fastest_ms(lambda: torch.mm(a, b)) / 1e9
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
    """The first processor's entries in /proc/cpuinfo; empty without such a file."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_l2_bytes() -> int:
    """Bytes of the first core's level-2 cache; 0 where the system does not report it."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text(encoding="utf-8").strip()
    except OSError:
        return 0
    return int(text.removesuffix("K")) << 10
