"""Where a subject's time and memory go: measured in its worker after it was timed, for labels that decide nothing.

Time is that of PyTorch's own profiler. On a GPU it tells each kernel's time and the operator that launched it: kernels
that no operator of the library launched, and that are not named as the library's are, are the candidate's own. On the
CPU it tells the time of the library's operators, in whatever thread; what remains of a forward is the candidate's own
kernels, and Python.
"""

from __future__ import annotations

import gc
import os
import re
import time
from dataclasses import dataclass
from types import FrameType, FunctionType, ModuleType
from typing import Any, Callable, Iterable, NamedTuple, Sequence

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile as _profile

SECONDS = 0.15  #: what all of it may take, about; what takes longer is left out
_FORWARDS = 3  #: that are profiled on the CPU; kernels on a GPU take the same time each time
_PAIRS = 4  #: of calls with fresh and with unchanged contents
_RELOADS = 2
_LIBRARY_OPERATORS = ("aten::", "mkldnn::", "onednn::", "quantized::", "c10d::")
#: Names of kernels of PyTorch's and NVIDIA's libraries, and of copies, whoever launched them.
_LIBRARY_KERNELS = re.compile(
    r"at::native|at_cuda_detail|\bcublas|^nvjet|^gemv|^gemmk1|\bcudnn|^cask|_xmma_|^(ampere|volta|turing|maxwell|hopper)_|"
    r"\bmagma_|^Mem(cpy|set)")

_now = time.perf_counter_ns
_referents = gc.get_referents


@dataclass(frozen=True)
class Calls:
    """How a worker's subject is called; each call makes one forward in each mode."""

    call: Callable[[], None]
    fresh: Callable[[], None]  #: put other contents into the inputs
    reload: Callable[[], None]  #: load the weights again
    wait: Callable[[], None]  #: until the device is idle
    drop: Callable[[], None]  #: let go of what calls returned
    known: Callable[[], Iterable[torch.Tensor]]  #: weights, inputs and outputs
    model: torch.nn.Module
    namespace: dict[str, Any]  #: of the subject's file


class Event(NamedTuple):
    """One event of the profiler: an operator or, on a device, a kernel and the number of its operator."""

    name: str
    on_device: bool
    number: int
    start_ns: int
    ns: int


def take(calls: Calls, device: str) -> dict[str, int]:
    """All figures, in nanoseconds and bytes: those that there was time for.

    ``own_ns`` of ``all_ns`` are spent in own kernels; ``kept_bytes`` are kept between calls beside the ``known_bytes``
    of weights, inputs and outputs, ``more_bytes`` more after every call; ``fresh_ns`` and ``same_ns`` are the times of
    calls with fresh and with unchanged contents, ``prepare_ns`` what the first call after new weights takes more.
    """
    cuda = device != "cpu"
    found = share(calls, cuda) | kept(calls)
    took = _timed(calls)
    left = SECONDS * 1e9 / max(took, 1)
    if left >= 2:
        found |= repeated(calls, max(1, min(_PAIRS, int(left / 4))))
    if left >= 4:
        found |= prepared(calls, found["fresh_ns"])
    return found


def share(calls: Calls, cuda: bool) -> dict[str, int]:
    """The time of the subject's own kernels, and of everything."""
    os.environ["KINETO_LOG_LEVEL"] = "99"  # else it writes lines of its own into the candidate's log
    own = total = 0
    for _ in range(1 if cuda else _FORWARDS):
        calls.fresh()
        calls.wait()
        with _profile(use_device="cuda" if cuda else None, use_kineto=True) as profiler:
            took = _timed(calls)
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
    """On a GPU: the time of kernels that are not the library's, and of all."""
    operators = {e.number: e.name for e in events if not e.on_device}
    kernels = [e for e in events if e.on_device]
    own = [
        e for e in kernels
        if not operators.get(e.number, "").startswith(_LIBRARY_OPERATORS) and not _LIBRARY_KERNELS.search(e.name)
    ]
    return sum(e.ns for e in own), sum(e.ns for e in kernels)


def operators_share(events: Sequence[Event], took_ns: int) -> tuple[int, int]:
    """On the CPU: the part of ``took_ns`` in which no operator of the library ran, in any thread, and all of it."""
    library = sorted((e.start_ns, e.start_ns + e.ns) for e in events if e.name.startswith(_LIBRARY_OPERATORS))
    inside = end = 0
    for start, stop in library:
        inside += max(0, stop - max(start, end))
        end = max(end, stop)
    return max(0, took_ns - inside), took_ns


def kept(calls: Calls) -> dict[str, int]:
    """The bytes of tensors that live on when a call's output is gone; what only native code holds is not seen."""
    sizes = []
    for _ in range(2):
        calls.fresh()
        calls.call()
        calls.wait()
        everything = sum(_storages(calls.known()).values())
        calls.drop()
        known = _storages(calls.known())
        alive = _storages(_reached(calls.model, calls.namespace))
        sizes.append(sum(size for start, size in alive.items() if start not in known))
    return {"kept_bytes": sizes[1], "more_bytes": max(0, sizes[1] - sizes[0]), "known_bytes": everything}


def repeated(calls: Calls, pairs: int) -> dict[str, int]:
    """Calls with fresh contents, and with the very same inputs again: the shortest of each."""
    fresh, same = [], []
    for _ in range(pairs):
        calls.fresh()
        fresh.append(_timed(calls))
        same.append(_timed(calls))
    return {"fresh_ns": min(fresh), "same_ns": min(same)}


def prepared(calls: Calls, fresh_ns: int) -> dict[str, int]:
    """What the first call after new weights takes more than ``fresh_ns``."""
    first = []
    for _ in range(_RELOADS):
        calls.reload()
        calls.fresh()
        first.append(_timed(calls))
    return {"prepare_ns": max(0, min(first) - fresh_ns)}


def _timed(calls: Calls) -> int:
    calls.wait()
    started = _now()
    calls.call()
    calls.wait()
    return _now() - started


def _reached(model: torch.nn.Module, namespace: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that a model and the file that it comes from hold, by whatever way that leads through nothing of
    another file."""
    found: list[torch.Tensor] = []
    waiting = [model, namespace]
    seen = set(map(id, waiting))
    while waiting:
        thing = waiting.pop()
        if issubclass(type(thing), torch.Tensor):
            found.append(thing)
        for other in _referents(thing):
            if id(other) not in seen and not _is_of_another_file(other, namespace):
                seen.add(id(other))
                waiting.append(other)
    return found


def _is_of_another_file(thing: Any, namespace: dict[str, Any]) -> bool:
    if type(thing) is FunctionType:
        return thing.__globals__ is not namespace
    if issubclass(type(thing), type):
        return type.__getattribute__(thing, "__dict__").get("__module__") != namespace.get("__name__")
    return issubclass(type(thing), (ModuleType, FrameType))


def _storages(found: Iterable[Any]) -> dict[int, int]:
    """The memory that tensors lie in: bytes by address."""
    sizes = {}
    for x in found:
        if x.layout == torch.strided and not x.is_meta:
            storage = x.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sizes
