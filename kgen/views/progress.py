"""A running sweep or evaluation of one file: a live line on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import AbstractContextManager
from typing import Callable, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from kgen.protocol import Status
from kgen.tuning import events
from kgen.views import plain, text

_SEARCHING = "trying candidates"
LINE = 100  #: columns of a line of progress
_NUMBERS = 8  #: of them, for the numbers in front
_DETAILS = 3  #: of a line, that may be left out


class Tally:
    """The results of a sweep so far, gathered from its events."""

    def __init__(self) -> None:
        self.started: events.Started | None = None
        self.finished: events.Finished | None = None
        self.phase = "starting"
        self.counts: Counter[Status] = Counter()
        self.best: events.Evaluated | None = None  #: by screening; final timing never changes it
        self.built = 0
        self.tuning: events.Tuning | None = None  #: while kernels of a network are tuned
        self.cluster: events.Cluster | None = None
        self._judged = 0
        self._began_at = time.monotonic()
        self._first_at = 0.0  #: when the first candidate was judged, after the set-up

    def add(self, event: events.Event) -> None:
        """Take in one event."""
        if isinstance(event, events.Step):
            self.tuning, self.phase = None, event.text
        elif isinstance(event, events.Started):
            self.started = event
        elif isinstance(event, events.Cluster):
            self.cluster = event
        elif isinstance(event, events.Measured):
            self.phase = _SEARCHING
        elif isinstance(event, events.Tuning):
            self.tuning, self.phase = event, f"tuning kernel {event.number} of {event.of}"
        elif isinstance(event, events.Finals):
            self.phase = f"timing {_leaders(len(event.candidates))} beside the baselines"
        elif isinstance(event, events.Finished):
            self.finished = event
        elif isinstance(event, events.Built):
            self.built += 1
        elif isinstance(event, events.Evaluated):
            self._add_evaluated(event)

    def _add_evaluated(self, event: events.Evaluated) -> None:
        self._judged += 1
        self._first_at = self._first_at or time.monotonic()
        self.counts[event.evaluation.status] += 1
        if not event.candidate.control and event.speedup is not None:
            best = self.best.speedup if self.best else None
            if best is None or event.speedup.mid > best.mid:
                self.best = event

    @property
    def done(self) -> int:
        """Candidates judged, by this process or an earlier one of the sweep."""
        return self._judged + (self.started.found_done if self.started else 0)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the search ends, or ``None`` before the second candidate.

        The rate since the first candidate tells how long the rest of the budget takes. The time limit may end it
        before. While kernels are tuned, it is the time until that ends.
        """
        if self.tuning:
            return self.tuning.seconds_left
        if not self.started or self._judged < 2:
            return None
        rate = (time.monotonic() - self._first_at) / (self._judged - 1)
        left = max(0, self.started.budget - self.done) * rate
        if self.started.seconds is None:
            return left
        return min(left, max(0.0, self._began_at + self.started.seconds - time.monotonic()))

    @property
    def a_minute(self) -> float:
        """Candidates judged a minute since the first one; 0 before the second."""
        return 60.0 * (self._judged - 1) / (time.monotonic() - self._first_at) if self._judged > 1 else 0.0

    @property
    def line(self) -> str:
        """The phase, the cluster, the numbers built, right and failed by kind, the best screening, and the time
        left."""
        return self.within(LINE - _NUMBERS)

    def within(self, most: int) -> str:
        """The line in ``most`` characters: where it is longer, plan, kinds and interval go, in this order."""
        lines = (self._line(left_out) for left_out in range(_DETAILS + 1))
        found = next((line for line in lines if len(line) <= most), None)
        return found or text.cut(self._line(_DETAILS), most)

    def _line(self, left_out: int) -> str:
        """The line without the first ``left_out`` of its details."""
        plan, kinds, interval = (left_out < number for number in range(1, _DETAILS + 1))
        parts = [self.phase, *([text.cluster(self.cluster, self.a_minute)] if self.cluster else [])]
        parts += [f"built {self.built}", f"right {self.counts[Status.OK]}"]
        parts += [f"duplicate {self.counts[Status.DUPLICATE]}"] if self.counts[Status.DUPLICATE] else []
        parts += self._failed(kinds)
        if self.best and (speedup := self.best.speedup):
            figures = text.speedup(speedup.mid, *((speedup.low, speedup.high) if interval else ()))
            named = f", {text.plan(self.best.candidate.plan, self.best.candidate.plan_data)}" if plan else ""
            parts.append(f"best {figures}, {text.milliseconds(self.best.median_ms)}{named}")
        parts += [f"{text.duration(self.seconds_left)} left"] if self.seconds_left else []
        return "  ".join(parts)

    def _failed(self, kinds: bool) -> list[str]:
        """The number that failed, with their ``kinds``."""
        failed = {status: n for status, n in self.counts.most_common() if status not in (Status.OK, Status.DUPLICATE)}
        named = ", ".join(f"{status} {number}" for status, number in failed.items())
        return [f"failed {sum(failed.values())}" + (f" ({named})" if kinds else "")] if failed else []


