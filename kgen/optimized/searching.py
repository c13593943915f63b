"""Sweeps a module, or its submodules that take the time. A warm start needs none of it, and does not import it."""

import time
from collections.abc import Sequence
from typing import Any, Callable

import torch.utils._pytree as pytree
from torch import nn

from kgen.errors import CaptureError, ProblemError
from kgen.optimized import finding, trial
from kgen.optimized.calls import TensorShape, tensors_of
from kgen.optimized.found import NOT_FASTER, Call, Found, FoundPart, Options
from kgen.optimized.report import Tried
from kgen.optimized.twin import unwatch, watching
from kgen.optimized.winner import Winner
from kgen.problems import exported, live
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy
from kgen.store import Database, queries, ranking
from kgen.store.selection import Selection
from kgen.tuning import events
from kgen.tuning.opening import SweepRequest
from kgen.tuning.sweep import run

_LEAST_SECONDS = 30.0  # of one sweep; in less, it comes to no finals
_STEPS_SECONDS = 2.0


class Searching:
    """One search, until a time on the monotonic clock."""

    def __init__(
        self,
        probe: nn.Module,
        calls: Sequence[Call],
        observed: Sequence[trial.Observed],
        options: Options,
        until: float,
    ) -> None:
        self.probe, self.calls, self.observed, self.options, self.until = probe, calls, observed, options, until
        self.tried: list[Tried] = []
        self.parts: list[FoundPart] = []

    def run(self) -> Found:
        names = self.options.modules
        if isinstance(names, str):
            self._whole(submodules=names == "auto")
        else:
            self._submodules(set(names))
        return Found(tuple(self.parts), tuple(self.tried))

    def _whole(self, submodules: bool) -> None:
        """Sweep the module as a whole; its submodules where that cannot be."""
        name = type(self.probe).__name__
        refused = next((o.reason for o in self.observed if o.reason), "")
        if not refused:
            winners, refused = self._swept(self.probe, name, self.calls, self.until)
            if winners:
                self.parts.append(FoundPart(("",), name, winners))
                return
        self.tried.append(Tried("", name, refused))
        if submodules:
            self._submodules(None)

    def _submodules(self, only: set[str] | None) -> None:
        """Sweep the submodules that take the time, each kind once; those below where one cannot be exported."""
        kinds = finding.hot(self.probe, self.calls[0])
        if only is not None:
            kinds = [k for k in kinds if only & set(k.paths)]
            for kind in kinds:
                kind.paths = [p for p in kind.paths if p in only]
        waiting = finding.tops(kinds)
        while waiting:
            kind = waiting.pop(0)
            share = kind.share / sum(k.share for k in [kind, *waiting])
            left = self.until - time.monotonic()
            if left < min(_LEAST_SECONDS, 30.0 * self.options.minutes):
                self.tried.append(Tried(kind.paths[0], kind.name, "the time was up"))
                continue
            part = self.probe.get_submodule(kind.paths[0])
            observed = trial.observe(part, kind.call)
            winners, reason = (
                ((), observed.reason)
                if observed.reason
                else self._swept(
                    part, kind.name, [kind.call], time.monotonic() + max(left * share, min(left, _LEAST_SECONDS))
                )
            )
            if winners:
                self.parts.append(FoundPart(tuple(kind.paths), kind.name, winners))
                continue
            self.tried.append(Tried(kind.paths[0], kind.name, reason))
            if not reason.startswith(NOT_FASTER):
                waiting = [*finding.children_of(kind, kinds), *waiting]

    def _swept(self, part: nn.Module, name: str, calls: Sequence[Call], until: float) -> tuple[tuple[Winner, ...], str]:
        """A winner for each call, or the reason why there is none."""
        winners = []
        for number, (args, kwargs) in enumerate(calls):
            watch = watching(part)
            try:
                with trial.apart(part):
                    program = live.program_of(part, args, kwargs)
                if watch.version:
                    return (), "its forward sets attributes"
                title = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
                problem = Problem(
                    title, f"{title}{exported.SUFFIX}", exported.source_of(program, title, (args, kwargs), live.flags())
                )
                seconds = (until - time.monotonic()) / (len(calls) - number)
                winner = self._swept_problem(problem, program, (args, kwargs), max(seconds, 1.0))
            except (CaptureError, ProblemError) as error:
                return (), str(error)
            finally:
                unwatch(part, watch)
            if isinstance(winner, str):
                return (), winner
            winners.append(winner)
        return tuple(winners), ""

    def _swept_problem(self, problem: Problem, program: Any, call: Call, seconds: float) -> Winner | str:
        """Sweep one problem; the winner, or the reason why there is none."""
        options = self.options
        device = tensors_of([*call[0], *call[1].values()])[0].device
        request = SweepRequest(
            problem,
            str(device),
            options.accuracy,
            budget=options.budget,
            seconds=max(seconds, 1.0),
            baselines=options.baselines,
            db=options.db,
            weight_copies=options.weight_copies,
        )
        finished = run(request, _listener(options.tell))
        if finished.state == "interrupted":
            raise KeyboardInterrupt
        with Database.open(options.db) as database:
            ids = [row.id for row in queries.problems(database, source_hash=problem.source_hash)]
            accuracy = options.accuracy if options.accuracy is not Accuracy.TF32 else None  # it may be stored as fp32
            among = Selection(weight_copies=options.weight_copies)
            best = next(iter(ranking.best(database, problem_ids=ids, accuracy=accuracy, among=among)), None)
            trial_row = best.trial if best else None
            if best is None or trial_row is None:
                return f"{NOT_FASTER}: no right kernel was found"
            interval = trial_row.interval
            if not best.beats_baseline or interval is None:
                figures = (
                    f"{interval.mid:.2f}x [{interval.low:.2f}, {interval.high:.2f}]" if interval else "only screened"
                )
                return f"{NOT_FASTER} ({figures})"
            source = queries.source(database, trial_row.candidate)
        steps = trial_row.plan_data.steps
        return Winner(
            candidate=trial_row.candidate,
            source=source,
            problem=problem.source_hash,
            problem_source=problem.source,
            shapes=shapes_of(program, call),
            speedup=interval,
            baselines=tuple(trial_row.baselines.items()),
            sweep=trial_row.sweep,
            median_ms=trial_row.median_ms or 0.0,
            kernels=tuple(", ".join(s.operators) for s in steps if s.schedule),
            library=tuple(o for s in steps if not s.schedule for o in s.operators),
        )


def shapes_of(program: Any, call: Call) -> tuple[TensorShape, ...]:
    """The shapes of a call's tensors; the batch is free where the exported program has it free."""
    free = bool(program.range_constraints)
    batch = live.batch_of(pytree.tree_leaves(call)) if free else None
    return tuple(TensorShape.of(x, batch) for x in tensors_of([*call[0], *call[1].values()]))


def _listener(tell: Callable[[str], None]) -> events.Listener:
    """The events of a sweep as lines, at most one in :data:`_STEPS_SECONDS` of the frequent ones."""
    said = 0.0
    tried = 0

    def listen(event: events.Event) -> None:
        nonlocal said, tried
        if isinstance(event, events.Started):
            tell(f"{event.problem}: {event.plans} plans, at most {event.seconds or 0:.0f} s")
        elif isinstance(event, events.Measured):
            tell("; ".join(f"{name} {ms:.3g} ms" for name, ms in event.baselines))
        elif isinstance(event, events.Evaluated):
            tried += 1
            if time.monotonic() - said > _STEPS_SECONDS:
                said = time.monotonic()
                tell(f"{tried} candidates judged")
        elif isinstance(event, events.Notice):
            tell(event.text)

    return listen
