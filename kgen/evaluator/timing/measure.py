"""Timing, the parent's part: which calls are made in which order, and what brackets them.

A *sample block* is a few calls of one subject in a row. Each call gets new contents in the same buffers, made by a key
that arrives with the block. The parent's own clock brackets each block: samples must fit into it. After some blocks,
drawn at random, the last output is fetched and checked.
"""

import random
import time
from dataclasses import dataclass, field
from functools import partial
from math import inf
from statistics import median
from typing import Any, Callable, Mapping, Sequence

from kgen.devices.kinds import Kind
from kgen.evaluator.correctness.validate import Failure, WorkerClient, raise_if_failed, raise_if_wrong
from kgen.protocol import CALL_MB, LAUNCH_MS, Depth, Phase, Status, Timing
from kgen.protocol.statistics import ratio_interval

SCREEN_BLOCKS = 5
FINAL_BLOCKS, LEAST_BLOCKS = 20, 8  #: rounds of finals; the latter where time is up, or ratios are known narrowly
FEWEST_BLOCKS = 4  #: rounds of finals that a sweep cuts; fewer give no interval
OVERTIME = 1.25  #: times the seconds of finals; after it, they end with fewer rounds
LONG_MS = 200.0  #: a longer call needs no other call before it, and fills a block alone
MIN_CALLS, MAX_CALLS = 2, 20  #: calls of a block
CHECK_SHARE = 1 / 5  #: share of the rounds of finals whose last output is checked
NARROW = 0.005  #: relative width of a ratio's interval; below it, finals end early
#: The same for a subject that is slower than the fastest by more than the second number: it can be no tie.
FAR_NARROW, FAR = 0.05, 1.1
ODD = 1.5  #: ratio of a block's median to that of all blocks; above it or below 1 / ODD, the block is measured again
#: Nanoseconds of work queued in front of a sample, so that launches do not count: a multiple of the launch time plus a
#: constant. It doubles, three times at most, when launches outlast it: a process that waited launches more slowly.
SLEEP_FACTOR, SLEEP_NS, MOST_SLEEP_NS, SLEEP_DOUBLINGS = 1.5, 150_000, 20_000_000, 3


