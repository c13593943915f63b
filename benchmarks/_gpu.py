"""Times one call on a GPU without its launch latency."""

from __future__ import annotations

from typing import Callable

import torch


def milliseconds(call: Callable[[], object], sleep_cycles: int) -> float:
    """The device time of ``call`` in milliseconds.

    The call is queued behind ``sleep_cycles`` of the device's clock. They must last longer than its launch.
    """
    torch.cuda._sleep(sleep_cycles)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
