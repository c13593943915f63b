"""Devices in a worker: all that differs by the kind of device when a subject is run, watched and timed.

:class:`Host` is the machine's own cores, which compute while torch waits. A kind's record names its class. Functions of
torch are bound to names here, before a candidate is loaded.
"""

import importlib
import math
import time
from typing import Any, Callable, Sequence

import torch
from torch._utils import CallbackRegistry
from torch.autograd import DeviceType
from torch.cuda import _gpu_trace
from torch.profiler import ProfilerActivity

from kgen.devices.kinds import kind_of, torch_device
from kgen.evaluator.runtime import driver, launch_graph, sandbox
from kgen.evaluator.runtime.fenced_clock import FencedClock

PERTURB, _PERTURB_BYTE = -6, 0x80  # of mallopt: fill what is allocated with the byte's complement; 0 turns that off
_POISON_BLOCKS = 3  # of the output's size
_LARGE_BYTES = 1 << 30  # of an output; of a larger one, one block is poisoned
_GHZ = 2.0  # upper bound of the clock that torch.cuda._sleep counts, for turning nanoseconds into cycles

_now = time.perf_counter_ns
_full = torch.full
_empty_cache = torch.cuda.empty_cache
_allocated, _most_allocated, _forget_most = (
    torch.cuda.memory_allocated,
    torch.cuda.max_memory_allocated,
    torch.cuda.reset_peak_memory_stats,
)
_capturing = torch.cuda.is_current_stream_capturing
# A build for the CPU has none of these two.
_sleep, _stream = (getattr(torch._C, name, None) for name in ("_cuda_sleep", "_cuda_getCurrentRawStream"))
#: Listeners of torch's GPU trace, called for each event, allocation and wait.
_GPU_LISTENERS = {name: found for name, found in vars(_gpu_trace).items() if isinstance(found, CallbackRegistry)}


class HostClock:
    """Times a call of cores that have done all of it when it returns. It has the methods of :class:`FencedClock`, and
    nothing that a candidate could set."""

    __slots__ = ()

    def wait(self) -> None:
        pass

    def timed(
        self, call: Callable[..., Any], given: Sequence[Any], *, fenced: bool = True
    ) -> tuple[Any, dict[str, int | bool]]:
        started = _now()
        found = call(*given)
        return found, {"ns": _now() - started}

    def reset_persisting_cache(self) -> None:
        pass

    def forget_window(self) -> None:
        pass


class Host:
    """The machine's own cores, as torch's device ``name``; the base of other kinds."""

    #: Whether work goes into a stream. The next contents can then wait there for the work in front of them.
    queues = False
    profiled: Sequence[ProfilerActivity] = (ProfilerActivity.CPU,)
    kernels_on: DeviceType | None = None  #: where the profiler sees kernels; ``None`` where a call's own time has them

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Any = HostClock()

    def start(self, *, fenced: bool) -> None:
        """Start the device, before limits are set. A ``fenced`` clock sees work beside the timed stream."""

    def limit_memory(self, share: float) -> None:
        """Limit the process to this share of the device's memory."""

    def address_space(self, most: int) -> int | None:
        """The limit in bytes of a process that may have ``most`` of memory; ``None`` where the driver maps more."""
        return most

    def confined(self) -> list[str]:
        """Called once limits are set. Returns what the device lacks for judging foreign candidates."""
        return []

    def generators(self) -> list[torch.Generator]:
        """The generators of random numbers, of the host and of the device."""
        return [torch.default_generator]

    def fill_allocations(self, filled: bool) -> None:
        """Have new memory filled with a pattern, or no longer: an element that nobody writes shows."""
        sandbox.tune_allocations(PERTURB, _PERTURB_BYTE if filled else 0)

    def poison(self, sizes: Sequence[Sequence[int]]) -> None:
        """Fill free memory, in which outputs of these sizes come to lie, where new memory is not filled."""

    def begin_peak(self) -> int:
        """Count from now on the most bytes that are allocated. Returns those that are; 0 where nothing tells."""
        return 0

    def peak(self) -> int:
        """The most bytes since :meth:`begin_peak`."""
        return 0

    def free(self) -> None:
        """Give back memory that torch keeps for later."""

    def queue(self, ns: int) -> None:
        """Queue work of a number of nanoseconds, which hides the launches behind it."""

    def stream(self, x: torch.Tensor) -> list[int]:
        """The argument by which a launcher gets the current stream of the device of ``x``; none without streams."""
        return []

    def capturing(self) -> bool:
        """Whether calls are captured now, and not run."""
        return False

    def captured(self, call: Callable[[], Any]) -> Any:
        """The call as a graph that runs again without some of its kernels. Raises :class:`driver.DriverError` where
        there are no graphs."""
        raise driver.DriverError(f"{self.name} has no graphs")

    def switches(self) -> dict[str, Callable[[], Any]]:
        """Global state of the device that a candidate must not change: names, with functions that read it."""
        return {}


