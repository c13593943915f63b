"""Tuning of kernel tasks: which variants are tried, in which order, until when. Each result is stored at once.

    round 1    every task, by its predicted time and its uses: a few variants and the library
    round 2..  tasks that still take a part of the time: more variants, the likely ones first

Variants that the database knows in this environment are not measured again, unless they would render to another text.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

from kgen.candidate import ParamValue
from kgen.errors import RenderError
from kgen.evaluator.pool import SourceBuilder
from kgen.protocol import BuildReport, Status
from kgen.store import Database, tasks
from kgen.store.kernel_task import THE_LIBRARY, Measured, Variant
from kgen.tuning import events
from kgen.tuning.tasks.bench import Bench, Place
from kgen.tuning.tasks.parts import Catalogue, Part
from kgen.tuning.tasks.task import KernelTask
from kgen.tuning.tasks.unit import Unit, text_hash, units

ROUNDS = (4, 8, 16)  #: variants of a task, at most, after each round
_UNIT = 4  #: variants of a file: with more, one build takes longer than several beside each other
_AHEAD = 4  #: files for each build at once that are built ahead: timings may wait for the compiler of a baseline
_BEHIND = 4  #: builds of candidates on their way, at most: these come first
_WORTH = 0.01  #: part of the time of an option; later rounds leave out tasks of less
_AGAIN = {Status.INFRA_ERROR, Status.OUT_OF_MEMORY}  #: results that say nothing of the text


@dataclass
class Work:
    """A task while it is tuned: its step in an option, how often that occurs, and the results by variant."""

    task: KernelTask
    parts: list[Part]
    uses: int
    found: dict[Variant, tasks.StoredResult] = field(default_factory=dict)

    @property
    def ms(self) -> float:
        """Milliseconds of all uses: of the fastest right variant, else predicted."""
        right = [r.ms for r in self.found.values() if r.ms is not None]
        return self.uses * (min(right) if right else self.parts[0].ms)

    @property
    def variants(self) -> list[Variant]:
        """The variants that steps of this task may have, the simplest first; the library's last."""
        found = dict.fromkeys(variant for part in self.parts for variant in part.variants())
        return [*found, *([THE_LIBRARY] if self.task.control and THE_LIBRARY not in found else [])]


class Tuner:
    """Tunes the tasks of a catalogue on one device. One thread may use it, and closes it."""

    def __init__(
        self,
        catalogue: Catalogue,
        place: Place,
        builder: SourceBuilder,
        database: Database,
        sweep: str,
        *,
        jobs: int,
        home: Path,
        fresh: bool,
        on_event: events.Listener,
        failed: Callable[[KernelTask, Exception], None],
    ) -> None:
        self.catalogue = catalogue
        self._place, self._builder, self._database, self._jobs, self._home = place, builder, database, jobs, home
        self._until, self._on_event, self._failed = math.inf, on_event, failed
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="kgen-task")
        self._ahead: _Ahead | None = None  # of the first round, once it has begun
        uses = catalogue.uses
        self.works = {
            key: Work(part.task, parts, uses[key])
            for key, parts in catalogue.tasks.items()
            for part in parts[:1]
            if part.task
        }
        self._liking = _Liking()
        self._done = 0
        tasks.add_tasks(database, sweep, catalogue.stored)
        if not fresh:
            self._look_up()

    def start(self) -> None:
        """Begin to build the first round, beside other work on the device."""
        self._ahead = self._built_ahead(self._chosen(ROUNDS[0], first=True))

    def run(self, until: float) -> None:
        """Measure variants, round by round, until a time on the monotonic clock. Ctrl-C leaves what is known."""
        self._until = until
        with Bench(self._place, self._home / "scratch") as bench:
            for number, most in enumerate(ROUNDS):
                ahead, self._ahead = self._ahead or self._built_ahead(self._chosen(most, first=not number)), None
                try:
                    if ahead.count and not self._round(ahead, bench):
                        break
                finally:
                    ahead.close()

    def close(self) -> None:
        """Build nothing more. Running builds go on until their processes end."""
        if self._ahead is not None:
            self._ahead.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _built_ahead(self, chosen: Sequence[tuple[Work, list[Variant]]]) -> _Ahead:
        return _Ahead(
            self._files(chosen),
            len(chosen),
            lambda source: self._pool.submit(self._builder.build, source, _BEHIND),
            _AHEAD * self._jobs,
        )

    def _look_up(self) -> None:
        """Take over stored results whose text still renders."""
        for key, results in tasks.known(self._database, self.works, self._place.environment.id).items():
            work = self.works[key]
            possible = set(work.variants)
            for result in results:
                if (
                    result.variant in possible
                    and result.variant not in work.found
                    and result.status not in _AGAIN
                    and self._renders(work, result)
                ):
                    self._take(work, result)

    def _renders(self, work: Work, result: Measured) -> bool:
        try:
            return text_hash(work.task, result.variant) == result.text
        except RenderError:
            return False

    def _take(self, work: Work, result: tasks.StoredResult) -> None:
        work.found[result.variant] = result
        self._liking.learn(work, result)

    def _chosen(self, most: int, *, first: bool) -> list[tuple[Work, list[Variant]]]:
        """The tasks of a round with their new variants; those that take longest come first."""
        total = sum(work.ms for work in self.works.values())
        found = []
        for work in sorted(self.works.values(), key=lambda work: -work.ms):
            if not first and work.ms < _WORTH * total:
                continue
            tried = sum(bool(v.schedule) for v in work.found)
            new = [v for v in self._liking.ranked(work) if v.schedule and v not in work.found][: max(0, most - tried)]
            new += [v for v in work.variants if not v.schedule and v not in work.found]
            if new:
                found.append((work, new))
        return found

    def _round(self, ahead: _Ahead, bench: Bench) -> bool:
        """Measure the files of a round. Returns whether there is time for another one."""
        self._done, started, left = 0, time.monotonic(), ahead.count
        current: Work | None = None
        while True:
            if time.monotonic() >= self._until or (file := ahead.next()) is None:
                return time.monotonic() < self._until
            work, unit, build = file
            if work is not current:
                self._done, current = self._done + 1, work
                spent = time.monotonic() - started
                seconds = spent / (self._done - 1) * (left - self._done + 1) if self._done > 1 else None
                self._tell(work, left, seconds)
            self._measure(work, unit, build.result(), bench)

    def _files(self, chosen: Sequence[tuple[Work, list[Variant]]]) -> Iterator[tuple[Work, Unit]]:
        """The files of a round. A task whose rendering fails costs itself."""
        for work, variants in chosen:
            try:
                yield from ((work, unit) for unit in units(work.task, variants, _UNIT))
            except Exception as error:
                self._failed(work.task, error)

    def _measure(self, work: Work, unit: Unit, build: BuildReport, bench: Bench) -> None:
        """Measure the variants of a file; where it does not build, each in a file of its own."""
        if not build.ok and len(unit.variants) > 1 and not build.from_outside:
            for alone in (one for variant in unit.variants for one in units(work.task, [variant], 1)):
                self._measure(work, alone, self._builder.build(alone.candidate.source), bench)
            return
        for measured in bench.measure(unit, build):
            if not build.from_outside:
                self._take(work, tasks.add_result(self._database, work.task.id, self._place.environment.id, measured))

    def _tell(self, work: Work, of: int, seconds: float | None) -> None:
        until = self._until - time.monotonic()
        left = min(seconds, until) if seconds is not None else until
        self._on_event(events.Tuning(self._done, of, work.task.label, left if math.isfinite(left) else None))