class Watch(AbstractContextManager["Watch"]):
    """A listener that keeps the tally of a sweep, and shows nothing."""

    def __init__(self) -> None:
        self.tally = Tally()

    def __call__(self, event: events.Event) -> None:
        """Take in one event."""
        self.tally.add(event)
        self.show(event)

    def show(self, event: events.Event) -> None:
        """Show an event that the tally has already."""

    def __exit__(self, *exception: object) -> None:
        """Release nothing."""


class JsonLines(Watch):
    """Writes each event as one line of JSON. The phase before the start follows it, so that bad input prints
    nothing."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self._held: events.Step | None = None  #: the phase before the start

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.Step) and self.tally.started is None:
            self._held = event
            return
        self._write_event(event)
        if isinstance(event, events.Started) and self._held:
            self._write_event(self._held)
            self._held = None

    def _write_event(self, event: events.Event) -> None:
        self._write(plain.dumps(plain.event(event), indent=None))


class OnBars(Watch):
    """A listener that shows bars on a terminal: ``columns``, then how far each is, its time, and a line of text."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        super().__init__()
        self._console = console
        self._bar = Progress(
            *columns,
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()


class Live(OnBars):
    """Overwrites one line on a terminal; prints one line for each change elsewhere, from the start of the sweep on."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._task = self._bar.add_task("sweep", total=None, line=self.tally.phase)
        self._printed: object = None  #: the state that the last plain line showed

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.Started):
            self._started(event)
        elif isinstance(event, events.Notice):
            self._console.print(event.text, style="yellow")
        elif isinstance(event, events.Measured):
            where = f" on {event.device}" if self.tally.started and self.tally.started.device != event.device else ""
            self._console.print(f"baselines{where}: {text.baselines(dict(event.baselines))}")
        if not isinstance(event, events.Finished):
            self._went_on()

    def _started(self, event: events.Started) -> None:
        self._console.print(f"{event.problem}, {event.mode} mode, accuracy {event.accuracy}")
        self._console.print(f"on {event.device}: {text.environment(event.environment)}")
        space = (
            f"{event.plans} plans, {text.combinations(event.combinations)} combinations, {event.rejected} more ruled "
            "out"
        )
        self._console.print(f"sweep {event.sweep}: {space}; trying {event.budget}, into {event.db}")
        if event.found_done:
            self._console.print(f"continuing: {event.found_done} were done before")

    def _went_on(self) -> None:
        """Show the present state: on the live line, or as one more line where it changed."""
        tally = self.tally
        if not self._bar.disable:
            total = tally.started.budget if tally.started else None
            self._bar.update(self._task, total=total, completed=tally.done, line=tally.line)
            return
        devices = tally.cluster and (tally.cluster.nodes, tally.cluster.devices)
        state = (tally.phase, tally.done, devices)
        if tally.started and state != self._printed:
            self._printed = state
            numbers = f"{tally.done}/{tally.started.budget}  "
            self._console.print(numbers + tally.within(LINE - len(numbers)), soft_wrap=True)


class Notices(Watch):
    """Writes notices, and nothing else."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.Notice):
            self._write(event.text)


class Steps(Watch):
    """Shows the steps of the evaluation of one file: beside a spinner on a terminal, one line for each elsewhere.

    Plain lines begin when the evaluator has started, so that bad input prints nothing.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._spinner = console.status("starting")
        self._opened = False

    def __enter__(self) -> Steps:
        self._spinner.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._spinner.stop()

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.Notice):
            self._console.print(event.text, style="yellow")
        elif isinstance(event, events.Opened):
            self._console.print(f"{event.problem.title}, {event.problem.mode} mode, accuracy {event.accuracy}")
            self._console.print(f"on {event.device}: {text.environment(event.environment)}")
            self._console.print(f"eval {event.sweep}: {event.file}, into {event.db}")
            self._opened = True
        elif isinstance(event, events.Step):
            self._step(event.text)

    def _step(self, what: str) -> None:
        self._spinner.update(what)
        if self._opened and not self._console.is_terminal:
            self._console.print(what)


def _leaders(number: int) -> str:
    return "the leader" if number == 1 else f"{number} leaders"
