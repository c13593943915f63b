"""A sweep, or the evaluation of one file, as it runs: live on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import AbstractContextManager
from typing import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from kgen import events
from kgen.evaluator.protocol import Status
from kgen.views import plain, text

_PLAIN_SECONDS = 5.0  #: between two lines where the output is no terminal


class Tally:
    """What a sweep has brought so far: fed with its events, read by whoever shows them."""

    def __init__(self) -> None:
        self.started: events.Started | None = None
        self.finished: events.Finished | None = None
        self.counts: Counter[Status] = Counter()
        self.best: events.Evaluated | None = None
        self.built = 0
        self._judged = 0
        self._began_at = time.monotonic()
        self._first_at = 0.0  #: when the first one was judged, which waits for all that is set up once

    def add(self, event: events.Event) -> None:
        """Take in one event."""
        if isinstance(event, events.Started):
            self.started = event
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
        """Candidates judged, those found done among them."""
        return self._judged + (self.started.found_done if self.started else 0)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest of the budget takes at the rate since the first candidate, if the time that the sweep was
        given is not up before."""
        if not self.started or self._judged < 2:
            return None
        rate = (time.monotonic() - self._first_at) / (self._judged - 1)
        left = max(0, self.started.budget - self.done) * rate
        if self.started.seconds is None:
            return left
        return min(left, max(0.0, self._began_at + self.started.seconds - time.monotonic()))

    @property
    def line(self) -> str:
        """Built, right, failed by kind, best so far with the interval of its screening, time left."""
        failed = {status: n for status, n in self.counts.most_common() if status not in (Status.OK, Status.DUPLICATE)}
        kinds = ", ".join(f"{status} {number}" for status, number in failed.items())
        parts = [f"built {self.built}", f"right {self.counts[Status.OK]}"]
        parts += [f"duplicate {self.counts[Status.DUPLICATE]}"] if self.counts[Status.DUPLICATE] else []
        parts += [f"failed {sum(failed.values())} ({kinds})"] if failed else []
        if self.best and (speedup := self.best.speedup):
            figures = f"{text.speedup(speedup.mid, speedup.low, speedup.high)}, {text.milliseconds(self.best.median_ms)}"
            parts.append(f"best {figures}, {self.best.candidate.plan}")
        if self.seconds_left:
            parts.append(f"{text.duration(self.seconds_left)} left")
        return "  ".join(parts)


class Watch(AbstractContextManager["Watch"]):
    """What events are told to: keeps a sweep's tally, and shows nothing."""

    def __init__(self) -> None:
        self.tally = Tally()

    def __call__(self, event: events.Event) -> None:
        """Take in one event."""
        self.tally.add(event)
        self.show(event)

    def show(self, event: events.Event) -> None:
        """Tell people of an event that the tally holds already."""

    def __exit__(self, *exception: object) -> None:
        """Nothing is held."""


class JsonLines(Watch):
    """Writes each event as one line of JSON."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def show(self, event: events.Event) -> None:
        self._write(plain.dumps(plain.event(event), indent=None))


class Live(Watch):
    """Shows a live line on a terminal, or a plain one every few seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._task: TaskID | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="kgen-progress", daemon=True)

    def __enter__(self) -> Live:
        self._bar.start()
        if self._bar.disable:
            self._ticker.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()
        self._ended.set()

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.Started):
            self._started(event)
        elif isinstance(event, events.Notice):
            self._console.print(event.text, style="yellow")
        elif isinstance(event, events.Measured):
            where = f" on {event.device}" if self.tally.started and self.tally.started.device != event.device else ""
            self._console.print(f"baselines{where}: {text.baselines(dict(event.baselines))}")
        elif isinstance(event, (events.Built, events.Evaluated)):
            self._went_on()
        elif isinstance(event, events.Finals):
            self._finals(event)
        elif isinstance(event, events.Finished):
            self._ended.set()

    def _started(self, event: events.Started) -> None:
        self._console.print(f"{event.problem}, {event.mode} mode, accuracy {event.accuracy}")
        self._console.print(f"on {event.device}: {text.environment(event.environment)}")
        space = f"{event.plans} plans, {event.combinations} combinations, {event.rejected} more ruled out"
        self._console.print(f"sweep {event.sweep}: {space}; trying {event.budget}, into {event.db}")
        if event.found_done:
            self._console.print(f"going on: {event.found_done} found done")
        self._task = self._bar.add_task("sweep", total=event.budget, completed=event.found_done, line="")

    def _went_on(self) -> None:
        if self._task is not None:
            self._bar.update(self._task, completed=self.tally.done, line=self.tally.line)

    def _finals(self, event: events.Finals) -> None:
        if self._bar.disable:
            self._print_line()
        self._console.print(f"timing {len(event.candidates)} leaders again, interleaved with the baselines")
        self._ended.set()  # nothing changes from here on

    def _tick(self) -> None:
        """Print where the sweep is every few seconds, also while nothing comes of it."""
        while not self._ended.wait(_PLAIN_SECONDS):
            if self.tally.started is not None:
                self._print_line()

    def _print_line(self) -> None:
        budget = self.tally.started.budget if self.tally.started else 0
        self._console.print(f"{self.tally.done}/{budget}  {self.tally.line}", soft_wrap=True)


class Notices(Watch):
    """Writes notices, and nothing else."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.Notice):
            self._write(event.text)


class Steps(Watch):
    """Shows what the evaluation of one file does: with a spinner on a terminal, one line for each step elsewhere."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._spinner = console.status("starting")

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
        elif isinstance(event, events.Step):
            self._step(event.text)

    def _step(self, what: str) -> None:
        self._spinner.update(what)
        if not self._console.is_terminal:
            self._console.print(what)
