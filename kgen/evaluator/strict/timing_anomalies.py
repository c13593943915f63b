"""Timing of foreign candidates: calls that give nothing away, and anomalies beside the samples.

A call's first half, prepare, and its second half, run, are separate requests. The parent's clock brackets the
second. Everything around it is compared with PyTorch's own calls (:class:`Habits`), which shows time spent outside the
samples.
"""

from __future__ import annotations

import random
import secrets
import time
from dataclasses import dataclass, field
from functools import partial
from statistics import median, quantiles
from typing import Any, Mapping, Sequence

from kgen.evaluator.correctness.validate import OVERWRITTEN, Failure, Settled, audit, raise_if_failed
from kgen.evaluator.protocol import Phase, Status
from kgen.evaluator.strict.processes import settle
from kgen.evaluator.timing.measure import (
    CHECK_SHARE, MIN_CALLS, SCREEN_BLOCKS, Runner, calls_per_block,
)

REMEASUREMENTS, REMEASURED_ROUNDS = 3, 4  #: of a suspected subject, at most, in turns with PyTorch
OTHERWISE = 2.0  #: times the claimed time; a subject that takes more when measured again hid work
SYNC_SHARE = 1 / 3  #: share of calls on a GPU that are bracketed by synchronisations, not events
HIDDEN_MS, HIDDEN_SHARE = 0.15, 0.03  #: ms and share of a sample; on a call's time outside its sample
UNJOINED_MS, UNJOINED_SHARE = 0.3, 0.1  #: the same; on the extra time of a synchronised call, beyond launches
BEHIND_MS = 0.002  #: ms; on how much later than its stream the device is idle (the device's clock tells microseconds)
#: Factor, ms and share of a sample; on preparing a call and on fetching its output.
BESIDE_FACTOR, BESIDE_MS, BESIDE_SHARE = 3.0, 0.15, 0.25
#: Factor and ms; on the fastest preparation and the fastest rest of an answer, against PyTorch's slow ones. A shared
#: machine changes both tenfold from one moment to the next.
LEAST_FACTOR, LEAST_MS = 1.5, {"cpu": 2.0, "cuda": 0.3}
#: ms and wake-ups; on threads that work when nothing is asked. OpenMP's threads spin for some milliseconds.
SETTLE_MS, WAKEUPS = 10.0, 8
#: Factor of a device copy's rate; no honest call moves its data faster (small writes end in the cache).
COPY_MARGIN = {"cpu": 10.0, "cuda": 4.0}


@dataclass(frozen=True)
class Habits:
    """Times of PyTorch's own calls around their samples, in milliseconds by the parent's clock."""

    outside: float  #: outside a sample, upper quartile
    hidden: float  #: median call minus median sample
    unjoined: float  #: synchronised call minus sample
    fetch: float  #: fetching an output, minimum
    prepare: float  #: preparing a call, median
    most_prepare: float  #: preparing a call, upper quartile
    rest: float  #: the rest of an answer after the time was sent, upper quartile
    behind: float  #: device idle after its stream, upper quartile
    settle: float  #: threads asleep after a call, maximum
    wakeups: int  #: of sleeping threads, maximum; a number