@dataclass(eq=False)
class Runner:
    """A subject that is ready to be timed, and its samples in milliseconds."""

    extra_calls = 1.0  #: calls of a GPU for each sample
    checks_every_block = False  #: of a screening
    check_share = CHECK_SHARE  #: of the rounds of finals

    name: str
    worker: WorkerClient
    kind: Kind
    modes: Sequence[str]
    prepare_ms: float  #: extra time of the first call after new weights
    steady_ms: float
    sleep_ns: int = 0  #: nanoseconds of work queued in front of a sample
    doublings: int = 0  #: of ``sleep_ns``
    cold: bool = True  #: whether the cache is flushed before each call
    frees: bool = False  #: whether the worker frees its memory between turns
    floor_ms: float = 0.0  #: the least time for moving inputs and outputs once
    launch_ms: float = 0.0  #: the host's time for a call; of a CPU, 0
    call_mb: float = 0.0  #: megabytes that a call allocates at most; of a CPU, 0
    #: Judges a fetched output by its mode and key.
    check: Callable[[Mapping[str, Any], str, int], None] | None = None
    blocks: list[tuple[float, ...]] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        return median(sample for block in self.blocks for sample in block)

    def warm_up(self, generator: random.Random) -> None:
        """One call that is no sample. Raises :class:`Failure`."""
        self._calls([generator.getrandbits(48)], self.modes)

    def block(self, calls: int, generator: random.Random, *, checked: bool = False, thorough: bool = False) -> None:
        """Add a block of ``calls`` samples; ``checked`` judges an output, and ``thorough`` asks for all other checks.
        Raises :class:`Failure` when a call fails, or claims more time than the parent's clock allows."""
        self.blocks.append(self.samples(calls, generator, checked, thorough))

    def samples(self, calls: int, generator: random.Random, checked: bool, thorough: bool) -> tuple[float, ...]:
        """The samples of a block. Only the last output is judged."""
        keys = [generator.getrandbits(48) for _ in range(calls)]
        if not checked:
            return tuple(self._calls(keys, self.modes))
        *first, last = keys
        samples = self._calls(first, self.modes) if first else []
        total = 0.0
        for mode in self.modes:
            total += self._calls([last], [mode])[0]
            self.check_output(mode, last)
        return (*samples, total)

    def _calls(self, keys: Sequence[int], modes: Sequence[str]) -> list[float]:
        """One call for each key, in each of ``modes``: milliseconds by key."""
        started = time.perf_counter_ns()
        reply = self.worker.ask("block", keys=list(keys), modes=list(modes), sleep_ns=self.sleep_ns, cold=self.cold)
        took = time.perf_counter_ns() - started
        check_timed(reply)
        claimed = reply.get("ns")
        right = (
            isinstance(claimed, list)
            and len(claimed) == len(keys)
            and all(type(ns) is int and ns > 0 for ns in claimed)
        )
        if not right or sum(claimed) > took:
            text = f"it claims {claimed!r:.60} ns for calls that took {took} ns together"
            raise Failure(Status.SUSPICIOUS, text, Phase.TIME)
        self.hide_launches(reply.get("exposed") is True)
        return [ns / 1e6 for ns in claimed]

    def hide_launches(self, exposed: bool) -> None:
        """Queue twice the work in front of later samples when launches were ``exposed``."""
        if exposed and self.doublings < SLEEP_DOUBLINGS:
            self.doublings += 1
            self.sleep_ns = min(2 * self.sleep_ns, MOST_SLEEP_NS)

    def check_output(self, mode: str, key: int) -> float:
        """Fetch the latest output and judge it. Returns milliseconds of fetching; raises :class:`Failure`."""
        started = time.perf_counter_ns()
        reply = self.worker.ask("fetch")
        taken = time.perf_counter_ns() - started
        check_timed(reply)
        if self.check is not None:
            self.check(reply, mode, key)
        return taken / 1e6

    def screen(self, generator: random.Random) -> None:
        """Time the subject alone and briefly. Outputs of a drawn block and of the last one are checked."""
        calls = calls_per_block(self.steady_ms, self.kind)
        drawn, last = generator.randrange(SCREEN_BLOCKS), SCREEN_BLOCKS - 1
        if self.frees:
            self.warm_up(generator)
        for number in range(SCREEN_BLOCKS):
            checked = self.checks_every_block or number in (drawn, last)
            self.block(calls, generator, checked=checked, thorough=number == drawn)
        if (odd := self.oddest()) is not None:
            self.blocks[odd] = self.samples(calls, generator, checked=False, thorough=False)
        self.rest()

    def check_last(self, generator: random.Random) -> None:
        """Judge the output of one more call, which is no sample, where a runner asks for that. Raises
        :class:`Failure`."""

    def rest(self) -> None:
        """Have the worker free the memory of timed calls until its next call. Raises :class:`Failure`."""
        if self.frees:
            raise_if_failed(self.worker.ask("rest"), Phase.TIME)

    def turn(self, calls: int, generator: random.Random, *, thorough: bool) -> None:
        """One block of finals, after a call that is no sample: another subject left the clocks and caches."""
        if self.frees or self.steady_ms < LONG_MS:
            self.warm_up(generator)
        self.block(calls, generator, checked=thorough or generator.random() < self.check_share, thorough=thorough)
        self.rest()

    def oddest(self) -> int | None:
        """The number of the block whose median is farthest from the median of all blocks, if that block is odd; else
        ``None``."""
        middles = list(map(median, self.blocks))
        middle = median(middles)
        ratios = [max(one / middle, middle / one) for one in middles]
        return ratios.index(max(ratios)) if max(ratios) > ODD else None

    def noise(self) -> str:
        """A label when a block is odd although it was measured again; else empty."""
        if (odd := self.oddest()) is None:
            return ""
        return (
            f"noisy: a sample block took {median(self.blocks[odd]):.3g} ms, the median of all {self.median_ms:.3g} ms"
        )

    def forget(self) -> None:
        self.blocks = []

    def timing(self, depth: Depth, session: str, conditions: tuple[tuple[str, str | float], ...] = ()) -> Timing:
        own = tuple((name, value) for name, value in ((LAUNCH_MS, self.launch_ms), (CALL_MB, self.call_mb)) if value)
        return Timing(self.name, depth, session, tuple(self.blocks), self.prepare_ms, (*conditions, *own))


