"""Timing, the parent's part: which calls are made in which order, what brackets them, what cannot be believed.

A *burst* is a few calls of one subject, one after the other. A call has two halves: the worker is *armed* (contents
that were never there before in the same buffers, by a key that arrives with the call; running statistics and random
numbers as they were; a flushed cache) and then told to *go*. On a GPU, contents and flush are queued only when it goes,
in its stream, behind some work: what does not wait for its stream finds the contents of the call before. The parent's
own clock brackets the second half, so that time which a sample leaves out shows; and after some calls, chosen when the
answer is already there, the output is fetched and checked.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from functools import partial
from statistics import median, quantiles
from typing import Any, Callable, Mapping, Sequence

from kgen.evaluator.correctness.validate import Failure, WorkerClient, audit, raise_if_failed
from kgen.evaluator.protocol import Depth, Phase, Status, Timing
from kgen.statistics import ratio_interval

SCREEN_BURSTS = 5
FINAL_BURSTS = 20
#: What a screening's burst is to take, and the most calls that it has: a GPU's samples scatter less than a CPU's.
BURST_SECONDS = {"cpu": 0.03, "cuda": 0.015}
SCREEN_CALLS = {"cpu": 10, "cuda": 4}
HEARINGS, HEARING_ROUNDS = 3, 4  #: of a subject that is doubted, at most, in turns with PyTorch
OTHERWISE = 2.0  #: times what it claimed before is what nobody takes who is heard, but for what PyTorch takes longer
MAX_CALLS = 20  #: of a burst of finals
MIN_CALLS = 2
SYNC_SHARE = 1 / 3  #: of calls on a GPU, bracketed by synchronisations instead of events
CHECK_SHARE = 1 / 5  #: of the rounds of finals have a call whose output is checked, and one with other values
WATCHED_ROUNDS = 3  #: of finals, which are drawn, have a call before which a worker is watched, and on the CPU after it
NARROW = 0.005  #: relative width of the interval of a ratio that is narrow enough
#: Work queued in front of a sample, so that launches do not count: this many times what launching took when the subject
#: got ready, and as many nanoseconds more. A process that waited for its turn launches more slowly: where launches
#: outlast that work, it is doubled from the next call on, so often at most; a call that waits for the device itself
#: always outlasts it.
SLEEP_FACTOR, SLEEP_NS, MOST_SLEEP_NS, SLEEP_DOUBLINGS = 1.5, 150_000, 20_000_000, 3
#: What a call may take outside its sample beyond what PyTorch's own calls do, in milliseconds and as a share of the
#: sample: more is time that the sample hides.
HIDDEN_MS, HIDDEN_SHARE = 0.15, 0.03
#: The same for a call that is bracketed by synchronisations, where launches count: beyond the time of these.
UNJOINED_MS, UNJOINED_SHARE = 0.3, 0.1
#: How much later than its stream the device may be done, in milliseconds, beyond PyTorch's: the device's own clock tells
#: within a microsecond, and a stream that was joined takes no time then.
BEHIND_MS = 0.002
#: Getting ready for a call, and fetching its output, may take this many times as long as PyTorch's own, this many
#: milliseconds, and this share of a sample: more is work done before it is asked for, or when it is looked at.
BESIDE_FACTOR, BESIDE_MS, BESIDE_SHARE = 3.0, 0.15, 0.25
#: The same for those that took least to get ready, and to tell the rest once the time was told, beside PyTorch's that
#: took most: on a shared machine both may take ten times as long from one moment to the next.
LEAST_FACTOR, LEAST_MS = 1.5, {"cpu": 2.0, "cuda": 0.3}
#: What a worker may do longer than PyTorch's on the CPU while nothing is asked of it, in milliseconds until its threads
#: sleep, and how often one may wake up then. Threads that wait for the next parallel loop spin for some milliseconds,
#: PyTorch's too. What goes beyond is work put off, or done ahead, or somebody who waits for a call to come.
SETTLE_MS, WAKEUPS = 10.0, 8
#: Nothing moves its inputs and outputs this much faster than a device copy. Writes that end in the cache are fast, and
#: the last cache of a server's CPU is never cold.
COPY_MARGIN = {"cpu": 10.0, "cuda": 4.0}


@dataclass(frozen=True)
class Habits:
    """What PyTorch's own calls take on this device, in milliseconds, by the parent's clock."""

    outside: float  #: of a call outside its sample, at the upper quartile
    hidden: float  #: that the middle call takes more than the middle sample
    unjoined: float  #: that a synchronised call takes more than a sample
    fetch: float  #: to fetch an output, at least
    arm: float  #: to be armed, in the middle
    most_arm: float  #: to be armed, at the upper quartile
    rest: float  #: to tell the rest when the time was told, at the upper quartile
    behind: float  #: until the device is done when the stream is, at the upper quartile
    settle: float  #: until threads sleep when nothing is asked any more, at most
    wakeups: int  #: of threads that sleep; a number


@dataclass
class Runner:
    """A subject that is ready to be timed, and what its calls took, in milliseconds."""

    name: str
    worker: WorkerClient
    cuda: bool
    modes: Sequence[str]
    first_ms: float
    steady_ms: float
    sleep_ns: int = 0  #: of work queued in front of a sample; see :data:`SLEEP_FACTOR`
    doublings: int = 0  #: of it
    cold: bool = True  #: whether the cache is flushed before each call
    #: Judge what was fetched of a call in that mode, with that key and values; with or without its columns.
    check: Callable[[Mapping[str, Any], str, int, str, bool], None] | None = None
    values: Sequence[str] = ()  #: other values than the problem's own that a call may be given
    bursts: list[tuple[float, ...]] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)  #: by whole calls, by the parent's clock
    synced: list[float] = field(default_factory=list)
    fetches: list[float] = field(default_factory=list)
    arms: list[float] = field(default_factory=list)
    rests: list[float] = field(default_factory=list)  #: from the time that was told to the rest of the answer
    behind: list[float] = field(default_factory=list)  #: from the stream's end to the device's
    launches: list[float] = field(default_factory=list)  #: of each forward until it returned, as the worker tells
    settles: list[float] = field(default_factory=list)
    wakeups: list[int] = field(default_factory=list)

    @property
    def prepare_ms(self) -> float:
        """What the first call after new weights takes more than a later one."""
        return max(0.0, self.first_ms - self.steady_ms)

    @property
    def middle(self) -> float:
        """The median sample."""
        return median(sample for burst in self.bursts for sample in burst)

    @property
    def launch_ms(self) -> float:
        """What launching a call takes, in all modes."""
        return _quartile(self.launches, 1) * len(self.modes)

    @property
    def unjoined(self) -> float:
        """What a synchronised call takes more than a sample; nothing where there were none."""
        return max(0.0, median(self.synced) - self.middle) if self.synced else 0.0

    def hidden(self, quartile: int) -> float:
        """What a whole call takes more than the middle sample."""
        return _quartile(self.taken, quartile) - self.middle

    def habits(self) -> Habits:
        """What others may take beside their samples, if this subject is PyTorch."""
        return Habits(
            outside=_quartile(self.outside, 2), hidden=self.hidden(1), unjoined=self.unjoined,
            fetch=min(self.fetches, default=0.0), arm=_quartile(self.arms, 1), most_arm=_quartile(self.arms, 2),
            rest=_quartile(self.rests, 2), behind=_quartile(self.behind, 2),
            settle=max(self.settles, default=0.0), wakeups=max(self.wakeups, default=0))

    def call(
        self, generator: random.Random, how: str, *, checked: bool = False, watched: bool = False,
        values: str = "given", lines: bool = False,
    ) -> float:
        """One call, in each mode. Raises :class:`Failure` when it fails, or claims more than the clock allows.

        The output of a ``checked`` call is fetched and judged, with ``lines`` its columns too; the worker of a
        ``watched`` call looks at what may be replaced before it gets the contents, and is left alone for a while once it
        is armed, and on the CPU once it has answered too, when it should be idle.
        """
        key, total, taken = generator.getrandbits(48), 0.0, 0.0
        seen: list[tuple[float, int] | None] = []
        for mode in self.modes:
            self._arm(mode, key, watched, values)
            if watched:
                seen.append(self.worker.settle())
            sample, whole = self._go(how, fenced=values == "given")
            total, taken = total + sample, taken + whole
            if watched and not self.cuda:  # what is left to a GPU is waited for
                seen.append(self.worker.settle())
            if checked:
                self._fetch(mode, key, values, lines)
        self._keep(list(filter(None, seen)))
        if how == "event":
            self.taken.append(taken)
        return total

    def try_other_values(self, generator: random.Random, most: int | None = None) -> None:
        """Checked calls that are no samples, with other values than the problem gives, all kinds or ``most`` of them: who
        knows its values, and saves work by that in batches of this size or while it is timed, is wrong here."""
        for values in generator.sample(self.values, len(self.values))[:most]:
            self.call(generator, "event", checked=True, values=values)

    def _arm(self, mode: str, key: int, watched: bool, values: str) -> None:
        started = time.perf_counter_ns()
        reply = self.worker.ask("arm", key=key, mode=mode, cold=self.cold, watched=watched, values=values)
        if not watched:  # the watch takes its time
            self.arms.append((time.perf_counter_ns() - started) / 1e6)
        raise_if_failed(reply, Phase.TIME)
        _raise_if_touched(reply)

    def _keep(self, seen: list[tuple[float, int]]) -> None:
        """What a watched call came to at worst."""
        if seen:
            self.settles.append(max(ms for ms, _ in seen))
            self.wakeups.append(max(wakeups for _, wakeups in seen))

    def _go(self, how: str, *, fenced: bool) -> tuple[float, float]:
        """The sample, and what the parent's clock says of the call but for the work queued in front. Without a fence,
        it is none: other streams may begin before the clock, and then find other contents."""
        sleep_ns = self.sleep_ns
        reply, took, rest = self.worker.go(how=how, sleep_ns=sleep_ns, fenced=fenced)
        self.rests.append(rest / 1e6)
        raise_if_failed(reply, Phase.TIME)
        if reply.get("alias"):
            reason = "in a timed call: the output shares memory with an earlier one"
            raise Failure(Status.ALIASED_OUTPUT, reason, Phase.TIME)
        claimed = reply.get("ns")
        if not isinstance(claimed, int) or not 0 < claimed <= took:
            raise Failure(Status.SUSPICIOUS, f"it claims {claimed!r:.30} ns for a call that took {took} ns", Phase.TIME)
        if how == "event":
            self.outside.append((took - claimed - sleep_ns) / 1e6)
            if isinstance(reply.get("behind_ns"), int):
                self.behind.append(reply["behind_ns"] / 1e6)
            if isinstance(reply.get("launch_ns"), int):
                self.launches.append(reply["launch_ns"] / 1e6)
        if reply.get("exposed") is True and self.doublings < SLEEP_DOUBLINGS:
            self.doublings += 1
            self.sleep_ns = min(2 * self.sleep_ns, MOST_SLEEP_NS)
        return claimed / 1e6, (took - sleep_ns) / 1e6

    def _fetch(self, mode: str, key: int, values: str, lines: bool) -> None:
        started = time.perf_counter_ns()
        reply = self.worker.ask("fetch", mode=mode)
        self.fetches.append((time.perf_counter_ns() - started) / 1e6)
        raise_if_failed(reply, Phase.TIME)
        _raise_if_touched(reply)
        if self.check is not None:
            self.check(reply, mode, key, values, lines)

    def burst(
        self, calls: int, generator: random.Random, checked: int = -1, *, watched: bool = False, lines: bool = False,
        checked_synced: bool = False,
    ) -> bool:
        """Make a burst of ``calls`` samples; calls bracketed by synchronisations are made beside them.

        The output of the sample of number ``checked`` is fetched and judged, with ``lines`` its columns too, at once or
        after the worker was watched; so is with ``checked_synced`` that of the first synchronised call; returned is
        whether that is still to be done.
        """
        samples: list[float] = []
        while len(samples) < calls:
            if self.cuda and generator.random() < SYNC_SHARE:
                self.synced.append(self.call(generator, "sync", checked=checked_synced))
                checked_synced = False
            else:
                now = len(samples) == checked
                samples.append(self.call(generator, "event", checked=now, watched=now and watched, lines=lines))
        self.bursts.append(tuple(samples))
        return checked_synced

    def forget(self) -> None:
        """Begin anew, without samples."""
        self.bursts, self.outside, self.taken, self.synced = [], [], [], []
        self.fetches, self.arms, self.rests, self.behind = [], [], [], []
        self.launches, self.settles, self.wakeups = [], [], []

    def timing(self, depth: Depth, session: str, conditions: tuple[tuple[str, str | float], ...] = ()) -> Timing:
        return Timing(self.name, depth, session, tuple(self.bursts), self.prepare_ms, conditions)


def _raise_if_touched(reply: Mapping[str, Any]) -> None:
    if reply.get("late"):
        raise Failure(Status.SUSPICIOUS, "in a timed call: its output changed after forward returned", Phase.TIME)
    if reply.get("overwritten"):
        reason = "in a timed call: it wrote over an earlier call's output"
        raise Failure(Status.ALIASED_OUTPUT, reason, Phase.TIME)
    if reply.get("mutated"):
        raise Failure(Status.MUTATED_INPUT, f"in a timed call: it wrote into {reply['mutated']}", Phase.TIME)


def _quartile(values: Sequence[float], number: int) -> float:
    """The lower quartile (0), the median (1) or the upper quartile (2)."""
    return quantiles(values, n=4)[number] if len(values) > 1 else values[0] if values else 0.0


def calls_per_burst(steady_ms: float, device_type: str) -> int:
    """As many calls as fill the time of a screening's burst."""
    filling = round(BURST_SECONDS[device_type] * 1000 / max(steady_ms, 1e-3))
    return max(MIN_CALLS, min(SCREEN_CALLS[device_type], filling))


