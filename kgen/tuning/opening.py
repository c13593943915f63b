"""The devices of a sweep, and its arguments. It imports neither the store nor torch, so that processes start at once.

request -> open_devices -> an evaluator for each device, whose processes start
ahead: the same, before the imports of a sweep, which take seconds
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Iterator

from kgen import paths
from kgen.candidate import Trust
from kgen.devices.machine import find_own_tools, keep_bytecode, resolve_devices
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DevicePool
from kgen.problems.problem import Problem
from kgen.protocol import BASELINES, Accuracy
from kgen.tuning import events, time_budget


@dataclass(frozen=True)
class SweepRequest:
    """The arguments of a sweep.

    ``budget`` limits the candidates and ``seconds`` the whole sweep, finals included. Parts that do not end by
    then are cut, and a notice says so. ``device`` may name several equal GPUs (``cuda:0,cuda:1``, ``cuda:all``).
    ``strategy`` is one of :data:`kgen.tuning.search.STRATEGIES`; the default is :func:`kgen.tuning.search.chosen`.
    ``fresh`` starts a new sweep without stored results. ``kind`` is what the store calls it. ``trust`` says how
    strictly its candidates are judged, and ``template`` is the path and a hash of their template, where a user wrote
    it. Without ``weight_copies``, no candidate keeps a weight in another form beside it.
    """

    problem: Problem
    device: str | None = None
    accuracy: Accuracy = Accuracy.PYTORCH
    budget: int | None = None
    seconds: float | None = None
    strategy: str | None = None
    seed: int = 0
    jobs: int | None = None
    baselines: tuple[str, ...] = BASELINES
    fresh: bool = False
    db: str | None = None
    kind: str = "sweep"
    trust: Trust = Trust.OWN
    template: tuple[str, str] | None = None
    weight_copies: bool = True


def open_devices(request: SweepRequest, on_event: events.Listener, started: float) -> DevicePool:
    """An evaluator for each device of the request; its notices and steps become events.

    ``started`` is the start of the sweep, on the monotonic clock.
    """
    limits = time_budget.limits(request.seconds, started)
    evaluators = [
        Evaluator(
            request.problem,
            device=device,
            accuracy=request.accuracy,
            home=paths.home(),
            baselines=request.baselines,
            notice=lambda text: on_event(events.Notice(text)),
            step=lambda text: on_event(events.Step(text)),
            limits=limits,
            trust=request.trust,
            compiles_later=True,
        )
        for device in resolve_devices(request.device)
    ]
    return DevicePool(evaluators, server=evaluators[0].server)


#: Makes the devices of a sweep; :func:`open_devices`.
OpenDevices = Callable[[SweepRequest, events.Listener, float], DevicePool]


@contextmanager
def ahead(request: SweepRequest, on_event: events.Listener) -> Iterator[OpenDevices]:
    """Start the processes of a sweep's devices now. Yields the function that gives these devices to the sweep."""
    find_own_tools()
    keep_bytecode(paths.bytecode())
    with open_devices(request, on_event, time.monotonic()) as devices:
        yield lambda *_: devices
