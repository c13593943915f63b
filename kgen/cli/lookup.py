"""Finds the problem of a command line (a file or a name, overrides, a mode) in the database."""

from __future__ import annotations

from pathlib import Path
from typing import Mapping

from kgen.errors import NotFoundError, ProblemError
from kgen.problems.problem import HALF, problem_files, read_problem
from kgen.store import Database, queries
from kgen.store.results import ProblemRow


def find(
    database: Database, reference: str, overrides: Mapping[str, str], mode: str | None, dtype: str | None = None
) -> ProblemRow:
    """The swept problem ``reference`` with these overrides in this mode and dtype.

    A file with this path or name comes first, and its present text counts. Otherwise the name selects a problem of the
    database. The default ``mode`` is the one that the constructor sets. Raises :class:`NotFoundError` for a problem
    that was never swept, and :class:`ProblemError` for a file that is no problem.
    """
    same_name = queries.problems(database, name=problem_name(reference))
    if _is_file(reference):
        found = queries.problems(database, source_hash=read_problem(reference, overrides, mode, dtype).source_hash)
    elif same_name:
        converted = {"dtype": repr(dtype)} if dtype in HALF else {}
        found = [row for row in same_name if _has(row, {**overrides, **converted})]
    else:
        raise ProblemError(f"no problem {reference!r}: neither a file, nor a known name, nor in {database.name}")
    if mode is not None:
        found = [row for row in found if row.mode == mode]
    if not found:
        raise NotFoundError(_never_swept(database, reference, same_name))
    return next((row for row in found if row.default_mode), found[0])


def problem_name(reference: str) -> str:
    """The name in the database of the problem ``reference``, which is a path or a name."""
    return Path(reference).stem if Path(reference).is_file() else reference


def _is_file(reference: str) -> bool:
    return Path(reference).is_file() or reference in problem_files()


def _has(row: ProblemRow, overrides: Mapping[str, str]) -> bool:
    return {name: repr(value) for name, value in row.overrides.items()} == dict(overrides)


def _never_swept(database: Database, reference: str, same_name: list[ProblemRow]) -> str:
    text = f"{reference} was never swept with these options, into {database.name}"
    if same_name:
        known = ", ".join(dict.fromkeys(f"{row.title} in {row.mode} mode" for row in same_name[:5]))
        return f"{text}; there are results of {known}"
    return f"{text}: `kgen sweep {reference}` does it"