class Cuda(Host):
    """A GPU of NVIDIA's. Its clock is there once it is started."""

    queues = True
    profiled = (ProfilerActivity.CPU, ProfilerActivity.CUDA)
    kernels_on = DeviceType.CUDA

    def start(self, *, fenced: bool) -> None:
        """CUDA starts and cuBLAS is loaded before limits are set."""
        torch.cuda.set_device(self.name)
        self._try()
        self.clock = (FencedClock if fenced else driver.Clock)(torch.cuda.current_device())

    def _try(self) -> None:
        torch.ones(8, 8, device=self.name) @ torch.ones(8, 8, device=self.name)
        torch.cuda.synchronize()

    def limit_memory(self, share: float) -> None:
        torch.cuda.set_per_process_memory_fraction(share)

    def address_space(self, most: int) -> int | None:
        return None

    def confined(self) -> list[str]:
        self._try()
        return [] if self.clock.can_fence else ["holding streams back until a call begins (CUDA driver 12.5)"]

    def generators(self) -> list[torch.Generator]:
        return [torch.default_generator, *torch.cuda.default_generators]

    def fill_allocations(self, filled: bool) -> None:
        pass

    def poison(self, sizes: Sequence[Sequence[int]]) -> None:
        count = _POISON_BLOCKS if 4 * sum(map(math.prod, sizes)) < _LARGE_BYTES else 1
        blocks = [_full(size, float("nan"), device=self.name) for size in sizes for _ in range(count)]
        self.clock.wait()
        del blocks

    def begin_peak(self) -> int:
        _forget_most()
        return _allocated()

    def peak(self) -> int:
        return _most_allocated()

    def free(self) -> None:
        _empty_cache()

    def queue(self, ns: int) -> None:
        if ns:
            _sleep(int(ns * _GHZ))

    def stream(self, x: torch.Tensor) -> list[int]:
        return [_stream(x.get_device())]

    def capturing(self) -> bool:
        return _capturing()

    def captured(self, call: Callable[[], Any]) -> launch_graph.Graph:
        self.clock.wait()
        return launch_graph.Graph(call, self.clock.wait)

    def switches(self) -> dict[str, Callable[[], Any]]:
        index, c = torch.device(self.name).index or 0, torch._C
        return {
            "the current device": torch.cuda.current_device,
            "the current stream": lambda: c._cuda_getCurrentStream(index),
            "the limit of device memory": lambda: torch.cuda.get_per_process_memory_fraction(index),
            "what listens to the device": lambda: [
                vars(_gpu_trace).get(name) is found
                and type(found.callback_list) is list
                and not len(found.callback_list)
                for name, found in _GPU_LISTENERS.items()
            ],
        }


def device_of(name: str) -> Host:
    """The device of that name in this process, of the class that the record of its kind names."""
    module, _, kind = kind_of(name).worker.partition(":")
    found: Host = getattr(importlib.import_module(module), kind)(torch_device(name))
    return found
