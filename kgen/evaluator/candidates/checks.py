"""How an evaluator treats candidates. :class:`Checks` is for own ones; :mod:`kgen.evaluator.strict` for foreign ones.

The evaluator asks one such object at every place where the two differ.
"""

import random
import secrets
from math import inf
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from kgen.candidate import FEW_KERNELS, Candidate
from kgen.evaluator.correctness.validate import Failure, WorkerClient, raise_if_failed
from kgen.evaluator.timing.measure import Runner, interleave
from kgen.protocol import Phase, Status

_PROFILE_SECONDS = 10.0

#: The driver makes a process's queues one by one under a lock of the machine. With one instead of eight, CUDA contexts
#: start and end in half the time.
ONE_QUEUE: Mapping[str, str] = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


class Level(NamedTuple):
    """One way to confine a worker: options for its process, and words for what is missing where it does not start."""

    options: Mapping[str, Any] = {}
    missing: str = ""


class Operators(NamedTuple):
    """The library's operators that a forward calls, with their numbers, and the names of those of single elements."""

    calls: Mapping[str, int]
    elementwise: Sequence[str]


class Profile(NamedTuple):
    """A profile of a candidate: labels, and shares from 0 to 1 where they are known. ``own_share`` is that of its time
    in its own kernels. ``replaced`` is that of the problem's operators which it does not call. ``kernel_ms`` are
    milliseconds of the device's functions in one call."""

    labels: Sequence[str] = ()
    own_share: float | None = None
    replaced: float | None = None
    kernel_ms: Mapping[str, float] = {}


class Checks:
    """Own candidates: kgen rendered their text, so they may be wrong, but they do not cheat."""

    strict = False
    subject = "kgen.evaluator.candidates.worker:Subject"  #: the class of a worker's subject, ``module:name``
    levels: tuple[Level, ...] = (Level(),)  #: the best first
    modules: tuple[str, ...] = ()  #: loaded in the server for all workers, after the oracle has started
    #: Whether workers of a GPU start, run compilers and end beside timings.
    beside_timings = False
    ahead = True  #: whether workers may start before their candidate is known, and end after its evaluation
    holds_strides = True  #: whether outputs must have PyTorch's strides
    wrong_when_timed = Status.WRONG_VALUES  #: the status of wrong output in a timed call
    make_runner: Callable[..., Runner] = Runner

    def variables(self, candidate: Candidate | None) -> Mapping[str, str]:
        """The environment of a candidate's worker, or of one that starts before its candidate is known. A rendered file
        has one stream."""
        return ONE_QUEUE

    def options(self, scratch: Path) -> dict[str, Any]:
        """Options of a candidate's process, beside those of every worker."""
        return {}

    def settled(self, worker: WorkerClient) -> None:
        """Check a candidate's processes after loading and after validation. Raises :class:`Failure`."""
        worker.check_limits()

    def screened(self, runner: Runner, eager: Runner | None, generator: random.Random) -> list[str]:
        """Check a candidate's samples beside those of ``eager``. Returns labels; raises :class:`Failure`."""
        noise = runner.noise()
        return [noise] if noise else []

    def profiled(self, runner: Runner, candidate: Candidate, problem: Operators) -> Profile:
        """The profile of a candidate that was timed: the times of its kernels, where it has many of them."""
        if not runner.kind.accelerator or len(candidate.functions) <= FEW_KERNELS:
            return Profile()
        try:
            return Profile(kernel_ms=asked(runner, "kernels")["ms"])
        except Failure:  # a profiler that fails is not the candidate's fault
            return Profile()

    def baseline_screened(self, runner: Runner) -> None:
        """Called with each baseline after it was timed alone."""

    def finals(
        self,
        finalists: Sequence[Runner],
        baselines: Sequence[Runner],
        seconds: float,
        generator: random.Random,
        failed: Callable[[Runner, Failure], None],
        notice: Callable[[str], None],
        until: float = inf,
    ) -> list[Runner]:
        """Time finalists and baselines in turns, ``until`` then on the monotonic clock. Returns those that did not
        fail."""
        return interleave([*finalists, *baselines], seconds, generator, failed, until=until)

    def labels(self, candidate: Candidate) -> list[str]:
        """Labels from a candidate's text."""
        return []

    def compiles(self, candidate: Candidate) -> bool:
        """Whether a file may run compilers when it is executed."""
        return False


def asked(runner: Runner, what: str) -> Mapping[str, Any]:
    """The worker's answer to a question about its forward. Raises :class:`Failure`."""
    runner.worker.enter(Phase.TIME, _PROFILE_SECONDS)
    found = runner.worker.ask(what, key=secrets.randbits(48))
    raise_if_failed(found, Phase.TIME)
    return found