class _Ahead:
    """The files of a round in their order, rendered and given to the builders by a thread, up to ``most`` ahead.

    ``count`` is the number of tasks in the round.
    """

    def __init__(
        self, files: Iterator[tuple[Work, Unit]], count: int, build: Callable[[str], Future[BuildReport]], most: int
    ) -> None:
        self.count = count
        self._files, self._build, self._closed = files, build, threading.Event()
        self._ready: Queue[tuple[Work, Unit, Future[BuildReport]] | None] = Queue(most)
        threading.Thread(target=self._fill, name="kgen-task-files", daemon=True).start()

    def next(self) -> tuple[Work, Unit, Future[BuildReport]] | None:
        """The next file; ``None`` behind the last one."""
        return self._ready.get()

    def close(self) -> None:
        """Render nothing more."""
        self._closed.set()
        with contextlib.suppress(Empty):
            while True:
                self._ready.get_nowait()

    def _fill(self) -> None:
        with contextlib.suppress(RuntimeError):  # the builders are closed
            for work, unit in self._files:
                if self._closed.is_set():
                    break
                self._ready.put((work, unit, self._build(unit.candidate.source)))
        self._ready.put(None)


class _Liking:
    """Parameters by the answers so far: the mean log of a time over the task's fastest, for each value in a
    schedule."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str, ParamValue], dict[tuple[str, Variant], float]] = {}

    def learn(self, work: Work, result: Measured) -> None:
        """Take in a result, and what it changes for others of its task."""
        best = min((r.ms for r in work.found.values() if r.ms and r.variant.schedule), default=None)
        for other in work.found.values():
            if best is None or not other.variant.schedule:
                continue
            log = math.log(other.ms / best) if other.ms else _FAILED
            for name, value in other.variant.params:
                self._logs.setdefault((other.variant.schedule, name, value), {})[work.task.id, other.variant] = log

    def ranked(self, work: Work) -> list[Variant]:
        """The variants of a task, the likely ones first; without any answer, such that the first ones tell most."""
        spread: dict[Variant, int] = {}
        for part in work.parts:
            if part.space is not None:
                for variant, place in zip(part.variants(), part.space.spread):
                    spread.setdefault(variant, place)
        return sorted(spread, key=lambda variant: (round(self._expected(variant), 2), spread[variant]))

    def _expected(self, variant: Variant) -> float:
        logs = (self._logs.get((variant.schedule, name, value), {}).values() for name, value in variant.params)
        return sum(sum(of) / len(of) for of in logs if of)


_FAILED = 1.0  #: log of the time of a variant that is not right