@dataclass(eq=False)
class StrictRunner(Runner):
    """A subject with everything that its calls took around the samples, in milliseconds."""

    extra_calls = 1 / (1 - SYNC_SHARE)  # on a GPU

    outside: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)  #: whole calls, by the parent's clock
    synced: list[float] = field(default_factory=list)
    fetches: list[float] = field(default_factory=list)
    prepares: list[float] = field(default_factory=list)
    rests: list[float] = field(default_factory=list)  #: from the time that was sent to the end of the answer
    behind: list[float] = field(default_factory=list)  #: from the stream's end to the device's
    launches: list[float] = field(default_factory=list)  #: of each forward until it returned
    settles: list[float] = field(default_factory=list)
    wakeups: list[int] = field(default_factory=list)

    @property
    def launch_ms(self) -> float:
        """The median launch time of a call, in all modes."""
        return _quartile(self.launches, 1) * len(self.modes)

    @property
    def unjoined(self) -> float:
        """Extra time of a synchronised call; 0 without one."""
        return max(0.0, median(self.synced) - self.median_ms) if self.synced else 0.0

    def hidden(self, quartile: int) -> float:
        """Whole calls minus the median sample."""
        return _quartile(self.whole, quartile) - self.median_ms

    def habits(self) -> Habits:
        """The habits of this subject, which is PyTorch."""
        return Habits(
            outside=_quartile(self.outside, 2), hidden=self.hidden(1), unjoined=self.unjoined,
            fetch=min(self.fetches, default=0.0), prepare=_quartile(self.prepares, 1),
            most_prepare=_quartile(self.prepares, 2), rest=_quartile(self.rests, 2), behind=_quartile(self.behind, 2),
            settle=max(self.settles, default=0.0), wakeups=max(self.wakeups, default=0))

    def call(
        self, generator: random.Random, how: str = "event", *, checked: bool = False, watched: bool = False,
    ) -> float:
        """One call in each mode, bracketed by events or by synchronisations (``how``: ``event`` or ``sync``).

        ``checked`` fetches and judges the output. ``watched`` compares everything before the contents arrive, and
        observes the threads while nothing is asked. Raises :class:`Failure`.
        """
        key, total, whole = generator.getrandbits(48), 0.0, 0.0
        seen: list[tuple[float, int]] = []
        family = self.worker.child.family
        for mode in self.modes:
            self._prepare(mode, key, watched)
            if watched and family is not None:
                seen.append(settle(family))
            sample, taken = self._run(how)
            total, whole = total + sample, whole + taken
            if watched and not self.cuda and family is not None:  # work left on a GPU is waited for
                seen.append(settle(family))
            if checked:
                self._fetch(mode, key)
        if seen:
            self.settles.append(max(ms for ms, _ in seen))
            self.wakeups.append(max(wakeups for _, wakeups in seen))
        if how == "event":
            self.whole.append(whole)
        return total

    def warm_up(self, generator: random.Random) -> None:
        for _ in range(1 + self.frees):
            self.call(generator)

    def _prepare(self, mode: str, key: int, watched: bool) -> None:
        started = time.perf_counter_ns()
        reply = self.worker.ask("prepare_call", key=key, mode=mode, cold=self.cold, watched=watched)
        if not watched:  # comparing everything takes time
            self.prepares.append((time.perf_counter_ns() - started) / 1e6)
        raise_if_failed(reply, Phase.TIME)
        _raise_if_touched(reply)

    def _run(self, how: str) -> tuple[float, float]:
        """The sample, and the parent's time for the call without the queued work, in milliseconds."""
        sleep_ns, number = self.sleep_ns, secrets.randbits(48)
        request = {"do": "run_call", "id": number, "how": how, "sleep_ns": sleep_ns}
        started = time.perf_counter_ns()
        told = self.worker.answer(number, partial(self.worker.child.ask, request, ()))
        taken = time.perf_counter_ns() - started
        reply = told if "error" in told else self.worker.answer(number, self.worker.child.answer) | told
        self.rests.append((time.perf_counter_ns() - started - taken) / 1e6)
        raise_if_failed(reply, Phase.TIME)
        if reply.get("alias"):
            reason = "in a timed call: the output shares memory with an earlier one"
            raise Failure(Status.ALIASED_OUTPUT, reason, Phase.TIME)
        claimed = reply.get("ns")
        if not isinstance(claimed, int) or not 0 < claimed <= taken:
            text = f"it claims {claimed!r:.30} ns for a call that took {taken} ns"
            raise Failure(Status.SUSPICIOUS, text, Phase.TIME)
        if how == "event":
            self.outside.append((taken - claimed - sleep_ns) / 1e6)
            for name, kept in (("behind_ns", self.behind), ("launch_ns", self.launches)):
                if isinstance(reply.get(name), int):
                    kept.append(reply[name] / 1e6)
        self.hide_launches(reply.get("exposed") is True)
        return claimed / 1e6, (taken - sleep_ns) / 1e6

    def _fetch(self, mode: str, key: int) -> None:
        started = time.perf_counter_ns()
        reply = self.worker.ask("fetch")
        self.fetches.append((time.perf_counter_ns() - started) / 1e6)
        raise_if_failed(reply, Phase.TIME)
        _raise_if_touched(reply)
        if self.check is not None:
            self.check(reply, mode, key)

    def strict_block(
        self, calls: int, generator: random.Random, checked: int = -1, *, watched: bool = False,
        checked_synced: bool = False,
    ) -> bool:
        """Add a block of ``calls`` samples; on a GPU synchronised calls are drawn between them.

        The output of sample number ``checked`` is judged; with ``checked_synced`` that of the first synchronised call
        too. Returns whether the latter is still to be done.
        """
        samples: list[float] = []
        while len(samples) < calls:
            if self.cuda and generator.random() < SYNC_SHARE:
                self.synced.append(self.call(generator, "sync", checked=checked_synced))
                checked_synced = False
            else:
                now = len(samples) == checked
                samples.append(self.call(generator, checked=now, watched=now and watched))
        self.blocks.append(tuple(samples))
        return checked_synced

    def screen(self, generator: random.Random, blocks: int = SCREEN_BLOCKS) -> None:
        """Time the subject alone and briefly. One output of each block is checked; one drawn block is watched, and
        another one's synchronised call is checked."""
        calls = calls_per_block(self.steady_ms, "cuda" if self.cuda else "cpu")
        watched = generator.randrange(blocks)
        synced = generator.choice([n for n in range(blocks - 1) if n != watched]) if self.cuda else blocks
        owed = False
        if self.frees:
            self.warm_up(generator)
        for number in range(blocks):
            last = number == blocks - 1
            checked = calls - 1 if last else -1 if number == synced else generator.randrange(calls)
            owed = self.strict_block(calls, generator, checked, watched=number == watched,
                                     checked_synced=owed or number == synced)
        self.rest()

    def turn(self, calls: int, generator: random.Random, *, thorough: bool) -> None:
        checked = generator.randrange(calls) if thorough or generator.random() < CHECK_SHARE else -1
        self.warm_up(generator)
        self.strict_block(calls, generator, checked, watched=thorough, checked_synced=checked >= 0)
        self.rest()

    def forget(self) -> None:
        super().forget()
        self.outside, self.whole, self.synced = [], [], []
        self.fetches, self.prepares, self.rests, self.behind = [], [], [], []
        self.launches, self.settles, self.wakeups = [], [], []


