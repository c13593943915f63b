"""Timing, the parent's part: which calls are made in which order, what brackets them, and what cannot be believed.

A *burst* is a few calls of one subject, one after the other. Every call gets fresh contents in the same buffers, named
by a key that arrives with the call; the parent's own clock brackets each call; after some calls, which nobody in the
worker can foresee, the output is fetched and checked.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Callable, Sequence

from kgen.evaluator.protocol import Depth, Phase, Status, Timing
from kgen.evaluator.validate import Failure, WorkerClient, raise_if_failed
from kgen.statistics import ratio_interval

SCREEN_BURSTS = 5
FINAL_BURSTS = 20
BURST_SECONDS = 0.05
MAX_CALLS = 20
MIN_CALLS = 2
SYNC_SHARE = 1 / 3  #: of calls on a GPU, bracketed by synchronisations instead of events
NARROW = 0.005  #: relative width of the interval of a ratio that is narrow enough
HIDDEN_SHARE, HIDDEN_MS = 0.5, 0.3  #: time outside the samples beyond the baseline's own that raises suspicion
#: Nothing moves its inputs and outputs this much faster than a device copy. Writes that end in the cache are fast, and
#: the last cache of a server's CPU is never cold.
COPY_MARGIN = {"cpu": 10.0, "cuda": 4.0}


@dataclass
class Runner:
    """A subject that is ready to be timed, and what its calls took."""

    name: str
    worker: WorkerClient
    cuda: bool
    first_ms: float
    steady_ms: float
    check: Callable[[WorkerClient, int], None] | None = None  # fetch and judge the last output, made with this key
    check_keys: Sequence[int] = ()
    bursts: list[tuple[float, ...]] = field(default_factory=list)
    overheads: list[float] = field(default_factory=list)
    synced: list[float] = field(default_factory=list)

    @property
    def prepare_ms(self) -> float:
        """What the first call after new weights takes more than a later one."""
        return max(0.0, self.first_ms - self.steady_ms)

    def call(self, key: int, how: str, *, restore: bool = False) -> float:
        """One call in milliseconds. Raises :class:`Failure` when it fails, or claims more than the clock allows."""
        started = time.perf_counter_ns()
        reply = self.worker.ask("call", key=key, how=how, restore=restore)
        took = time.perf_counter_ns() - started
        raise_if_failed(reply, Phase.TIME)
        claimed = reply.get("ns")
        if not isinstance(claimed, int) or not 0 < claimed <= took:
            raise Failure(Status.SUSPICIOUS, f"it claims {claimed!r:.30} ns for a call that took {took} ns", Phase.TIME)
        self.overheads.append((took - claimed) / 1e6)
        return claimed / 1e6

    def burst(self, calls: int, generator: random.Random) -> None:
        """Make a burst of ``calls`` samples; calls bracketed by synchronisations are made beside them."""
        samples: list[float] = []
        while len(samples) < calls:
            key = generator.getrandbits(32)
            if self.cuda and generator.random() < SYNC_SHARE:
                self.synced.append(self.call(key, "sync"))
            else:
                samples.append(self.call(key, "event"))
        self.bursts.append(tuple(samples))

    def check_output(self, generator: random.Random) -> None:
        """Make a call whose output is fetched and judged. Its time is no sample: running statistics were restored."""
        if self.check is None:
            return
        key = generator.choice(list(self.check_keys))
        self.call(key, "event", restore=True)
        self.check(self.worker, key)

    def timing(self, depth: Depth, session: str) -> Timing:
        return Timing(self.name, depth, session, tuple(self.bursts), self.prepare_ms)


def calls_per_burst(steady_ms: float) -> int:
    """As many calls as fill a burst's time."""
    return max(MIN_CALLS, min(MAX_CALLS, round(BURST_SECONDS * 1000 / max(steady_ms, 1e-3))))


def least_ms(moved_bytes: int, gbytes_per_second: float, device_type: str) -> float:
    """What moving inputs and outputs once takes at least, by the rate of a device copy and a margin."""
    return moved_bytes / (gbytes_per_second * COPY_MARGIN[device_type]) / 1e6


def screen(runner: Runner, generator: random.Random, bursts: int = SCREEN_BURSTS) -> None:
    """Time a subject alone and briefly."""
    calls = calls_per_burst(runner.steady_ms)
    checked = generator.randrange(bursts)
    for number in range(bursts):
        runner.burst(calls, generator)
        if number == checked:
            runner.check_output(generator)


def interleave(
    runners: Sequence[Runner], seconds: float, generator: random.Random, failed: Callable[[Runner, Failure], None]
) -> list[Runner]:
    """Time ``runners`` in turns A B C, C B A, ... for at least :data:`FINAL_BURSTS` rounds and about ``seconds``.

    Ends early when every ratio to the fastest is known narrowly. A runner that fails is reported to ``failed`` and
    left out; those that remain are returned.
    """
    started = time.monotonic()
    alive = list(runners)
    wall = sum(r.steady_ms + median(r.overheads or [0.0]) for r in alive) / 1000
    calls = max(1, min(MAX_CALLS, int(seconds / (FINAL_BURSTS * max(wall, 1e-6)))))
    for runner in alive:
        runner.bursts, runner.overheads, runner.synced = [], [], []
    rounds = 0
    while alive and (rounds < FINAL_BURSTS or (time.monotonic() - started < seconds and not _narrow(alive))):
        for runner in (alive if rounds % 2 == 0 else alive[::-1]).copy():
            try:
                runner.burst(calls, generator)
                if generator.random() < 1 / SCREEN_BURSTS:
                    runner.check_output(generator)
            except Failure as failure:
                alive.remove(runner)
                failed(runner, failure)
        rounds += 1
    return alive


def _narrow(runners: Sequence[Runner]) -> bool:
    timings = [runner.timing(Depth.FINAL, "") for runner in runners]
    fastest = min(timings, key=lambda timing: median(map(median, timing.bursts)))
    return all(ratio_interval(t, fastest, resamples=200).width < NARROW for t in timings if t is not fastest)


def doubts(
    runner: Runner, *, baseline_overhead: float | None, baseline_sync: float | None, floor_ms: float
) -> str:
    """Why ``runner``'s samples cannot be believed, in one line; empty where they can.

    ``baseline_overhead`` is the milliseconds that a call of the eager baseline takes outside its sample,
    ``baseline_sync`` what a synchronised call of it takes more than its sample; ``floor_ms`` is the time that moving
    the inputs and outputs once takes at least.
    """
    middle = median(sample for burst in runner.bursts for sample in burst)
    slack = HIDDEN_MS + HIDDEN_SHARE * middle
    if middle < floor_ms:
        return f"{middle:.4g} ms is less than reading the inputs and writing the outputs once takes ({floor_ms:.4g} ms)"
    outside = sorted(runner.overheads)[len(runner.overheads) // 4]  # a busy machine slows many calls, not all
    if baseline_overhead is not None and outside > 2 * baseline_overhead + slack:
        return f"a call takes {outside:.3g} ms outside its sample, PyTorch's {baseline_overhead:.3g} ms"
    if runner.synced and baseline_sync is not None:
        more = median(runner.synced) - middle
        if more > max(0.0, baseline_sync) + slack:
            return f"a call takes {more:.3g} ms more when the whole device is waited for: work outside its stream"
    return ""
