"""Histories as JSON Lines: out of one database, into another. ``docs/history-format.md`` describes the format.

Rows are written as they are stored, table by table, each with a checksum. A row comes after the rows that it names.
One row or one batch is in memory at a time. All files of an import are one transaction: one bad line undoes it all.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from sqlalchemy import JSON, Column, ColumnElement, Connection, Select, Table, and_, case, func, or_, select
from sqlalchemy.exc import DBAPIError

from kgen.errors import InputError
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, Depth, Environment, Phase, Status, __version__
from kgen.store import (
    attempts,
    codec,
    imported_values,
    integrity,
    models,
    modules,
    named_plans,
    renamed,
    rows,
    selection,
)
from kgen.store.database import Database, insertion
from kgen.store.kernel_task import TaskKey
from kgen.store.selection import Selection

FORMAT = 4  #: version of the lines; a reader refuses a newer one, and brings rows of an older one to this one

_BATCH = 200  #: rows; written at once

#: The tables of a history; each comes after the tables that it names. Requests and proposals stay where they were made:
#: they hold the texts of clients and the prompts for models.
_TABLES: Mapping[str, Table] = {
    table.name: table for table in models.Base.metadata.sorted_tables if table.name not in ("request", "proposal")
}

#: The annotations of each column in the models.
_ANNOTATIONS = {m.local_table.name: m.class_.__annotations__ for m in models.Base.registry.mappers}

_LARGEST = 2**31 - 1  #: limit of an integer column on every database

Row = Mapping[str, Any]


# Out -----------------------------------------------------------------------------------------------------------


def export(
    database: Database, *, name: str | None = None, among: Selection, counts: Counter[str] | None = None
) -> Iterator[str]:
    """The lines of a history: all sweeps, or the selected ones with all rows that they name.

    ``counts`` is increased by the rows of each table.
    """
    counts = Counter() if counts is None else counts
    integrity.check(database.connections)  # a line that names a missing row is refused by an import
    with database.connections.read() as connection:
        yield codec.dumps({"kgen_history": FORMAT, "kgen": __version__, "exported_at": _text(rows.now())})
        for table, query in _exported(connection, name, among):
            for row in connection.execute(query, execution_options={"yield_per": _BATCH}):
                yield _line(table, {key: _out(key, value) for key, value in row._mapping.items()})
                counts[table] += 1
        yield codec.dumps({"end": counts.total()})


def _exported(connection: Connection, name: str | None, among: Selection) -> Iterator[tuple[str, Select[Any]]]:
    """For each table the query of the rows to export."""
    sweep = models.Sweep
    chosen = select(sweep.id).where(*among.conditions(connection))
    if name is not None:
        chosen = chosen.where(sweep.problem_id.in_(select(models.Problem.id).where(models.Problem.name == name)))
    evaluations = select(models.Trial.evaluation_id).where(models.Trial.sweep_id.in_(chosen))
    judged = select(models.Evaluation.candidate_id).where(models.Evaluation.id.in_(evaluations))
    tasks = select(models.SweepTask.task_id).where(models.SweepTask.sweep_id.in_(chosen))
    conditions: dict[str, ColumnElement[bool]] = {
        "problem": models.Problem.id.in_(select(sweep.problem_id).where(sweep.id.in_(chosen))),
        "environment": or_(
            models.Environment.id.in_(select(sweep.environment_id).where(sweep.id.in_(chosen))),
            models.Environment.id.in_(
                select(models.TaskResult.environment_id).where(models.TaskResult.task_id.in_(tasks))
            ),
        ),
        "candidate": models.Candidate.id.in_(judged),
        "source": models.Source.candidate_id.in_(judged),
        "sweep": sweep.id.in_(chosen),
        "evaluation": models.Evaluation.id.in_(evaluations),
        "rejection": models.Rejection.sweep_id.in_(chosen),
        "trial": models.Trial.sweep_id.in_(chosen),
        "task": models.Task.id.in_(tasks),
        "task_result": models.TaskResult.task_id.in_(tasks),
        "sweep_task": models.SweepTask.sweep_id.in_(chosen),
        "candidate_task": and_(models.CandidateTask.candidate_id.in_(judged), models.CandidateTask.task_id.in_(tasks)),
        "attempt": and_(*attempts.conditions(name, among)),
        "module": and_(*modules.conditions(name, among)),
        "timing": or_(models.Timing.sweep_id.in_(chosen), models.Timing.evaluation_id.in_(evaluations)),
    }
    for table in _TABLES.values():
        columns = [_heir(chosen) if column is _TIMED_IN else column for column in table.columns]
        yield table.name, select(*columns).where(conditions[table.name]).order_by(*table.primary_key)


_TIMED_IN = _TABLES["timing"].c.sweep_id


def _heir(chosen: Select[Any]) -> ColumnElement[str]:
    """The exported sweep of a timing: its own sweep, or a sweep that took its evaluation over."""
    trial = models.Trial
    users = select(func.min(trial.sweep_id)).where(trial.evaluation_id == _TABLES["timing"].c.evaluation_id)
    taken_over = users.where(trial.sweep_id.in_(chosen)).scalar_subquery()
    return case((_TIMED_IN.in_(chosen), _TIMED_IN), else_=taken_over).label("sweep_id")


def _line(table: str, row: Row) -> str:
    return codec.dumps({"table": table, "row": row, "crc": _checksum(row)})


def _checksum(row: Row) -> str:
    """CRC-32 of the row as JSON with sorted keys. It finds a line that was damaged on its way."""
    return f"{zlib.crc32(codec.canonical(row).encode()):08x}"


def _out(name: str, value: Any) -> Any:
    if name == "reason":  # an older kgen stored a compiler's words unchanged
        return imported_values.without_control_characters(value)
    return _text(value) if isinstance(value, datetime) else value


def _text(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat()


# In ------------------------------------------------------------------------------------------------------------


@dataclass
class Imported:
    """The result of an import: by table, the rows read, and the rows that were new or changed."""

    read: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)


def files(path: Path) -> list[Path]:
    """The file ``path``, or all histories in the folder ``path``. Raises :class:`InputError` for none."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in (".json", ".jsonl"))
    if not found:
        raise InputError(f"{path}: has no .json or .jsonl file")
    return found


