"""One call on a GPU, timed without what launching it takes."""

from __future__ import annotations

from typing import Callable

import torch


def milliseconds(call: Callable[[], object], sleep_cycles: int) -> float:
    """What ``call`` takes on the device. It is queued behind ``sleep_cycles`` of the device's clock, which have to last
    longer than launching it."""
    torch.cuda._sleep(sleep_cycles)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