def sleep_ns(launch_ns: int) -> int:
    """Nanoseconds of work to queue in front of a sample of a call that takes ``launch_ns`` to launch."""
    return min(int(SLEEP_FACTOR * launch_ns + SLEEP_NS), MOST_SLEEP_NS)


def least_ms(moved_bytes: int, gbytes_per_second: float, device_type: str) -> float:
    """What moving inputs and outputs once takes at least, by the rate of a device copy and a margin."""
    return moved_bytes / (gbytes_per_second * COPY_MARGIN[device_type]) / 1e6


def screen(runner: Runner, generator: random.Random, bursts: int = SCREEN_BURSTS) -> None:
    """Time a subject alone and briefly; one output of each burst is checked, the last among them, with its columns, and
    of one burst, which is drawn, after watching. On a GPU, that of another is one of a synchronised call. In front of
    some burst there is a call with other values, of a kind that is drawn, and later there are some of each: who is careful
    until the first has come is seen."""
    calls = calls_per_burst(runner.steady_ms, "cuda" if runner.cuda else "cpu")
    watched, tried = generator.randrange(bursts), generator.randrange(bursts)
    again = generator.randrange(tried, bursts) + 1  # it may come behind all bursts
    synced = generator.choice([n for n in range(bursts - 1) if n != watched]) if runner.cuda else bursts
    owed = False
    for number in range(bursts):
        last = number == bursts - 1
        if number in (tried, again):
            runner.try_other_values(generator, 1 if number == tried else None)
        checked = calls - 1 if last else -1 if number == synced else generator.randrange(calls)
        owed = runner.burst(calls, generator, checked, watched=number == watched, lines=last,
                            checked_synced=owed or number == synced)
    if again == bursts:
        runner.try_other_values(generator)