def bring_in(database: Database, paths: Sequence[Path]) -> Imported:
    """Write the rows of the files in one transaction. Existing rows stay, or become newer.

    Raises :class:`InputError` with the file and the line of the first fault; nothing is written then.
    """
    imported = Imported()
    with database.connections.write() as connection:
        target = _Target(connection, imported)
        for path in paths:
            _import_file(path, target)
    return imported


def _import_file(path: Path, target: _Target) -> None:
    try:
        with open(path, "rb") as lines:
            reader = _Reader(str(path), lines)
            for batch in _batches(reader.rows()):
                target.write(batch)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


@dataclass(frozen=True)
class _Read:
    """A row of a file, and its place for messages."""

    where: str
    table: str
    row: dict[str, Any]


class _Reader:
    """The rows of one file, checked line by line."""

    def __init__(self, path: str, lines: Iterable[bytes]) -> None:
        self.number = 0
        self._path, self._lines, self._format = path, lines, FORMAT

    def rows(self) -> Iterator[_Read]:
        """The rows between the first line and the last one."""
        objects = self._objects()
        self._check_header(next(objects, None))
        count, ended = 0, False
        for item in objects:
            if ended:
                raise self._wrong("stands behind the end")
            if "end" in item:
                ended = True
                if item["end"] != count:
                    raise self._wrong(f"says that {item['end']} rows come before it, and there are {count}")
            else:
                yield self._row(item)
                count += 1
        if not ended:
            self.number += 1
            raise self._wrong("is missing: the file was cut off")

    def _objects(self) -> Iterator[dict[str, Any]]:
        for line in self._lines:
            self.number += 1
            try:
                item = json.loads(line.decode(), parse_constant=_refuse)
            except (ValueError, RecursionError) as error:
                raise self._wrong(f"is no JSON ({error})") from error
            if not isinstance(item, dict):
                raise self._wrong("is no JSON object")
            yield item

    def _check_header(self, first: Mapping[str, Any] | None) -> None:
        self.number = max(1, self.number)
        version = (first or {}).get("kgen_history")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise self._wrong("is not the beginning of a history: `kgen export-history` writes them")
        if version > FORMAT:
            raise self._wrong(f"is format {version}, written by a newer kgen: this one knows {FORMAT}")
        self._format = version

    def _row(self, item: Mapping[str, Any]) -> _Read:
        name, row = item.get("table"), item.get("row")
        table = _TABLES.get(name) if isinstance(name, str) else None
        if table is None or not isinstance(row, dict):
            raise self._wrong(f"is no row of {', '.join(_TABLES)}")
        if "crc" in item and item["crc"] != _checksum(row):
            raise self._wrong("does not have the checksum that stands behind it: it was damaged")
        try:
            read = {column.name: _value(column, row) for column in table.columns}
            unknown = row.keys() - read.keys()
            if unknown:
                raise ValueError(f"{table.name} has no column {min(unknown)!r}")
            imported_values.check(table.name, read)
            _CHECKS.get(table.name, _anything)(read)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._wrong(str(error)) from error
        for version in range(self._format, FORMAT):
            read = _NEXT[version].get(table.name, dict)(read)
        return _Read(f"{self._path}: line {self.number}", table.name, read)

    def _wrong(self, what: str) -> InputError:
        return InputError(f"{self._path}: line {self.number}: {what}; nothing was imported")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number in JSON")


