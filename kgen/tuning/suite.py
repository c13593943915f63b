"""A suite: sweeps over many problems, one after the other or several at once, with one table.

    members -> [ended before under the same command?] -> sweep -> swept | refused | failed -> the next one

A problem that fails does not end the suite. After an interrupt or a kill, the same command continues it: problems
that ended are left out. Once all have ended, the command tries the refused and the failed problems again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Callable, Mapping, Protocol, Sequence

from kgen.errors import KgenError
from kgen.evaluator.runtime.process import servers_kept
from kgen.problems.problem import Problem
from kgen.problems.problem_set import Member
from kgen.store import Database, attempts, codec, scores, suites
from kgen.store.attempts import FAILED, REFUSED, Attempt
from kgen.store.selection import Selection
from kgen.store.suites import SWEPT, Ended
from kgen.tuning import attempts as trying, events, sweep
from kgen.tuning.sweep import SweepRequest

INTERRUPTED = "interrupted"


class Sweeps(Protocol):
    """Runs the sweeps of a suite: up to ``at_once`` beside each other, each called in a thread of its own."""

    at_once: int

    def run(self, request: SweepRequest, on_event: events.Listener) -> events.Finished: ...

    def interrupt(self) -> None: ...


@dataclass(frozen=True)
class InTurn:
    """Runs one sweep after the other in this thread, which interrupts reach."""

    run: Callable[[SweepRequest, events.Listener], events.Finished] = sweep.run
    at_once: int = 1

    def interrupt(self) -> None:
        """Do nothing: the sweep has ended."""


def run(
    members: Sequence[Member],
    ask: Callable[..., SweepRequest],
    on_event: events.Listener,
    sweeps: Sweeps = InTurn(),
) -> events.SuiteFinished:
    """Sweep each problem with the request that ``ask(problem=...)`` makes for it, and tell of all of it.

    Raises :class:`kgen.errors.InputError` where no problem could be swept: a missing device, compiler or database.
    An interrupt ends the suite with what it has.
    """
    problem = next(member.problem for member in members if member.problem)
    request = ask(problem=problem)
    with Database.open(request.db, notice=lambda text: on_event(events.Notice(text))) as database:
        suite = _Suite(members, ask, on_event, sweeps, database, request, trying.device_names(request.device))
        with servers_kept():
            return suite.run()


@dataclass
class _Suite:
    members: Sequence[Member]
    ask: Callable[..., SweepRequest]
    on_event: events.Listener
    sweeps: Sweeps
    database: Database
    request: SweepRequest  # of one of the problems, for what all of them share
    device: str
    environment: str | None = None  # of this run, known from its first sweep on
    outcomes: dict[Path, str] = field(default_factory=dict)  # of this run, by file
    before: Mapping[str, Sequence[Ended]] = field(default_factory=dict)
    begun: set[Path] = field(default_factory=set)  # in this run
    stopped: bool = False  # by an interrupt
    storing: threading.RLock = field(default_factory=threading.RLock)

    def run(self) -> events.SuiteFinished:
        started = time.monotonic()
        if not self.request.fresh:
            self.before = suites.history(self.database, [member.source_hash for member in self.members])
        ended = sum(self._ended(member) is not None for member in self.members)
        again = ended == len(self.members)
        self.on_event(events.SuiteStarted(len(self.members), ended, self.request.seconds, self.database.name))
        try:
            self._side_by_side(again) if self.sweeps.at_once > 1 else self._in_turn(again)
        except KeyboardInterrupt:
            self.stopped = True
        return self._finish(INTERRUPTED if self.stopped else "finished", time.monotonic() - started)

    def _in_turn(self, again: bool) -> None:
        """Try the problems that are left, until one is interrupted."""
        while not self.stopped and (member := self._next(again)) is not None:
            self.outcomes[member.path] = outcome = self._try(member)
            self.stopped = self.stopped or outcome == INTERRUPTED

    def _side_by_side(self, again: bool) -> None:
        """Try them in several threads. An interrupt, or an error that ends the suite, ends all of their sweeps."""
        with ThreadPoolExecutor(self.sweeps.at_once, thread_name_prefix="kgen-sweep") as threads:
            trying = [threads.submit(self._in_turn, again) for _ in range(self.sweeps.at_once)]
            try:
                for ended in as_completed(trying):
                    ended.result()
            except BaseException:
                self.stopped = True
                self.sweeps.interrupt()
                raise

    def _finish(self, state: str, seconds: float) -> events.SuiteFinished:
        ends = [(member, self.outcomes.get(member.path) or self._ended(member)) for member in self.members]
        counts = Counter(outcome or "left" for _, outcome in ends)
        troubled = tuple(member.title for member, outcome in ends if outcome in (REFUSED, FAILED))
        finished = events.SuiteFinished(state, seconds, len(self.members), dict(counts), troubled)
        self.on_event(finished)
        return finished

    def _next(self, again: bool) -> Member | None:
        """The next problem that has not ended under this command; ``again``: else one that was refused or failed."""
        with self.storing:
            left = [member for member in self.members if member.path not in self.begun]
            new = (member for member in left if self._ended(member) is None)
            troubled = (member for member in left if again and self._ended(member) in (REFUSED, FAILED))
            found = next(new, None) or next(troubled, None)
            self.begun |= {found.path} if found else set()
            return found

    def _ended(self, member: Member) -> str | None:
        """How the problem ended before, under the same command; ``None`` where it has not."""
        mode = member.problem.asked_mode if member.problem else None
        classes = self.request.accuracy.stored_as
        asked = self._arguments()
        found = self.before.get(member.source_hash, ())
        same = (end for end in found if end.is_of(mode, self.environment, classes, asked))
        return next((end.outcome for end in same), None)

    def _arguments(self) -> dict[str, Any]:
        """The arguments of each sweep, as the database has them. The default strategy depends on the problem."""
        asked = codec.plain(sweep.arguments(self.request, self.device, self.request.strategy))
        return {name: value for name, value in asked.items() if name != "strategy" or value is not None}

    # ---- one problem ---------------------------------------------------------------------------------------

    def _try(self, member: Member) -> str:
        """Sweep one problem, and tell how it ended."""
        number, started = self._number(member), time.monotonic()
        self.on_event(events.ProblemStarted(number, len(self.members), member.title, str(member.path)))
        outcome, reason = self._refuse(member) if member.problem is None else self._sweep(member, member.problem)
        seconds = time.monotonic() - started
        with self.storing:
            score = self._score(member)
        self.on_event(
            events.ProblemEnded(
                number=number,
                problems=len(self.members),
                problem=member.title,
                path=str(member.path),
                outcome=outcome,
                verdict=str(score.verdict) if outcome == SWEPT else outcome,
                ms=score.ms if outcome == SWEPT else None,
                speedup=score.speedup if outcome == SWEPT else None,
                reason=reason or score.reason or "",
                seconds=seconds,
                sweep=score.sweep if outcome == SWEPT else None,
            )
        )
        return outcome

    def _sweep(self, member: Member, problem: Problem) -> tuple[str, str]:
        """The outcome of a sweep of the problem, with the reason if it raised an error."""
        try:
            finished = self.sweeps.run(self.ask(problem=problem), partial(self._tell, member))
        except Exception as error:
            if self.stopped:  # its process may end before it can tell so
                return INTERRUPTED, ""
            outcome = trying.outcome(error)
            if outcome is None:
                raise
            return outcome, str(error) if isinstance(error, KgenError) else f"{type(error).__name__}: {error}"
        return (INTERRUPTED, "") if finished.state == INTERRUPTED else (SWEPT, "")

    def _tell(self, member: Member, event: events.Event) -> None:
        if isinstance(event, events.Started):
            self.environment = event.environment.id
        alone = self.sweeps.at_once == 1
        self.on_event(event if alone else events.Beside(self._number(member), member.title, event))

    def _number(self, member: Member) -> int:
        return self.members.index(member) + 1

    def _refuse(self, member: Member) -> tuple[str, str]:
        """Keep why a file could not be read as a problem."""
        attempt = Attempt(
            name=member.path.stem,
            path=str(member.path),
            source_hash=member.source_hash,
            mode=None,
            overrides={},
            accuracy=str(self.request.accuracy),
            device=self.device,
            outcome=REFUSED,
            reason=member.reason,
            seconds=0.0,
            arguments=self._arguments(),
        )
        with self.storing:
            attempts.add(self.database, attempt)
        return REFUSED, member.reason

    def _score(self, member: Member) -> scores.Score:
        [score] = scores.of_files(
            self.database, [member], accuracy=self.request.accuracy, among=Selection(device=self.device)
        )
        return score
