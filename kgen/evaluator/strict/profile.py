"""The share of a subject's time in its own kernels, measured in its worker after it was timed.

PyTorch's profiler tells the times. On a GPU, kernels count as the candidate's own unless their name is the library's.
On the CPU, the candidate's own time is the part of a forward in which no operator of the library runs: its kernels and
Python.
"""

import os
import re
import time
from typing import Callable, Mapping

from torch.profiler import profile

from kgen.evaluator.runtime.device import Host

#: Names of the library's operators, of PyTorch's and NVIDIA's kernels, and of copies.
_LIBRARY = re.compile(
    r"^(aten|mkldnn|onednn|quantized|c10d)::|at::(native|cuda)|at_cuda_detail|pytorch_flash|fmha_cutlass|^cutlass__|"
    r"\bcublas|\bsoftmax_warp_(for|back)ward|^nvjet|^gemv|^gemmk1|\bcudnn|^cask|_xmma_|^(ampere|volta|turing|maxwell|hopper)_|\bmagma_|^Mem(cpy|set)"
)


def own_share(
    call: Callable[[], None], renew: Callable[[], None], wait: Callable[[], None], device: Host
) -> tuple[dict[str, int], list[str]]:
    """Nanoseconds in own kernels (``own_ns``) and in all (``all_ns``), and the names of own kernels on a device.
    ``renew`` changes the inputs before the call."""
    os.environ["KINETO_LOG_LEVEL"] = "99"  # else it writes into the candidate's log
    renew()
    wait()
    with profile(activities=device.profiled) as profiler:
        started = time.perf_counter_ns()
        call()
        wait()
        took = time.perf_counter_ns() - started
    events = [e for e in profiler.key_averages() if not e.is_user_annotation]
    if device.kernels_on is not None:
        ns = {e.key: int(1e3 * e.self_device_time_total) for e in events if e.device_type == device.kernels_on}
        own = [name for name in ns if not is_library(name)]
        return {"own_ns": sum(ns.values()) - library_ns(ns), "all_ns": sum(ns.values())}, own
    ns = {e.key: int(1e3 * e.self_cpu_time_total) for e in events}
    return {"own_ns": max(0, took - library_ns(ns)), "all_ns": took}, []


def library_ns(ns: Mapping[str, int]) -> int:
    """The nanoseconds of the library's kernels and operators among these, by name."""
    return sum(taken for name, taken in ns.items() if is_library(name))


def is_library(name: str) -> bool:
    """Whether this is the name of a kernel or an operator of the library."""
    return _LIBRARY.search(name) is not None
