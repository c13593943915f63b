"""The data of a report on one problem, read from the database: plain dataclasses, without charts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Iterable, Mapping, Sequence

from kgen.errors import NotFoundError
from kgen.protocol import Accuracy, Environment
from kgen.store import Database, models, queries, ranking, tasks
from kgen.store.results import BestRow, Failures, ProblemRow, Rejections, SweepRow, Trial
from kgen.store.scores import why_no_winner
from kgen.store.selection import Selection
from kgen.store.tasks import StepRow


@dataclass(frozen=True)
class Section:
    """One problem in one environment.

    ``trials`` are the right and timed candidates in the accuracy class of ``best``, each sweep in the order judged.
    ``others`` are candidates in the other classes, in the same environment. ``sweeps`` are all sweeps there, the latest
    first, and ``elsewhere`` counts the sweeps of each other environment. ``baselines`` are times in milliseconds, from
    the sweep of the best candidate. ``eager_rms`` is PyTorch's root mean square error against float64 in each class, on
    the problem's own inputs. ``source`` is the text of the best candidate, ``steps`` its kernel tasks where it has
    some.
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
    steps: tuple[StepRow, ...] = ()

    @property
    def problem(self) -> ProblemRow:
        """The problem of the section."""
        return self.best.problem

    @cached_property
    def tied(self) -> frozenset[str]:
        """The ids of the finalists within the interval of the fastest one."""
        return frozenset(trial.candidate for trial in ranking.tied([t for t in self.right if t.final]))

    @property
    def compared(self) -> tuple[SweepRow, ...]:
        """The sweeps of ``trials``, the latest first."""
        return tuple(row for row in self.sweeps if row.accuracy is self.best.accuracy)

    @cached_property
    def right(self) -> tuple[Trial, ...]:
        """Each of ``trials`` once, from its latest sweep: finalists first, then the fastest."""
        return fastest_first(self.trials, [row.id for row in self.compared])

    @property
    def reference(self) -> str | None:
        """The name of the fastest baseline; ``None`` where none was timed."""
        named = self.best.trial.baseline if self.best.trial else None
        return named if named in self.baselines else min(self.baselines, key=self.baselines.__getitem__, default=None)

    @property
    def why_none(self) -> str:
        """The verdict of the latest sweep where no kernel of its own was right."""
        verdict, reason = why_no_winner(self.sweeps[0], self.failures, kernel_right=False)
        return f"{verdict}: {reason}"

    def ms(self, trial: Trial) -> float | None:
        """The time of a candidate in milliseconds, beside the baselines of this section.

        The time follows from the speedup: a sweep in a slow phase of the machine has slower baselines too. ``None``
        for a candidate that was not timed.
        """
        if self.reference is None or not trial.speedup:
            return trial.median_ms
        return self.baselines[self.reference] / trial.speedup


def fastest_first(trials: Iterable[Trial], sweeps: Sequence[str]) -> tuple[Trial, ...]:
    """Each timed candidate once: finalists first, then the fastest.

    The result as a finalist counts, else that of the first of ``sweeps``.
    """
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
    kinds: Sequence[str] = models.OWN_KINDS,
) -> list[Section]:
    """A section for each problem, or for the given ones, the most recently swept first.

    Environment and accuracy class are chosen as by :func:`kgen.store.ranking.best`. Raises :class:`NotFoundError`
    where no sweep fits.
    """
    bests = ranking.best(
        database, problem_ids=problem_ids, accuracy=accuracy, among=Selection(device=device), kinds=kinds
    )
    if not bests:
        asked = "".join([f" at accuracy {accuracy}" if accuracy else "", f" on {device}" if device else ""])
        raise NotFoundError(f"nothing was swept{asked} into {database.name}; `kgen history` lists the sweeps")
    return [_section(database, best, kinds) for best in bests]


def _section(database: Database, best: BestRow, kinds: Sequence[str]) -> Section:
    named = queries.sweeps(database, name=best.problem.name)
    of_problem = [row for row in named if row.problem.id == best.problem.id and row.kind in kinds]
    here = tuple(row for row in of_problem if row.environment == best.environment)
    by_class = {of: [row.id for row in here if row.accuracy is of] for of in Accuracy}
    compared = by_class.pop(best.accuracy)
    trials = tuple(queries.timed(database, compared))
    others = {of: tuple(queries.timed(database, ids)) for of, ids in by_class.items() if ids}
    final = best.trial.baselines if best.trial and best.trial.final else {}
    return Section(
        best=best,
        trials=trials,
        others=others,
        sweeps=here,
        elsewhere=Counter(row.environment for row in of_problem if row.environment != best.environment),
        baselines=final or queries.baselines(database, [best.sweep]).get(best.sweep, {}),
        eager_rms=_eager_rms(database, best, {best.accuracy: trials, **others}),
        failures=queries.failures(database, [row for row in here if row.accuracy is best.accuracy]),
        rejections=queries.rejections(database, compared),
        source=queries.source(database, best.trial.candidate) if best.trial else None,
        steps=tuple(tasks.steps(database, best.trial.candidate)) if best.trial else (),
    )


def _eager_rms(database: Database, best: BestRow, trials: Mapping[Accuracy, Sequence[Trial]]) -> dict[Accuracy, float]:
    """PyTorch's own error in each class, from the evaluation of one right candidate."""
    found = {}
    for accuracy, of_class in trials.items():
        for judgement in queries.candidate(database, of_class[0].candidate).judgements if of_class else ():
            same = (judgement.problem.id, judgement.environment, judgement.evaluation.accuracy)
            errors = judgement.evaluation.errors
            if same == (best.problem.id, best.environment, accuracy) and errors and errors[0].eager_rms:
                found.setdefault(accuracy, errors[0].eager_rms)
    return found
