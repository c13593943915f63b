"""What a report tells of one problem, read from the database: plain dataclasses, no chart in sight."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Iterable, Mapping, Sequence

from kgen.errors import NotFoundError
from kgen.evaluator.protocol import Accuracy, Environment
from kgen.store import Database, queries
from kgen.store.results import BestRow, Failures, ProblemRow, Rejections, SweepRow, Trial
from kgen.store.selection import Selection


@dataclass(frozen=True)
class Section:
    """One problem in one environment.

    ``trials`` are the right and timed candidates of the sweeps of one class of accuracy, which ``best`` names, each
    sweep in the order judged; ``others`` are those of the other classes in the same environment. ``sweeps`` come the
    latest first and are of all classes there; ``elsewhere`` counts the sweeps of each other environment.
    ``baselines`` are medians in milliseconds of the sweep that the best candidate comes from. ``eager_rms`` is
    PyTorch's root mean square error against float64 in each class on the problem's own inputs. ``source`` is the best
    candidate's.
    """

    best: BestRow
    trials: tuple[Trial, ...]
    others: Mapping[Accuracy, tuple[Trial, ...]]
    sweeps: tuple[SweepRow, ...]
    elsewhere: Mapping[Environment, int]
    baselines: Mapping[str, float]
    eager_rms: Mapping[Accuracy, float]
    failures: tuple[Failures, ...]
    rejections: tuple[Rejections, ...]
    source: str | None

    @property
    def problem(self) -> ProblemRow:
        """The problem that it is about."""
        return self.best.problem

    @cached_property
    def tied(self) -> frozenset[str]:
        """The finalists that cannot be told from the fastest, by id."""
        return frozenset(trial.candidate for trial in queries.tied([t for t in self.right if t.final]))

    @property
    def compared(self) -> tuple[SweepRow, ...]:
        """The sweeps that ``trials`` are of, the latest first."""
        return tuple(row for row in self.sweeps if row.accuracy is self.best.accuracy)

    @cached_property
    def right(self) -> tuple[Trial, ...]:
        """Each of ``trials`` once, as the latest sweep has it: finalists first, then the fastest."""
        return fastest_first(self.trials, [row.id for row in self.compared])


def fastest_first(trials: Iterable[Trial], sweeps: Sequence[str]) -> tuple[Trial, ...]:
    """Timed candidates, each once: as a finalist, else as the first of ``sweeps`` has it. Finalists come first, then
    the fastest."""
    place = {sweep: number for number, sweep in enumerate(sweeps)}
    chosen: dict[str, Trial] = {}
    for trial in sorted(trials, key=lambda t: (not t.final, place[t.sweep])):
        chosen.setdefault(trial.candidate, trial)
    return tuple(sorted(chosen.values(), key=lambda t: (not t.final, -(t.speedup or 0.0))))


def collect(
    database: Database,
    *,
    problem_ids: Sequence[str] | None = None,
    accuracy: Accuracy | None = None,
    device: str | None = None,
) -> list[Section]:
    """A section for each problem (of those given), the most recently swept first.

    Environment and class of accuracy are chosen as by :func:`kgen.store.queries.best`. Raises
    :class:`NotFoundError` where nothing was swept so.
    """
    bests = queries.best(database, problem_ids=problem_ids, accuracy=accuracy, among=Selection(device=device))
    if not bests:
        asked = "".join([f" at accuracy {accuracy}" if accuracy else "", f" on {device}" if device else ""])
        raise NotFoundError(f"nothing was swept{asked} into {database.name}; `kgen history` lists what was")
    return [_section(database, best) for best in bests]


def _section(database: Database, best: BestRow) -> Section:
    named = queries.sweeps(database, name=best.problem.name)
    of_problem = [row for row in named if row.problem.id == best.problem.id and row.kind == "sweep"]
    here = tuple(row for row in of_problem if row.environment == best.environment)
    by_class = {of: [row.id for row in here if row.accuracy is of] for of in Accuracy}
    compared = by_class.pop(best.accuracy)
    trials = tuple(queries.timed(database, compared))
    others = {of: tuple(queries.timed(database, ids)) for of, ids in by_class.items() if ids}
    measured = queries.baselines(database, [best.sweep])
    return Section(
        best=best,
        trials=trials,
        others=others,
        sweeps=here,
        elsewhere=Counter(row.environment for row in of_problem if row.environment != best.environment),
        baselines=(best.trial.baselines if best.trial else {}) or measured.get(best.sweep, {}),
        eager_rms=_eager_rms(database, best, {best.accuracy: trials, **others}),
        failures=queries.failures(database, [row for row in here if row.accuracy is best.accuracy]),
        rejections=queries.rejections(database, compared),
        source=queries.source(database, best.trial.candidate) if best.trial else None,
    )


def _eager_rms(database: Database, best: BestRow, trials: Mapping[Accuracy, Sequence[Trial]]) -> dict[Accuracy, float]:
    """PyTorch's own error in each class, as the evaluation of one right candidate has it."""
    found = {}
    for accuracy, of_class in trials.items():
        for judgement in queries.candidate(database, of_class[0].candidate).judgements if of_class else ():
            same = (judgement.problem.id, judgement.environment, judgement.evaluation.accuracy)
            errors = judgement.evaluation.errors
            if same == (best.problem.id, best.environment, accuracy) and errors and errors[0].eager_rms:
                found.setdefault(accuracy, errors[0].eager_rms)
    return found