def interleave(
    runners: Sequence[Runner], seconds: float, generator: random.Random, failed: Callable[[Runner, Failure], None]
) -> list[Runner]:
    """Time ``runners`` in turns B A C, C A B, ... (an order that is drawn, then the other way) for at least
    :data:`FINAL_BURSTS` rounds and about ``seconds``.

    Ends early when every ratio to the fastest is known narrowly. A runner that fails is reported to ``failed`` and
    left out; those that remain are returned.
    """
    started = time.monotonic()
    alive = list(runners)

    def attempt(runner: Runner, calls: Callable[[], object]) -> None:
        try:
            calls()
        except Failure as failure:
            alive.remove(runner)
            failed(runner, failure)

    for runner in runners:
        attempt(runner, partial(runner.call, generator, "event"))
    lap = time.monotonic() - started  # a call of each, with all that is done around it
    calls = calls_of_finals(seconds, lap, cuda=any(runner.cuda for runner in alive))
    for runner in alive:
        runner.forget()
    rounds, order = 0, list(alive)
    watched = generator.sample(range(FINAL_BURSTS), WATCHED_ROUNDS)
    while alive and (rounds < FINAL_BURSTS or (time.monotonic() - started < seconds and not _narrow(alive))):
        order = generator.sample(alive, len(alive)) if rounds % 2 == 0 else [r for r in order[::-1] if r in alive]
        for runner in order:
            attempt(runner, partial(_turn, runner, calls, generator, watched=rounds in watched))
        rounds += 1
    return alive


