"""The best candidate of each problem, and which finalists are tied with it."""

from __future__ import annotations

from itertools import islice
from typing import Any, Iterator, Mapping, Protocol, Sequence, TypeVar

from sqlalchemy import Connection, Row, select

from kgen.protocol import Accuracy, Status
from kgen.store import models
from kgen.store.database import Database
from kgen.store.reading import (
    environments_by_id,
    fastest_screened,
    in_chunks,
    is_chosen,
    problems_by_id,
    select_trials,
    to_trial,
)
from kgen.store.results import BestRow, Trial
from kgen.store.selection import EVERY, Selection


def best(
    database: Database,
    *,
    problem_ids: Sequence[str] | None = None,
    accuracy: Accuracy | None = None,
    among: Selection = EVERY,
    limit: int | None = None,
    kinds: Sequence[str] = models.OWN_KINDS,
) -> list[BestRow]:
    """The best candidate of each problem, the most recently swept problem first.

    Only sweeps of one environment and one class of accuracy are compared. The class is the strictest class. The
    environment comes from this class's latest sweep with a right candidate. ``among`` and ``accuracy`` narrow the
    choice. Finalists come before screened candidates, and controls are never the best. Sweeps of the given ``kinds``
    count: those of kgen's own candidates alone, or all (:data:`kgen.store.models.KINDS`).
    """
    with database.connections.read() as connection:
        compared = list(islice(_compared(connection, problem_ids, accuracy, among, kinds), limit))
        named = problems_by_id(connection, (sweeps[0].problem_id for sweeps in compared))
        environments = environments_by_id(connection, {sweeps[0].environment_id for sweeps in compared})
        finalists = _finalists(connection, {row.id: row.problem_id for sweeps in compared for row in sweeps})
        chosen = [choose(finalists.get(sweeps[0].problem_id, ())) for sweeps in compared]
        winners = _trials_of(connection, [(first.sweep, first.candidate) for first, _ in chosen if first])
        undecided = [sweeps for sweeps, (first, _) in zip(compared, chosen, strict=True) if first is None]
        screened = fastest_screened(connection, (row.id for sweeps in undecided for row in sweeps))
        found = []
        for sweeps, (first, ties) in zip(compared, chosen, strict=True):
            latest = sweeps[0]
            fastest = max((screened[row.id] for row in sweeps if row.id in screened), key=_speed, default=None)
            trial = winners[first.sweep, first.candidate] if first else fastest
            found.append(
                BestRow(
                    problem=named[latest.problem_id],
                    environment=environments[latest.environment_id],
                    accuracy=Accuracy(latest.accuracy),
                    sweep=trial.sweep if trial else latest.id,
                    trial=trial,
                    ties=ties,
                )
            )
    return found


class Finalist(Protocol):
    """The fields that decide between finalists. A :class:`Trial` has these fields, and so does a smaller row."""

    @property
    def sweep(self) -> str: ...
    @property
    def candidate(self) -> str: ...
    @property
    def kernels(self) -> int: ...
    @property
    def source_lines(self) -> int: ...
    @property
    def control(self) -> bool: ...
    @property
    def tie(self) -> bool: ...
    @property
    def chosen(self) -> bool: ...
    @property
    def speedup(self) -> float | None: ...
    @property
    def speedup_low(self) -> float | None: ...
    @property
    def speedup_high(self) -> float | None: ...


AnyFinalist = TypeVar("AnyFinalist", bound=Finalist)


def choose(finalists: Sequence[AnyFinalist]) -> tuple[AnyFinalist | None, int]:
    """The best finalist that is no control, and the number of others tied with it (:func:`tied`)."""
    found = tied(finalists)
    return (found[0], len(found) - 1) if found else (None, 0)


