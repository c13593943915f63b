"""Times calls on a GPU without their launch latency."""

from __future__ import annotations

from statistics import median
from typing import Callable

import torch

ROUNDS = 15  # samples of each subject
_SLEEP_CYCLES = 1_000_000  # cycles; 0.5 ms, longer than a launch


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


def interleaved(subjects: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each subject in milliseconds, with a cold cache. Samples of all subjects take turns."""
    flush = torch.ones(64 << 20, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    for call in subjects.values():
        call()
    for number in range(ROUNDS):
        for name, call in list(subjects.items())[:: 1 if number % 2 else -1]:
            flush.add_(1.0)
            samples[name].append(milliseconds(call, _SLEEP_CYCLES))
    return {name: median(values) for name, values in samples.items()}
