"""How problems ended under one command. A suite that continues leaves these out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Iterable, Mapping

from sqlalchemy import select

from kgen.store import attempts, models
from kgen.store.database import Database
from kgen.store.reading import chunks
from kgen.store.selection import EVERY

SWEPT = "swept"  #: beside the outcomes of attempts: a sweep ran to its end


@dataclass(frozen=True)
class Ended:
    """One end of a problem: ``swept``, ``refused`` or ``failed``.

    ``mode`` is the requested mode, ``None`` by default. ``environment`` is its id; attempts have none.
    """

    outcome: str
    mode: str | None
    environment: str | None
    accuracy: str
    arguments: Mapping[str, Any]
    at: datetime

    def is_of(
        self, mode: str | None, environment: str | None, classes: Iterable[str], asked: Mapping[str, Any]
    ) -> bool:
        """Whether it ended in this mode, environment (``None``: any) and class of accuracy, with all these
        arguments."""
        same_place = environment is None or self.environment in (None, environment)
        same = all(self.arguments.get(name) == value for name, value in asked.items())
        return self.mode == mode and same_place and self.accuracy in classes and same


def history(database: Database, source_hashes: Iterable[str]) -> dict[str, list[Ended]]:
    """How problems with these sources ended, the latest first, by the hash of the source."""
    wanted = list(dict.fromkeys(source_hashes))
    found: dict[str, list[Ended]] = {}
    sweep, problem = models.Sweep, models.Problem
    named = (problem.source_hash, problem.mode, problem.default_mode)
    columns = (sweep.environment_id, sweep.accuracy, sweep.arguments, sweep.started_at)
    query = select(*named, *columns).join(problem, problem.id == sweep.problem_id)
    query = query.where(sweep.kind == "sweep", sweep.state == "finished")
    with database.connections.read() as connection:
        for chunk in chunks(wanted):
            for row in connection.execute(query.where(problem.source_hash.in_(chunk))):
                # A problem in its default mode was requested with that mode or without a mode.
                for mode in {row.mode, None if row.default_mode else row.mode}:
                    what = (SWEPT, mode, row.environment_id, row.accuracy, row.arguments, row.started_at)
                    found.setdefault(row.source_hash, []).append(Ended(*what))
    for source_hash, tried in attempts.latest(database, wanted, among=EVERY).items():
        for item in tried:
            what = (item.outcome, item.mode, None, item.accuracy, item.arguments, item.created_at)
            found.setdefault(source_hash, []).append(Ended(*what))
    return {key: sorted(ends, key=lambda end: end.at, reverse=True) for key, ends in found.items()}
