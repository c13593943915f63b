"""The health of a problem: whether its check tells right from wrong. It is asked beside a sweep, and stored."""

from __future__ import annotations

import math
import time
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Callable

from kgen.evaluator.pool import DevicePool
from kgen.problems.problem import Problem
from kgen.protocol import Health
from kgen.store import Database


@dataclass
class HealthCheck:
    """Asks the first device for the health of ``problem`` once, and stores the answer."""

    problem: Problem
    devices: DevicePool
    database: Database
    notice: Callable[[str], None]
    asked: bool = False
    _health: Future[Health] | None = None

    def ask(self) -> None:
        """Begin, if it has not begun."""
        if not self.asked:
            self.asked = True
            self._health = self.devices.beside(lambda device: device.health())

    def keep(self, until: float = math.inf, *, wait: bool = False, may_cut: bool = False) -> None:
        """Store the answer once it is there. ``wait`` for it until a time on the monotonic clock, if it ``may_cut``."""
        if self._health is None or not (wait or self._health.done()):
            return
        if not self._health.done() and (left := until - time.monotonic()) < math.inf:
            futures.wait([self._health], max(0.0, left))
        if wait and not self._health.done() and may_cut:
            self.notice("the time is up: it is not known whether this problem tells right from wrong")
            return
        health, self._health = self._health.result(), None
        self.database.add_problem(self.problem, health)
        if not health.ok:
            self.notice(f"this problem cannot tell right from wrong: {', '.join(health.passed_by)} would be accepted")
