"""The progress of a suite: two live lines on a terminal (suite and problem), one line for each problem elsewhere."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.progress import TaskID, TextColumn

from kgen.tuning import events
from kgen.views import text
from kgen.views.progress import LINE, OnBars, Tally


class SuiteLive(OnBars):
    """Shows where a suite is."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, TextColumn("{task.description}", markup=False))
        self._verdicts: Counter[str] = Counter()
        self._every = Tally()  #: of all problems, where several are swept at once
        self._suite: TaskID | None = None
        self._problem: TaskID | None = None

    def show(self, event: events.Event) -> None:
        if isinstance(event, events.SuiteStarted):
            self._suite_started(event)
        elif isinstance(event, events.ProblemStarted):
            self._problem_started(event)
        elif isinstance(event, events.Beside):
            self._beside(event)
        elif isinstance(event, events.Notice):
            self._console.print(event.text, style="yellow")
        elif isinstance(event, events.ProblemEnded):
            self._problem_ended(event)
        elif isinstance(event, events.Cluster):
            self._every.add(event)
        elif not isinstance(event, events.SuiteFinished):
            self._went_on()

    def _went_on(self) -> None:
        """Show the state of the problem's sweep."""
        total = self.tally.started.budget if self.tally.started else None
        self._bar.update(self._tasks[1], total=total, completed=self.tally.done, line=self.tally.line)

    @property
    def _tasks(self) -> tuple[TaskID, TaskID]:
        """The lines of the suite and of its problem, made when they are first needed."""
        if self._suite is None or self._problem is None:
            self._suite = self._bar.add_task("suite", total=None, line="")
            self._problem = self._bar.add_task("problem", total=None, line="")
        return self._suite, self._problem

    def _suite_started(self, event: events.SuiteStarted) -> None:
        each = f", {text.duration(event.seconds)} each" if event.seconds else ""
        before = f"; {event.ended} ended before under the same command" if event.ended else ""
        self._console.print(f"{event.problems} problems{each}, into {event.db}{before}")
        if event.ended == event.problems:
            self._console.print("all have ended: those refused or failed are tried again; --fresh sweeps all again")
        self._bar.update(self._tasks[0], total=event.problems, completed=event.ended)

    def _problem_started(self, event: events.ProblemStarted) -> None:
        self.tally = Tally()
        self._bar.reset(self._tasks[1], total=None, description=event.problem, line=self.tally.phase)

    def _beside(self, event: events.Beside) -> None:
        """Show the cluster and its rate, where several problems are swept at once."""
        if isinstance(event.event, events.Notice):
            self._console.print(f"{event.problem}: {event.event.text}", style="yellow")
        elif isinstance(event.event, events.Evaluated):
            self._every.add(event.event)
        if self._every.cluster:
            line = text.cluster(self._every.cluster, self._every.a_minute)
            self._bar.update(self._tasks[1], description="cluster", line=line)

    def _problem_ended(self, event: events.ProblemEnded) -> None:
        self._verdicts[event.verdict] += 1
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in self._verdicts.most_common())
        self._bar.advance(self._tasks[0])
        self._bar.update(self._tasks[0], line=verdicts)
        line = f"[{event.number}/{event.problems}] {event.problem}: {_ended(event)}"
        self._console.print(text.cut(line, LINE), soft_wrap=True)  # `kgen scores` has the reason whole


def _ended(event: events.ProblemEnded) -> str:
    """The result of a problem: ``faster, 1.520x [1.480, 1.550], 0.12 ms, after 31 s``."""
    parts = [event.verdict]
    if event.speedup:
        parts.append(text.speedup(event.speedup.mid, event.speedup.low, event.speedup.high))
    parts += [text.milliseconds(event.ms)] if event.ms is not None else []
    said = f": {event.reason}" if event.reason else ""
    return f"{', '.join(parts)}, after {text.duration(event.seconds)}{said}"
