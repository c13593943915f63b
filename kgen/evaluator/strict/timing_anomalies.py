"""Timing of foreign candidates: calls that give nothing away, and anomalies beside the samples.

A call's first half, prepare, and its second half, run, are separate requests. The parent's clock brackets the
second. Everything around it is compared with PyTorch's own calls, which shows time spent outside the samples.
"""

import random
import secrets
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from statistics import quantiles
from typing import Callable, Mapping, Sequence

from kgen.devices.kinds import KINDS
from kgen.evaluator.correctness.validate import Failure
from kgen.evaluator.strict.processes import settle_ms
from kgen.evaluator.timing.measure import MIN_CALLS, Runner, calls_per_block, check_timed
from kgen.protocol import Phase, Status

REMEASUREMENTS, REMEASURED_ROUNDS = 3, 4  #: of a suspected subject, at most, in turns with PyTorch
SYNC_SHARE = 1 / 3  #: share of calls on a GPU that are bracketed by synchronisations, not events

Times = Mapping[str, Sequence[float]]  #: around the samples of a subject, in milliseconds, by name


def _quartile(number: int) -> Callable[[Sequence[float]], float]:
    """The function that gives this quartile, from 0; 0.0 without values."""
    return lambda values: quantiles(values, n=4)[number] if len(values) > 1 else sum(values)


_lower, _middle, _upper = map(_quartile, range(3))
_least, _most = partial(min, default=0.0), partial(max, default=0.0)


@dataclass(frozen=True)
class _Limit:
    """A limit on a time around the samples. ``own`` and ``usual`` derive one figure from a candidate's times and from
    PyTorch's. The candidate's figure is an anomaly above a sum: ``factor`` times PyTorch's figure, ``ms`` (CPU and GPU)
    and a ``share`` of a sample."""

    name: str
    own: Callable[[Sequence[float]], float]
    usual: Callable[[Sequence[float]], float]
    text: str
    factor: float = 1.0
    ms: tuple[float, float] = (0.0, 0.0)
    share: float = 0.0


_BESIDE = {"factor": 3.0, "ms": (0.15, 0.15), "share": 0.25}
#: A shared machine changes these times tenfold from one moment to the next. So a candidate's fastest times are compared
#: with PyTorch's slow times.
_AT_LEAST = {"factor": 1.5, "ms": (2.0, 0.3)}
_LIMITS = (
    # A busy machine slows many calls, not all. Time hidden in just over half of the calls makes no call faster.
    _Limit("hidden", _lower, _middle, "a call takes {} ms more than the median sample", ms=(0.15, 0.15), share=0.03),
    _Limit(
        "unjoined",
        _middle,
        _middle,
        "a call takes {} ms more, outside its stream, when all is waited for",
        ms=(0.3, 0.3),
        share=0.1,
    ),
    # The device's clock tells microseconds.
    _Limit("behind", _upper, _upper, "the device works for {} ms more, outside its stream", ms=(0.002, 0.002)),
    _Limit("fetch", _least, _least, "its output takes {} ms", **_BESIDE),
    _Limit("prepare", _middle, _middle, "preparing a call takes {} ms", **_BESIDE),
    _Limit("prepare", _lower, _upper, "preparing a call takes {} ms at least", **_AT_LEAST),
    _Limit("rest", _lower, _upper, "the rest of an answer takes {} ms at least", **_AT_LEAST),
    # OpenMP's threads spin for some milliseconds, and a busy machine looks late.
    _Limit("settle", _middle, _most, "its threads work for {} ms when nothing is asked of it", 1.5, ms=(10.0, 10.0)),
)