def _value(column: Column[Any], row: Row) -> Any:
    """A value of a row for a column. A missing value is the column's default, if it has one."""
    if column.name not in row:
        if column.server_default is not None:
            text = str(column.server_default.arg)  # type: ignore[attr-defined]
            return json.loads(text) if isinstance(column.type, JSON) else text
        if column.nullable:
            return None
        raise ValueError(f"{column.table.name} needs a value for {column.name!r}")
    value = row[column.name]
    if value is None:
        if not column.nullable:
            raise ValueError(f"{column.table.name}.{column.name} cannot be null")
        return None
    if isinstance(column.type, models.UtcDateTime):
        return datetime.fromisoformat(value).astimezone(timezone.utc)
    wanted = _python_type(column)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not (is_whole if wanted is int else isinstance(value, wanted) or (wanted is float and is_whole)):
        raise ValueError(f"{column.table.name}.{column.name} is {wanted.__name__}, not {value!r}")
    if wanted is int and abs(value) > _LARGEST:
        raise ValueError(f"{column.table.name}.{column.name} is too large: {value}")
    return value


def _python_type(column: Column[Any]) -> type:
    """The Python type of a column's values; for a column of JSON, the type in its model."""
    if not isinstance(column.type, JSON):
        return column.type.python_type
    return list if "list[" in _ANNOTATIONS[column.table.name][column.name] else dict


# Checks of a row, beyond the types of its columns ---------------------------------------------------------------


def _anything(row: Row) -> None:
    """No further check."""


def _check_problem(row: Row) -> None:
    if Problem(row["name"], row["path"], row["source"], (), row["mode"]).id != row["id"]:
        raise ValueError("the problem is not the one that its id names")


def _check_environment(row: Row) -> None:
    if Environment(**{name: row[name] for name in Environment.__dataclass_fields__}).id != row["id"]:
        raise ValueError("the environment is not the one that its id names")


def _check_candidate(row: Row) -> None:
    imported_values.check_plan("candidate.plan_data", row["plan_data"], row["plan"])


def _check_source(row: Row) -> None:
    if hashlib.sha256(row["text"].encode()).hexdigest() != row["candidate_id"]:
        raise ValueError("the source is not the one that its candidate is named by")


