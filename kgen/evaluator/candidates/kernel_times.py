"""The time of each kernel of the device inside a forward, as PyTorch's profiler tells it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable

from torch.profiler import profile

from kgen.evaluator.runtime.device import Host

_CALLS = 3


def kernel_ms(call: Callable[[], None], wait: Callable[[], None], device: Host) -> dict[str, float]:
    """Milliseconds of the kernels of one call by their names in C++, the sum over equal names; empty on a CPU.

    A kernel's time begins where the one before it ends: one that is launched early waits for it.
    """
    if device.kernels_on is None:
        return {}
    os.environ["KINETO_LOG_LEVEL"] = "99"  # else it writes into the candidate's log
    call()
    wait()
    with profile(activities=device.profiled) as profiler:
        for _ in range(_CALLS):
            call()
        wait()
    events = [e for e in profiler.events() if e.device_type == device.kernels_on and not e.is_user_annotation]
    found: defaultdict[str, float] = defaultdict(float)
    before = 0.0
    for end, start, name in sorted((e.time_range.end, e.time_range.start, e.name) for e in events):
        found[name] += max(0.0, end - max(start, before)) / 1e3 / _CALLS
        before = max(before, end)
    return dict(found)