@dataclass(eq=False)
class StrictRunner(Runner):
    """A subject with everything that its calls took around the samples."""

    extra_calls = 1 / (1 - SYNC_SHARE)  # on a GPU
    checks_every_block = True

    seen: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  #: milliseconds by name

    def times(self) -> Times:
        """Times around the samples, by the names in ``_LIMITS``. Launches show in a synchronised call; they are no work
        outside its stream."""
        middle = _middle(self.seen["sample"])
        launches = _middle(self.seen["launch"]) * len(self.modes)
        return {name: tuple(values) for name, values in self.seen.items()} | {
            "hidden": [whole - middle for whole in self.seen["whole"]],
            "unjoined": [synced - middle - launches for synced in self.seen["synced"]],
        }

    def call(
        self,
        generator: random.Random,
        how: str = "event",
        *,
        checked: bool = False,
        watched: bool = False,
    ) -> float:
        """One call in each mode, bracketed by events or by synchronisations (``how``: ``event``, ``unfenced``,
        ``sync``). ``checked`` fetches and judges the output. ``watched`` compares everything before the contents
        arrive, and observes the threads while nothing is asked. Raises :class:`Failure`."""
        key, total, whole = generator.getrandbits(48), 0.0, 0.0
        settled: list[float] = []
        family = self.worker.child.family
        for mode in self.modes:
            self._prepare(mode, key, watched)
            if watched and family is not None:
                settled.append(settle_ms(family))
            sample, taken = self._run(how)
            total, whole = total + sample, whole + taken
            if watched and not self.kind.accelerator and family is not None:  # work left on a GPU is waited for
                settled.append(settle_ms(family))
            if checked:
                self.check_output(mode, key)
        if settled:
            self.seen["settle"].append(max(settled))
        if how == "event":
            self.seen["sample"].append(total)
            self.seen["whole"].append(whole)
        return total

    def screen(self, generator: random.Random) -> None:
        super().screen(generator)
        self.check_last(generator)

    def check_last(self, generator: random.Random) -> None:
        """Check one more call: a candidate that counts its calls finds none behind the last check. On a GPU the call is
        ``unfenced``: work must wait for its stream by itself."""
        self.call(generator, "unfenced" if self.kind.accelerator else "event", checked=True)
        self.rest()

    def warm_up(self, generator: random.Random) -> None:
        for _ in range(1 + self.frees):
            self.call(generator)

    def _prepare(self, mode: str, key: int, watched: bool) -> None:
        started = time.perf_counter_ns()
        reply = self.worker.ask("prepare_call", key=key, mode=mode, cold=self.cold, watched=watched)
        if not watched:  # comparing everything takes time
            self.seen["prepare"].append((time.perf_counter_ns() - started) / 1e6)
        check_timed(reply)

    def _run(self, how: str) -> tuple[float, float]:
        """The sample, and the parent's time for the call without the queued work, in milliseconds."""
        sleep_ns, number = self.sleep_ns, secrets.randbits(48)
        request = {"do": "run_call", "id": number, "how": how, "sleep_ns": sleep_ns}
        started = time.perf_counter_ns()
        told = self.worker.answer(number, partial(self.worker.child.ask, request, ()))
        taken = time.perf_counter_ns() - started
        reply = told if "error" in told else self.worker.answer(number, self.worker.child.answer) | told
        self.seen["rest"].append((time.perf_counter_ns() - started - taken) / 1e6)
        check_timed(reply)
        claimed = reply.get("ns")
        if not isinstance(claimed, int) or not 0 < claimed <= taken:
            text = f"it claims {claimed!r:.30} ns for a call that took {taken} ns"
            raise Failure(Status.SUSPICIOUS, text, Phase.TIME)
        for name in ("behind", "launch"):
            if isinstance(reply.get(f"{name}_ns"), int):
                self.seen[name].append(reply[f"{name}_ns"] / 1e6)
        self.hide_launches(reply.get("exposed") is True)
        return claimed / 1e6, (taken - sleep_ns) / 1e6

    def check_output(self, mode: str, key: int) -> float:
        taken = super().check_output(mode, key)
        self.seen["fetch"].append(taken)
        return taken

    def samples(self, calls: int, generator: random.Random, checked: bool, thorough: bool) -> tuple[float, ...]:
        """The samples of a block. On a GPU, synchronised calls are drawn between them. The output of a drawn sample is
        judged. A ``thorough`` block also watches the drawn sample's call, and judges the output of a synchronised
        call."""
        now = generator.randrange(calls) if checked else -1
        synced = generator.randrange(calls) if thorough and self.kind.accelerator else -1
        samples: list[float] = []
        for number in range(calls):
            if number == synced:
                self.seen["synced"].append(self.call(generator, "sync", checked=True))
            while self.kind.accelerator and generator.random() < SYNC_SHARE:
                self.seen["synced"].append(self.call(generator, "sync"))
            samples.append(self.call(generator, checked=number == now, watched=thorough and number == now))
        return tuple(samples)

    def forget(self) -> None:
        super().forget()
        self.seen.clear()


def least_ms(moved_bytes: int, gbytes_per_second: float, device_type: str) -> float:
    """The least milliseconds that moving inputs and outputs once takes, by the rate of a device copy and a margin."""
    return moved_bytes / (gbytes_per_second * KINDS[device_type].copy_margin) / 1e6


def queue_alike(runners: Sequence[Runner]) -> None:
    """Queue the same work in front of all samples, so that times outside the samples compare. More queued work hides
    more launches, and a throttled GPU does it more slowly."""
    most = max((runner.sleep_ns for runner in runners), default=0)
    for runner in runners:
        runner.sleep_ns = most


def measured_again(runner: StrictRunner, reason: str, *, beside: StrictRunner, generator: random.Random) -> str:
    """Measure a suspected subject again in turns with PyTorch (``beside``), a few times at most. On a busy machine,
    PyTorch's times of another moment mislead, and so do the medians of few calls. Each time has more calls than the one
    before. Returns the anomaly that stays, or an empty text. Only the samples of the last measurement are kept."""
    calls = max(MIN_CALLS, calls_per_block(runner.steady_ms, runner.kind))
    for times in range(1, REMEASUREMENTS + 1):
        if not reason or runner.median_ms < runner.floor_ms:
            break  # a busy machine makes no subject too fast
        runner.forget()
        beside.forget()
        for subject in (beside, runner) * REMEASURED_ROUNDS:
            queue_alike((beside, runner))
            subject.block(times * calls, generator, checked=True, thorough=True)
        reason = anomaly(runner, eager=beside.times())
    return reason


def anomaly(runner: StrictRunner, *, eager: Times | None) -> str:
    """The first anomaly of ``runner``'s samples beside PyTorch's times in one line; empty without one."""
    middle, floor_ms = runner.median_ms, runner.floor_ms
    if middle < floor_ms:
        return f"{middle:.4g} ms is less than reading the inputs and writing the outputs once takes ({floor_ms:.4g} ms)"
    if eager is None:
        return ""
    times = runner.times()
    for limit in _LIMITS:
        taken, usual = limit.own(times.get(limit.name, ())), limit.usual(eager.get(limit.name, ()))
        # PyTorch's is negative where its launches show.
        if taken > limit.factor * max(0.0, usual) + limit.ms[runner.kind.accelerator] + limit.share * middle:
            return f"{limit.text.format(f'{taken:.3g}')}, PyTorch's {usual:.3g}: work beside the call"
    return ""