def finals(
    runners: Sequence[Runner], seconds: float, generator: random.Random, failed: Callable[[Runner, Failure], None],
    doubted: Callable[[Sequence[Runner]], bool],
) -> list[Runner]:
    """:func:`interleave`, and once more from the beginning where what came out is ``doubted``: a busy machine accuses
    the innocent. No sample of a session that was doubted is kept."""
    alive = interleave(runners, seconds, generator, failed)
    if not doubted(alive):
        return alive
    _level(alive)
    return interleave(alive, seconds, generator, failed)


def _level(runners: Sequence[Runner]) -> None:
    """Queue as much work in front of everybody's samples: what their calls take outside these can be compared then. That
    work hides launches from who has more of it, and a GPU that is throttled does it more slowly than was asked for."""
    most = max((runner.sleep_ns for runner in runners), default=0)
    for runner in runners:
        runner.sleep_ns = most


def calls_of_finals(seconds: float, lap: float, *, cuda: bool) -> int:
    """Samples to a burst, so that :data:`FINAL_BURSTS` rounds take ``seconds``; a call of each subject takes ``lap``."""
    turns = seconds / (FINAL_BURSTS * max(lap, 1e-6)) - 1  # the first call of a burst is no sample
    return max(1, min(MAX_CALLS, int(turns * (1 - SYNC_SHARE) if cuda else turns)))