def _raise_if_touched(reply: Mapping[str, Any]) -> None:
    if reply.get("late"):
        raise Failure(Status.SUSPICIOUS, "in a timed call: its output changed after forward returned", Phase.TIME)
    if reply.get("overwritten"):
        raise Failure(Status.ALIASED_OUTPUT, f"in a timed call: {OVERWRITTEN}", Phase.TIME)
    if reply.get("mutated"):
        raise Failure(Status.MUTATED_INPUT, f"in a timed call: it wrote into {reply['mutated']}", Phase.TIME)


def _quartile(values: Sequence[float], number: int) -> float:
    """The lower quartile (0), the median (1) or the upper quartile (2); 0 without values."""
    return quantiles(values, n=4)[number] if len(values) > 1 else values[0] if values else 0.0


def least_ms(moved_bytes: int, gbytes_per_second: float, device_type: str) -> float:
    """The least milliseconds that moving inputs and outputs once takes, by the rate of a device copy and a margin."""
    return moved_bytes / (gbytes_per_second * COPY_MARGIN[device_type]) / 1e6


def queue_alike(runners: Sequence[Runner]) -> None:
    """Queue the same work in front of all samples, so that times outside the samples compare. More queued work hides
    more launches, and a throttled GPU does it more slowly."""
    most = max((runner.sleep_ns for runner in runners), default=0)
    for runner in runners:
        runner.sleep_ns = most