def tied(finalists: Sequence[AnyFinalist]) -> list[AnyFinalist]:
    """The finalists within the interval of the fastest, without controls, the best first.

    Overlapping intervals are a tie: fewer kernels, then fewer lines of source, then the smaller id win. Within one
    sweep its own choice counts, because it comes from interleaved samples. For a finalist of several sweeps, the first
    given result counts.
    """
    first: dict[str, AnyFinalist] = {}
    for trial in finalists:
        if not trial.control:
            first.setdefault(trial.candidate, trial)
    leaders = {trial.sweep: trial for trial in sorted(first.values(), key=lambda trial: (trial.chosen, _speed(trial)))}
    fastest = max(leaders.values(), key=_speed, default=None)
    found = [trial for trial in first.values() if trial is fastest or (fastest and _is_tie(trial, fastest))]
    chosen = {trial.sweep for trial in found if trial.chosen}
    return sorted(found, key=lambda t: (t.sweep in chosen and not t.chosen, t.kernels, t.source_lines, t.candidate))


def _speed(trial: Finalist) -> float:
    return trial.speedup or 0.0


def _is_tie(trial: Finalist, fastest: Finalist) -> bool:
    if trial.sweep == fastest.sweep:
        return trial.tie
    return (trial.speedup_high or 0.0) >= (fastest.speedup_low or 0.0)


def _finalists(connection: Connection, problem_of: Mapping[str, str]) -> dict[str, list[Finalist]]:
    """The right finalists of the given sweeps, by problem, in the order of the sweeps."""
    trial, candidate = models.Trial, models.Candidate
    named = (trial.sweep_id.label("sweep"), trial.candidate_id.label("candidate"))
    figures = (trial.speedup, trial.speedup_low, trial.speedup_high, trial.tie, is_chosen().label("chosen"))
    query = select(*named, *figures, candidate.kernels, candidate.source_lines, candidate.control)
    query = query.join(candidate, candidate.id == trial.candidate_id)
    query = query.join(models.Sweep, models.Sweep.id == trial.sweep_id)
    query = query.where(trial.final.is_(True), trial.status == Status.OK.value, trial.speedup.is_not(None))
    place = {sweep: number for number, sweep in enumerate(problem_of)}
    rows_found = in_chunks(connection, query.order_by(trial.speedup.desc()), trial.sweep_id, problem_of)
    found: dict[str, list[Finalist]] = {}
    for row in sorted(rows_found, key=lambda row: place[row.sweep]):
        found.setdefault(problem_of[row.sweep], []).append(row)
    return found


def _trials_of(connection: Connection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Trial]:
    """These candidates of these sweeps, by sweep and candidate."""
    wanted, table = set(keys), models.Trial
    query = select_trials().where(table.candidate_id.in_({candidate for _, candidate in keys}))
    trials = map(to_trial, in_chunks(connection, query, table.sweep_id, {sweep for sweep, _ in keys}))
    return {(trial.sweep, trial.candidate): trial for trial in trials if (trial.sweep, trial.candidate) in wanted}


def _compared(
    connection: Connection,
    problem_ids: Sequence[str] | None,
    accuracy: Accuracy | None,
    among: Selection,
    kinds: Sequence[str],
) -> Iterator[list[Row[Any]]]:
    """For each problem the sweeps to compare, the latest first."""
    table = models.Sweep
    has_right = (
        select(models.Trial.sweep_id)
        .where(models.Trial.sweep_id == table.id, models.Trial.status == Status.OK.value)
        .exists()
    )
    query = select(table.id, table.problem_id, table.environment_id, table.accuracy, has_right.label("right"))
    query = query.where(table.kind.in_(kinds)).order_by(table.started_at.desc(), table.id)
    if accuracy is not None:
        query = query.where(table.accuracy.in_([stored.value for stored in accuracy.stored_as]))
    query = query.where(*among.conditions(connection))
    if problem_ids is not None:
        query = query.where(table.problem_id.in_(problem_ids))
    by_problem: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(query):
        by_problem.setdefault(row.problem_id, []).append(row)
    order = [stored.value for stored in (accuracy.stored_as if accuracy else Accuracy)]
    return (_comparable(sweeps, order) for sweeps in by_problem.values())


def _comparable(sweeps: Sequence[Row[Any]], order: Sequence[str]) -> list[Row[Any]]:
    """The sweeps of one problem in the chosen environment and class of accuracy, the first in ``order``."""
    chosen = min([row for row in sweeps if row.right] or sweeps, key=lambda row: order.index(row.accuracy))
    same = (chosen.environment_id, chosen.accuracy)
    return [row for row in sweeps if (row.environment_id, row.accuracy) == same]