def _turn(runner: Runner, calls: int, generator: random.Random, *, watched: bool) -> None:
    """One burst of finals, behind a call that is no sample: clocks and caches are what another subject left."""
    checked = generator.randrange(calls) if watched or generator.random() < CHECK_SHARE else -1
    if watched or generator.random() < CHECK_SHARE:
        runner.try_other_values(generator)
    runner.call(generator, "event")
    runner.burst(calls, generator, checked, watched=watched, lines=watched, checked_synced=checked >= 0)


def _narrow(runners: Sequence[Runner]) -> bool:
    timings = [runner.timing(Depth.FINAL, "") for runner in runners]
    fastest = min(timings, key=lambda timing: median(map(median, timing.bursts)))
    return all(ratio_interval(t, fastest, resamples=200).width < NARROW for t in timings if t is not fastest)


def believe(
    runner: Runner, *, eager: Habits | None, floor_ms: float, beside: Runner | None = None,
    generator: random.Random | None = None,
) -> None:
    """Raises :class:`Failure` where the subject touched what is not its own, or its samples cannot be believed.

    What is doubted is timed anew in turns with PyTorch (``beside``), where it is given, some times at most: on a busy
    machine, the habits of another moment accuse the innocent. Only the samples that are believed are kept, and on a GPU
    none of who takes far longer then than it claimed before.
    """
    reason = doubts(runner, eager=eager, floor_ms=floor_ms)
    for _ in range(HEARINGS):
        if not reason or runner.middle < floor_ms or beside is None or generator is None:
            break  # nobody is too fast because the machine is busy
        if not beside.bursts:  # who was heard before failed meanwhile
            beside.burst(MIN_CALLS, generator)
        claimed, usual = runner.middle, beside.middle
        runner.forget()
        beside.forget()
        for subject in (beside, runner) * HEARING_ROUNDS:
            _level((beside, runner))
            if generator.random() < CHECK_SHARE:
                subject.try_other_values(generator)
            subject.burst(MIN_CALLS, generator, MIN_CALLS - 1, watched=True, checked_synced=True)
        # On the CPU, threads that were let sleep while they were watched are slow for a while.
        if runner.cuda and runner.middle > OTHERWISE * claimed * max(1.0, beside.middle / usual):
            reason = f"it claimed {claimed:.3g} ms before it was doubted, and takes {runner.middle:.3g} ms"
            break
        reason = doubts(runner, eager=beside.habits(), floor_ms=floor_ms)
    audit(runner.worker)
    if reason:
        raise Failure(Status.SUSPICIOUS, reason, Phase.TIME)