def _check_sweep(row: Row) -> None:
    Accuracy(row["accuracy"])
    if row["state"] not in selection.STATES:
        raise ValueError(f"{row['state']!r} is no state of a sweep")
    if row["kind"] not in models.KINDS:
        raise ValueError(f"{row['kind']!r} is no kind of sweep")


def _check_evaluation(row: Row) -> None:
    Accuracy(row["accuracy"])
    Status(row["status"])
    if row["phase"] is not None:
        Phase(row["phase"])
    figures = (asdict(error).values() for error in codec.errors_from_json(row["errors"]))
    if any(isinstance(figure, float) and figure < 0 for figure in chain(*figures)):
        raise ValueError("evaluation.errors has a figure below zero")
    imported_values.check_numbers("evaluation.seconds", row["seconds"].values())
    imported_values.check_log("evaluation.log", row["log"])
    if (build := codec.build_from_json(row["build"])) is not None:
        imported_values.check_number("evaluation.build.seconds", build.seconds)
        imported_values.check_log("evaluation.build.log", build.log)


def _check_trial(row: Row) -> None:
    Status(row["status"])
    imported_values.check_numbers("trial.baselines", (row["baselines"] or {}).values(), above_zero=True)


def _check_timing(row: Row) -> None:
    Accuracy(row["accuracy"])
    Depth(row["depth"])
    imported_values.check_bursts(row["bursts"])