def raise_if_suspicious(
    runner: StrictRunner, settled: Settled, *, eager: Habits | None, floor_ms: float,
    beside: StrictRunner | None = None, generator: random.Random | None = None,
) -> None:
    """Raises :class:`Failure` when the subject changed what belongs to others, or its samples have an anomaly.

    A suspected subject is measured again in turns with PyTorch (``beside``), a few times at most: on a busy machine,
    habits of another moment mislead. Only the samples of the last measurement are kept. On a GPU a subject fails if it
    takes far longer then than it claimed before.
    """
    reason = anomaly(runner, eager=eager, floor_ms=floor_ms)
    for _ in range(REMEASUREMENTS):
        if not reason or runner.median_ms < floor_ms or beside is None or generator is None:
            break  # a busy machine makes no subject too fast
        if not beside.blocks:  # a subject failed while it was measured beside it
            beside.strict_block(MIN_CALLS, generator)
        claimed, usual = runner.median_ms, beside.median_ms
        runner.forget()
        beside.forget()
        for subject in (beside, runner) * REMEASURED_ROUNDS:
            queue_alike((beside, runner))
            subject.strict_block(MIN_CALLS, generator, MIN_CALLS - 1, watched=True, checked_synced=True)
        # On the CPU, threads that slept while they were watched are slow for a while.
        if runner.cuda and runner.median_ms > OTHERWISE * claimed * max(1.0, beside.median_ms / usual):
            reason = f"it claimed {claimed:.3g} ms before it was measured again, and takes {runner.median_ms:.3g} ms"
            break
        reason = anomaly(runner, eager=beside.habits(), floor_ms=floor_ms)
    audit(runner.worker, settled)
    if reason:
        raise Failure(Status.SUSPICIOUS, reason, Phase.TIME)


def anomaly(runner: StrictRunner, *, eager: Habits | None, floor_ms: float) -> str:
    """The first anomaly of ``runner``'s samples in one line; empty without one.

    ``eager`` holds PyTorch's habits; ``floor_ms`` is the least time for moving inputs and outputs once.
    """
    middle = runner.median_ms
    if middle < floor_ms:
        return f"{middle:.4g} ms is less than reading the inputs and writing the outputs once takes ({floor_ms:.4g} ms)"
    if eager is None:
        return ""
    outside = _quartile(runner.outside, 0)  # a busy machine slows many calls, not all
    if outside > max(0.0, eager.outside) + HIDDEN_MS + HIDDEN_SHARE * middle:
        return f"a call takes {outside:.3g} ms outside its sample, PyTorch's {eager.outside:.3g} ms"
    # Time hidden in just over half of the calls makes no call faster.
    hidden, usual = runner.hidden(0), max(0.0, eager.hidden)
    if hidden > usual + HIDDEN_MS + HIDDEN_SHARE * middle:
        return f"calls take {hidden:.3g} ms longer than the median sample, PyTorch's {usual:.3g} ms"
    if runner.unjoined > eager.unjoined + UNJOINED_MS + UNJOINED_SHARE * middle + runner.launch_ms:
        return (f"a call takes {runner.unjoined:.3g} ms more when the whole device is waited for: "
                f"work outside its stream")
    behind = _quartile(runner.behind, 2)
    if behind > max(0.0, eager.behind) + BEHIND_MS:  # PyTorch's is negative where its launches show
        return (f"the device is done {behind:.3g} ms after its stream, PyTorch's {eager.behind:.3g} ms: "
                f"work outside its stream")
    usually = BESIDE_FACTOR, BESIDE_MS + BESIDE_SHARE * middle, ""
    least = LEAST_FACTOR, LEAST_MS["cuda" if runner.cuda else "cpu"], " at least"
    for what, taken, usual, (factor, more, word) in (
        ("its output takes", min(runner.fetches, default=0.0), eager.fetch, usually),
        ("preparing a call takes", _quartile(runner.prepares, 1), eager.prepare, usually),
        ("preparing a call takes", _quartile(runner.prepares, 0), eager.most_prepare, least),
        ("the rest of an answer takes", _quartile(runner.rests, 0), eager.rest, least),
    ):
        if taken > factor * usual + more:
            return f"{what} {taken:.3g} ms{word}, PyTorch's {usual:.3g} ms: work done beside the call"
    settles, wakeups = _quartile(runner.settles, 1), _quartile(runner.wakeups, 1)
    if settles > eager.settle + SETTLE_MS:
        return f"its threads work for {settles:.3g} ms when nothing is asked of it, PyTorch's for {eager.settle:.3g} ms"
    if wakeups > eager.wakeups + WAKEUPS:
        return f"its threads wake up {wakeups:g} times when nothing is asked of it, PyTorch's {eager.wakeups} times"
    return ""
