"""The share of a subject's time in its own kernels, measured in its worker after it was timed.

PyTorch's profiler tells the times. On a GPU, kernels count as the candidate's own unless an operator of the library
launched them or their name is the library's. On the CPU, the candidate's own time is the part of a forward in which no
operator of the library runs: its kernels and Python.
"""

from __future__ import annotations

import os
import re
import time
from typing import Callable, NamedTuple, Sequence

from torch.autograd import DeviceType
from torch.autograd.profiler import profile as _profile

_FORWARDS = 3  #: profiled on the CPU; kernels on a GPU take the same time each time
_LIBRARY_OPERATORS = ("aten::", "mkldnn::", "onednn::", "quantized::", "c10d::")
#: Names of PyTorch's and NVIDIA's kernels and of copies.
_LIBRARY_KERNELS = re.compile(
    r"at::native|at_cuda_detail|\bcublas|^nvjet|^gemv|^gemmk1|\bcudnn|^cask|_xmma_|^(ampere|volta|turing|maxwell|hopper)_|"
    r"\bmagma_|^Mem(cpy|set)")


class Event(NamedTuple):
    """An event of the profiler: an operator, or a kernel with the number of its operator."""

    name: str
    on_device: bool
    number: int
    start_ns: int
    ns: int


def own_share(
    call: Callable[[], None], renew: Callable[[], None], wait: Callable[[], None], cuda: bool
) -> dict[str, int]:
    """Nanoseconds in own kernels (``own_ns``) and in all (``all_ns``). ``renew`` changes the inputs between calls."""
    os.environ["KINETO_LOG_LEVEL"] = "99"  # else it writes into the candidate's log
    own = total = 0
    for _ in range(1 if cuda else _FORWARDS):
        renew()
        wait()
        with _profile(use_device="cuda" if cuda else None, use_kineto=True) as profiler:
            started = time.perf_counter_ns()
            call()
            wait()
            took = time.perf_counter_ns() - started
        events = [
            Event(e.name(), e.device_type() == DeviceType.CUDA, e.linked_correlation_id() or e.correlation_id(),
                  e.start_ns(), e.duration_ns())
            for e in profiler.kineto_results.events()
            if not e.is_user_annotation()
        ]
        mine, every = kernels_share(events) if cuda else operators_share(events, took)
        own, total = own + mine, total + every
    return {"own_ns": own, "all_ns": total}


def kernels_share(events: Sequence[Event]) -> tuple[int, int]:
    """On a GPU: nanoseconds of own kernels, and of all."""
    operators = {e.number: e.name for e in events if not e.on_device}
    kernels = [e for e in events if e.on_device]
    own = [
        e for e in kernels
        if not operators.get(e.number, "").startswith(_LIBRARY_OPERATORS) and not _LIBRARY_KERNELS.search(e.name)
    ]
    return sum(e.ns for e in own), sum(e.ns for e in kernels)


def operators_share(events: Sequence[Event], took_ns: int) -> tuple[int, int]:
    """On the CPU: the part of ``took_ns`` in which no operator of the library ran in any thread, and all of it."""
    library = sorted((e.start_ns, e.start_ns + e.ns) for e in events if e.name.startswith(_LIBRARY_OPERATORS))
    inside = end = 0
    for start, stop in library:
        inside += max(0, stop - max(start, end))
        end = max(end, stop)
    return max(0, took_ns - inside), took_ns