def doubts(runner: Runner, *, eager: Habits | None, floor_ms: float) -> str:
    """Why ``runner``'s samples cannot be believed, in one line; empty where they can.

    ``eager`` is what PyTorch's own calls take; ``floor_ms`` is the time that moving the inputs and outputs once takes
    at least.
    """
    middle = runner.middle
    if middle < floor_ms:
        return f"{middle:.4g} ms is less than reading the inputs and writing the outputs once takes ({floor_ms:.4g} ms)"
    if eager is None:
        return ""
    outside = _quartile(runner.outside, 0)  # a busy machine slows many calls, not all
    if outside > max(0.0, eager.outside) + HIDDEN_MS + HIDDEN_SHARE * middle:
        return f"a call takes {outside:.3g} ms outside its sample, PyTorch's {eager.outside:.3g} ms"
    # Who hides time in some calls only, a little over half of them, does not get these through faster.
    hidden, usual = runner.hidden(0), max(0.0, eager.hidden)
    if hidden > usual + HIDDEN_MS + HIDDEN_SHARE * middle:
        return f"calls take {hidden:.3g} ms longer than the middle one of their samples, PyTorch's {usual:.3g} ms"
    if runner.unjoined > eager.unjoined + UNJOINED_MS + UNJOINED_SHARE * middle + runner.launch_ms:
        return (f"a call takes {runner.unjoined:.3g} ms more when the whole device is waited for: "
                f"work outside its stream")
    behind = _quartile(runner.behind, 2)
    if behind > max(0.0, eager.behind) + BEHIND_MS:  # PyTorch's is less than none where its launches show
        return (f"the device is done {behind:.3g} ms after its stream, PyTorch's {eager.behind:.3g} ms: "
                f"work outside its stream")
    usually = BESIDE_FACTOR, BESIDE_MS + BESIDE_SHARE * middle, ""
    least = LEAST_FACTOR, LEAST_MS["cuda" if runner.cuda else "cpu"], " at least"
    for what, taken, usual, (factor, more, word) in (
        ("its output takes", min(runner.fetches, default=0.0), eager.fetch, usually),
        ("getting ready for a call takes", _quartile(runner.arms, 1), eager.arm, usually),
        ("getting ready for a call takes", _quartile(runner.arms, 0), eager.most_arm, least),
        ("what follows a call takes", _quartile(runner.rests, 0), eager.rest, least),
    ):
        if taken > factor * usual + more:
            return f"{what} {taken:.3g} ms{word}, PyTorch's {usual:.3g} ms: work done beside the call"
    settle, wakeups = _quartile(runner.settles, 1), _quartile(runner.wakeups, 1)
    if settle > eager.settle + SETTLE_MS:
        return f"its threads work for {settle:.3g} ms when nothing is asked of it, PyTorch's for {eager.settle:.3g} ms"
    if wakeups > eager.wakeups + WAKEUPS:
        return f"its threads wake up {wakeups:g} times when nothing is asked of it, PyTorch's {eager.wakeups} times"
    return ""
