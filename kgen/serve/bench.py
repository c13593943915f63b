"""The evaluators of one device: a few stay open, so that the baselines of a problem are timed once."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Collection, Iterator, Mapping

from kgen import paths
from kgen.errors import EvaluatorError, KgenError, ProblemError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.runtime.process import Server
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy
from kgen.serve.asked import Asked

_NICE = 5  #: niceness of processes that judge: clients do not wait for them
_REMEMBERED = 1000  #: problems that could not be judged, whose reason is kept

Make = Callable[[Asked, str], Evaluator]


def make_evaluator(asked: Asked, device: str, notice: Callable[[str], None]) -> Evaluator:
    """An evaluator for foreign candidates, not started: its processes see nothing of kgen's own folder."""
    return Evaluator(
        asked.problem,
        device=device,
        accuracy=asked.accuracy,
        home=paths.home(),
        baselines=asked.baselines,
        notice=notice,
        cache=asked.cache,
        profile=True,
        foreign_problem=asked.foreign,
        hidden=(paths.home(),),
        nice=_NICE,
    )


def fork_servers(device: str, count: int) -> list[Server]:
    """Fork servers like those of :func:`make_evaluator`, not started."""
    asked = Asked(Problem("", "", ""), False, "", "", Accuracy.PYTORCH, ("eager",), 0.0, "cold")
    return [make_evaluator(asked, device, lambda text: None).server for _ in range(count)]


@dataclass
class _Open:
    """An evaluator that is starting, or open; ``users`` evaluations have it."""

    evaluator: Evaluator
    ready: bool = False
    users: int = 0
    used: float = 0.0  # on the monotonic clock
    failed: bool = False  # it ends once nobody has it


class Bench:
    """At most ``most`` evaluators of one device are open at once. Thread-safe."""

    def __init__(self, device: str, make: Make, most: int) -> None:
        self.device = device
        self.most = most
        self.wanted: Collection[str] = ()  #: identities of evaluators for which work waits: they end last
        self._make = make
        self._changed = threading.Condition()
        self._open: dict[str, _Open] = {}
        self._failed: list[_Open] = []  # failed evaluators that are still in use
        self._refused: dict[str, ProblemError] = {}  # by bench: why the problem cannot be judged
        self._closed = False

    def opened(self) -> Mapping[str, bool]:
        """The identities of the evaluators that are open, with whether each has started."""
        with self._changed:
            return {key: one.ready for key, one in self._open.items()}

    @contextmanager
    def take(self, asked: Asked) -> Iterator[Evaluator]:
        """The evaluator for a request, which starts unless it is open. The evaluator that was unused for longest makes
        room.

        Raises what entering an evaluator raises, and :class:`EvaluatorError` once the bench is closed. Where the block
        raises :class:`EvaluatorError`, or an error that is not kgen's own, the next request gets a new evaluator.
        """
        one = self._acquire(asked)
        try:
            yield one.evaluator
        except Exception as error:
            if isinstance(error, EvaluatorError) or not isinstance(error, KgenError):
                self._fail(asked, one)
            raise
        finally:
            self._release(one)

    def close(self) -> None:
        """End all evaluators. Evaluations that run get :class:`EvaluatorError`."""
        with self._changed:
            self._closed = True
            every = [*self._open.values(), *self._failed]
            self._changed.notify_all()
        for one in every:
            one.evaluator.close()

    def _fail(self, asked: Asked, one: _Open) -> None:
        with self._changed:
            one.failed = True
            if self._open.get(asked.bench) is one:
                del self._open[asked.bench]
                self._failed.append(one)

    def _release(self, one: _Open) -> None:
        with self._changed:
            one.users -= 1
            one.used = time.monotonic()
            ends = one.failed and not one.users
            self._failed = [other for other in self._failed if not (ends and other is one)]
            self._changed.notify_all()
        if ends:
            one.evaluator.close()

    def _acquire(self, asked: Asked) -> _Open:
        """The evaluator, which is started without holding the lock: others look at the bench meanwhile."""
        key, unused = asked.bench, None
        with self._changed:
            while True:
                if self._closed:
                    raise EvaluatorError("the service ends")
                if reason := self._refused.get(key):
                    raise ProblemError(str(reason))
                one = self._open.get(key)
                if one is not None and one.ready:
                    one.users += 1
                    return one
                if one is None and (len(self._open) < self.most or (unused := self._unused()) is not None):
                    one = self._open[key] = _Open(self._make(asked, self.device), users=1)
                    break
                self._changed.wait()
        if unused is not None:
            unused.evaluator.close()
        return self._start(asked, one)

    def _unused(self) -> _Open | None:
        """Remove the evaluator that was unused for longest, and return it; ``None`` where all are in use."""
        unused = [key for key, one in self._open.items() if one.ready and not one.users]
        least = min(unused, key=lambda key: (key in self.wanted, self._open[key].used), default=None)
        return None if least is None else self._open.pop(least)

    def _start(self, asked: Asked, one: _Open) -> _Open:
        try:
            one.evaluator.start()
        except BaseException as error:
            with self._changed:
                if self._open.get(asked.bench) is one:
                    del self._open[asked.bench]
                if isinstance(error, ProblemError) and len(self._refused) < _REMEMBERED:
                    self._refused[asked.bench] = error
                self._changed.notify_all()
            raise
        with self._changed:
            one.ready = True
            self._changed.notify_all()
        return one