def check_timed(reply: Mapping[str, Any]) -> None:
    """Raises :class:`Failure` where the answer of a timed call, or of fetching its output, names a fault."""
    raise_if_failed(reply, Phase.TIME)
    raise_if_wrong(reply, Phase.TIME, "in a timed call")


def calls_per_block(steady_ms: float, kind: Kind) -> int:
    """As many calls as fill the time of a screening's block."""
    filling = round(kind.block_seconds * 1000 / max(steady_ms, 1e-3))
    return max(MIN_CALLS if steady_ms < LONG_MS else 1, min(kind.screen_calls, filling))


def sleep_ns(launch_ns: int) -> int:
    """Nanoseconds of work to queue in front of a sample whose launches take ``launch_ns``."""
    return min(int(SLEEP_FACTOR * launch_ns + SLEEP_NS), MOST_SLEEP_NS)


def interleave(
    runners: Sequence[Runner],
    seconds: float,
    generator: random.Random,
    failed: Callable[[Runner, Failure], None],
    least: int = LEAST_BLOCKS,
    until: float = inf,
    ends: Callable[[int], bool] = lambda rounds: False,
) -> list[Runner]:
    """Time ``runners`` in turns B A C, C A B, ... (a drawn order, then its reverse) for at least :data:`FINAL_BLOCKS`
    rounds and about ``seconds``. Ends after ``least`` rounds or more where those take longer, or where every ratio to
    the fastest is known narrowly. From ``until`` on, on the monotonic clock, :data:`FEWEST_BLOCKS` rounds are enough.
    Where ``ends`` says so after a number of rounds, the round with all checks is the last one at the latest. A
    runner that fails is reported to ``failed`` and left out. Returns the others."""
    started = time.monotonic()
    alive = list(runners)

    def attempt(runner: Runner, step: Callable[[], object]) -> None:
        try:
            step()
        except Failure as failure:
            alive.remove(runner)
            failed(runner, failure)

    for runner in runners:
        attempt(runner, lambda: (runner.warm_up(generator), runner.rest()))
    lap = (time.monotonic() - started) * max(
        (runner.extra_calls for runner in alive if runner.kind.accelerator), default=1.0
    )
    calls = calls_of_finals(seconds, lap)
    for runner in alive:
        runner.forget()
    rounds, order = 0, list(alive)
    thorough = generator.randrange(least if until == inf else FEWEST_BLOCKS)
    while alive and not (
        enough(rounds, least, time.monotonic() - started, seconds, alive, late=time.monotonic() >= until)
        or (rounds > thorough and ends(rounds))
    ):
        order = generator.sample(alive, len(alive)) if rounds % 2 == 0 else [r for r in order[::-1] if r in alive]
        for runner in order:
            attempt(runner, partial(runner.turn, calls, generator, thorough=rounds == thorough))
        rounds += 1
    return alive


def enough(
    rounds: int, least: int, took: float, seconds: float, alive: Sequence[Runner], *, late: bool = False
) -> bool:
    """Whether finals end after ``rounds`` rounds in ``took`` seconds. ``late``: the time of all of it is up."""
    if late and rounds >= FEWEST_BLOCKS:
        return True
    most = seconds if rounds >= FINAL_BLOCKS else OVERTIME * seconds
    return rounds >= least and (took >= most or _narrow(alive))


def calls_of_finals(seconds: float, lap: float) -> int:
    """Samples of a block, so that all rounds take ``seconds``; one call of each subject takes ``lap`` seconds."""
    turns = seconds / (FINAL_BLOCKS * max(lap, 1e-6)) - 1  # the first call of a block is no sample
    return max(1, min(MAX_CALLS, int(turns)))


def _narrow(runners: Sequence[Runner]) -> bool:
    timings = [runner.timing(Depth.FINAL, "") for runner in runners]
    fastest = min(timings, key=lambda timing: median(map(median, timing.blocks)))
    ratios = (ratio_interval(t, fastest, resamples=200) for t in timings if t is not fastest)
    return all(ratio.width < (FAR_NARROW if ratio.low > FAR else NARROW) for ratio in ratios)