def _check_task(row: Row) -> None:
    try:
        key = TaskKey.from_json(row["identity"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"task.identity is no identity of a task: {error!r:.160}") from error
    if key.id != row["id"] or (key.device_type, key.device, key.accuracy) != (
        row["device_type"],
        row["device"],
        row["accuracy"],
    ):
        raise ValueError("the task is not the one that its id names")
    Accuracy(row["accuracy"])


def _check_task_result(row: Row) -> None:
    if (Status(row["status"]) is Status.OK) is not (row["cold_ms"] is not None and row["warm_ms"] is not None):
        raise ValueError("a result of a task has both times where it is right, and none elsewhere")


def _check_attempt(row: Row) -> None:
    if row["outcome"] not in attempts.OUTCOMES:
        raise ValueError(f"{row['outcome']!r} is no outcome of an attempt")


def _check_module(row: Row) -> None:
    for part in row["parts"]:
        if (
            not isinstance(part, dict)
            or not isinstance(part.get("paths"), list)
            or not isinstance(part.get("winner"), dict)
        ):
            raise ValueError(f"{part!r:.80} is no part of a module")


_CHECKS: Mapping[str, Callable[[Row], None]] = {
    "problem": _check_problem,
    "environment": _check_environment,
    "candidate": _check_candidate,
    "source": _check_source,
    "sweep": _check_sweep,
    "evaluation": _check_evaluation,
    "trial": _check_trial,
    "timing": _check_timing,
    "task": _check_task,
    "task_result": _check_task_result,
    "attempt": _check_attempt,
    "module": _check_module,
}


#: For each older format and table, the function that makes a row of the next format.
_NEXT: Mapping[int, Mapping[str, Callable[[Row], dict[str, Any]]]] = {
    1: {"candidate": renamed.candidate, "rejection": renamed.rejection},
    2: {"candidate": named_plans.candidate},
    3: {},
}


def _batches(read: Iterator[_Read]) -> Iterator[list[_Read]]:
    """Batches of rows of one table."""
    waiting: list[_Read] = []
    for item in read:
        if waiting and (item.table != waiting[0].table or len(waiting) >= _BATCH):
            yield waiting
            waiting = []
        waiting.append(item)
    if waiting:
        yield waiting


class _Target:
    """The target database of an import. Existing rows stay unchanged, unless a file has newer facts.

    A sweep that continued elsewhere has another state and other finals. A status that the finals changed stays changed.
    A problem may learn that its mode is the default mode. A foreign file may turn out to be a text of kgen's own.
    """

    def __init__(self, connection: Connection, imported: Imported) -> None:
        self._connection, self._imported = connection, imported
        self._went_on: set[str] = set()  #: sweeps with newer facts in a file

    def write(self, batch: Sequence[_Read]) -> None:
        """Write rows of one table; some of them may exist."""
        table = batch[0].table
        values = [_as_a_copy(item) for item in batch]
        if table == "sweep":
            self._went_on |= self._older(values)
        try:
            with self._connection.begin_nested():
                written = self._insert(table, values)
        except DBAPIError:
            self._find_the_line(table, batch)
            raise
        for counts, count in ((self._imported.read, len(batch)), (self._imported.written, written)):
            counts[table] = counts.get(table, 0) + count

    def _find_the_line(self, table: str, batch: Sequence[_Read]) -> None:
        """Write row by row. Raises :class:`InputError` with the line that the database refuses."""
        for item in batch:
            try:
                with self._connection.begin_nested():
                    self._insert(table, [_as_a_copy(item)])
            except DBAPIError as error:
                words = str(error.orig).strip().splitlines()[0]
                raise InputError(f"{item.where}: does not fit the others ({words}); nothing was imported") from error

    def _insert(self, table: str, values: Sequence[Row]) -> int:
        """Insert new rows and renew older ones. Returns the number of both."""
        renewed = [row for row in values if self._is_renewed(table, row)]
        rest = [row for row in values if not self._is_renewed(table, row)]
        statement = insertion(self._connection, _TABLES[table])
        written = 0
        if renewed:
            everything = {column.name: statement.excluded[column.name] for column in _TABLES[table].columns}
            key = list(_TABLES[table].primary_key)
            renewing = statement.on_conflict_do_update(index_elements=key, set_=everything)
            written += self._run(renewing, renewed)
        if rest:
            written += self._run(_learning(statement, table), rest)
        return written

    def _run(self, statement: Any, values: Sequence[Row]) -> int:
        return self._connection.execute(statement, values, execution_options={"preserve_rowcount": True}).rowcount

    def _is_renewed(self, table: str, row: Row) -> bool:
        """Whether the row belongs to a sweep that continued elsewhere."""
        return row.get({"sweep": "id", "trial": "sweep_id"}.get(table, "")) in self._went_on

    def _older(self, values: Sequence[Row]) -> set[str]:
        """The sweeps that ended earlier in the database, or were cut off. A sweep that runs here is never older."""
        ended = {row["id"]: row["ended_at"] for row in values}
        table = models.Sweep
        query = select(table.id, table.ended_at).where(table.id.in_(ended), table.state != "running")
        found = self._connection.execute(query)
        return {row.id for row in found if ended[row.id] and (row.ended_at is None or row.ended_at < ended[row.id])}


def _as_a_copy(item: _Read) -> Row:
    """The row to write. The copy of a running sweep is interrupted, because its process is elsewhere."""
    is_running = item.table == "sweep" and item.row["state"] == "running"
    return {**item.row, "state": "interrupted"} if is_running else item.row


#: By table, the columns that an existing row takes over from a file, and the condition.
_LEARNED: Mapping[str, tuple[tuple[str, ...], Callable[[Any, Any], ColumnElement[bool]]]] = {
    "problem": (
        ("default_mode",),
        lambda here, there: and_(here.default_mode.is_(False), there.default_mode.is_(True)),
    ),
    "candidate": (
        ("plan", "device_type", "kernels", "source_lines", "control", "origin", "params", "rewrites", "plan_data"),
        lambda here, there: and_(here.origin == "file", there.origin == "sweep"),
    ),
    "evaluation": (
        ("status", "phase", "reason", "median_ms"),
        lambda here, there: and_(here.status == Status.OK.value, there.status != Status.OK.value),
    ),
}


def _learning(statement: Any, table: str) -> Any:
    """The insert of rows. An existing row takes over columns where it may, and stays unchanged otherwise."""
    if table not in _LEARNED:
        return statement.on_conflict_do_nothing()
    columns, where = _LEARNED[table]
    return statement.on_conflict_do_update(
        index_elements=list(_TABLES[table].primary_key),
        set_={name: statement.excluded[name] for name in columns},
        where=where(_TABLES[table].c, statement.excluded),
    )
