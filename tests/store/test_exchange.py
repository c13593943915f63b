"""Histories go from one database to another whole, once, or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from samples import Filled, candidate, problem

from kgen.candidate import Candidate, Rejection, Trust
from kgen.errors import InputError
from kgen.protocol import Accuracy, Phase, Status
from kgen.store import Database, exchange, queries
from kgen.store.selection import EVERY, Selection

WINNER = candidate("winner = '\u03c0'\r\n")


@pytest.fixture
def other(tmp_path: Path, newest: Path) -> Iterator[Database]:
    """An empty file of SQLite to import into, or to import from."""
    with Database.open(str(shutil.copy(newest, tmp_path / "other.db"))) as opened:
        yield opened


@pytest.fixture
def full(filled: Filled) -> Filled:
    """A finished sweep with something in every table."""
    filled.finish(WINNER, 1.4, 1.5, 1.6)
    filled.judge(candidate("wrong"), Status.WRONG_VALUES)
    filled.database.add_rejections(filled.sweep, [Rejection("a plan", {"k0.block": 4096}, "threads", "too many")])
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, WINNER.id)
    return filled


def lines(database: Database, name: str | None = None, among: Selection = EVERY) -> list[str]:
    return list(exchange.export(database, name=name, among=among))


def rows(database: Database) -> list[str]:
    """All rows of a database as lines, whatever order it gives them in."""
    return sorted(lines(database)[1:-1])


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: list[str], name: str = "history.jsonl") -> Path:
        file = tmp_path / name
        file.write_text("".join(f"{line}\n" for line in text), encoding="utf-8", newline="")
        return file

    return written


def bring(database: Database, *paths: Path) -> int:
    """Import files; how many rows were new or had changed."""
    return sum(exchange.bring_in(database, paths).written.values())


def test_other_database_has_every_row_as_it_was(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    assert bring(other, write(lines(full.database))) == len(rows(full.database))
    assert rows(other) == rows(full.database)
    assert queries.sweep(other, full.sweep) == queries.sweep(full.database, full.sweep)
    assert queries.candidate(other, WINNER.id) == queries.candidate(full.database, WINNER.id)


def test_importing_twice_changes_nothing(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    file = write(lines(full.database))
    bring(other, file)
    before = rows(other)
    assert (bring(other, file), rows(other)) == (0, before)


def test_importing_what_was_exported_from_there_changes_nothing(full: Filled, write: Callable[..., Path]) -> None:
    before = rows(full.database)
    assert (bring(full.database, write(lines(full.database))), rows(full.database)) == (0, before)


def test_history_goes_from_sqlite_to_this_database(other: Database, database: Database, write: Callable[..., Path]) -> None:
    Filled(other).finish(WINNER, 1.4, 1.5, 1.6)
    bring(database, write(lines(other)))
    assert [row.kind for row in queries.sweeps(database)] == ["sweep"]
    assert queries.source(database, WINNER.id) == WINNER.source


def test_two_histories_become_one(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    Filled(other, problem=problem("another", source="another source")).judge(WINNER)
    bring(other, write(lines(full.database)))
    assert len(queries.sweeps(other)) == 2


def test_one_problem_goes_out_with_what_it_names_alone(
    full: Filled, other: Database, write: Callable[..., Path]
) -> None:
    second = Filled(full.database, problem=problem("another", source="another source"))
    second.judge(candidate("of the other"))
    bring(other, write(lines(full.database, name="another")))
    assert [row.id for row in queries.sweeps(other)] == [second.sweep]
    assert [row.name for row in queries.problems(other)] == ["another"]


def test_samples_go_with_the_sweep_that_took_them_over(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    known = full.database.known(WINNER.id, full.environment.id, Accuracy.FP32)
    assert known
    second = full.start()
    full.database.add_evaluation(second, WINNER, known, environment_id=full.environment.id)
    later = Selection(since=queries.sweep(full.database, second).row.started_at)
    bring(other, write(lines(full.database, among=later)))
    [judged] = other.evaluated(second).values()
    assert judged.timing and judged.timing == known.timing


def test_sweep_that_runs_is_interrupted_in_the_copy(filled: Filled, other: Database, write: Callable[..., Path]) -> None:
    bring(other, write(lines(filled.database)))
    assert [row.state for row in queries.sweeps(other)] == ["interrupted"]


def test_sweep_that_went_on_is_renewed(filled: Filled, other: Database, write: Callable[..., Path]) -> None:
    filled.judge(WINNER, speedup=1.2)
    bring(other, write(lines(filled.database)))
    filled.finish(candidate("later"), 1.4, 1.5, 1.6)
    filled.finish(WINNER, 1.1, 1.2, 1.3)
    filled.database.finish_sweep(filled.sweep, "finished", 9.0, WINNER.id)
    file = write(lines(filled.database))
    bring(other, file)
    assert queries.sweep(other, filled.sweep) == queries.sweep(filled.database, filled.sweep)
    assert bring(other, file) == 0


def test_sweep_that_ended_later_here_stays(full: Filled, write: Callable[..., Path]) -> None:
    older = write(lines(full.database))
    full.database.reopen_sweep(full.sweep)
    full.database.finish_sweep(full.sweep, "interrupted", 5.0, None)
    assert bring(full.database, older) == 0
    assert queries.sweep(full.database, full.sweep).row.state == "interrupted"


def test_sweep_that_runs_here_stays(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    file = write(lines(full.database))
    full.database.reopen_sweep(full.sweep)
    assert bring(full.database, file) == 0
    assert queries.sweep(full.database, full.sweep).row.state == "running"


def test_verdict_that_was_overturned_stays_so(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    right = write(lines(full.database), "right.jsonl")
    [judgement] = queries.candidate(full.database, WINNER.id).judgements
    full.database.overturn(judgement.evaluation.id, Status.SUSPICIOUS, Phase.TIME, "too good")
    overturned = write(lines(full.database), "overturned.jsonl")
    for file in (right, overturned, right):
        bring(other, file)
    [found] = queries.candidate(other, WINNER.id).judgements
    assert (found.evaluation.status, found.evaluation.reason) == (Status.SUSPICIOUS, "too good")


def test_file_from_outside_is_described_by_the_sweep_that_rendered_it(
    full: Filled, other: Database, write: Callable[..., Path]
) -> None:
    Filled(other).judge(Candidate(WINNER.source, "outside", {}, "cpu", origin=Trust.FOREIGN))
    bring(other, write(lines(full.database)))
    found = queries.candidate(other, WINNER.id)
    assert (found.plan, found.plan_data) == (WINNER.plan, WINNER.plan_data)


def test_candidates_go_out_with_their_plans_as_json(full: Filled) -> None:
    items = [json.loads(line) for line in lines(full.database)[1:-1]]
    stored = [(item["table"], item["row"]["plan_data"]) for item in items if item["row"].get("plan") == WINNER.plan]
    assert sorted(table for table, _ in stored) == ["candidate", "candidate"]
    assert all(plan == WINNER.plan_data.to_json() for _, plan in stored)


def test_files_of_a_folder_are_the_histories_in_it(tmp_path: Path, write: Callable[..., Path]) -> None:
    write([], "b.jsonl"), write([], "a.json"), write([], "notes.txt")
    assert [file.name for file in exchange.files(tmp_path)] == ["a.json", "b.jsonl"]


def test_folder_without_a_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no .json or .jsonl file"):
        exchange.files(tmp_path)


# Damage --------------------------------------------------------------------------------------------------------


def is_of(table: str) -> Callable[[str], bool]:
    return lambda line: json.loads(line).get("table") == table


def changed(line: str, **values: object) -> str:
    """A row with other values, and a checksum that fits them."""
    item = json.loads(line)
    row = {**item["row"], **values}
    return exchange._line(item["table"], row)


DAMAGES: dict[str, tuple[str, Callable[[str], str], str]] = {
    "a byte": ("trial", lambda line: line.replace("0.5", "0.6"), "does not have the checksum"),
    "half a line": ("trial", lambda line: line[: len(line) // 2], "is no JSON"),
    "no object": ("trial", lambda line: "[1]", "is no JSON object"),
    "no number": ("trial", lambda line: line.replace("0.5", "NaN"), "NaN is no number"),
    "unknown table": ("trial", lambda line: line.replace('"trial"', '"songs"'), "is no row of"),
    "unknown column": ("trial", lambda line: changed(line, songs=1), "has no column 'songs'"),
    "missing column": ("trial", lambda line: line.replace('"number"', '"no"').replace("crc", "c"), "needs a value for"),
    "null": ("trial", lambda line: changed(line, number=None), "cannot be null"),
    "wrong type": ("trial", lambda line: changed(line, number="one"), "number is int, not 'one'"),
    "huge number": ("trial", lambda line: changed(line, number=10**30), "number is too large"),
    "yes for one": ("trial", lambda line: changed(line, number=True), "number is int, not True"),
    "half a character": ("trial", lambda line: changed(line, baseline="\ud800"), "surrogates not allowed"),
    "list for an object": ("trial", lambda line: changed(line, baselines=[1]), "baselines is dict, not"),
    "object for a list": ("timing", lambda line: changed(line, bursts={"a": 1}), "bursts is list, not"),
    "endless nesting": ("trial", lambda line: "[" * 100_000, "is no JSON"),
    "no date": ("trial", lambda line: changed(line, created_at="yesterday"), "Invalid isoformat"),
    "unknown status": ("trial", lambda line: changed(line, status="great"), "'great' is not a valid Status"),
    "unknown state": ("sweep", lambda line: changed(line, state="great"), "is no state"),
    "unknown kind": ("sweep", lambda line: changed(line, kind="great"), "is no kind"),
    "another source": ("source", lambda line: changed(line, text="import os"), "not the one that its candidate"),
    "another problem": ("problem", lambda line: changed(line, source="import os"), "not the one that its id names"),
    "another machine": ("environment", lambda line: changed(line, torch="1.0"), "not the one that its id names"),
    "list for a plan": ("candidate", lambda line: changed(line, plan_data=[]), "plan_data is dict, not"),
    "half a plan": ("candidate", lambda line: changed(line, plan_data={"steps": []}), "plan_data is no plan: the plan is"),
    "another name": ("candidate", lambda line: changed(line, plan="linear[library]"), "plan_data is the plan 'linear.library."),
    "no samples": ("timing", lambda line: changed(line, bursts=[["x"]]), "could not convert"),
    "nothing that it names": ("trial", lambda line: changed(line, sweep_id="0" * 16), "does not fit the others"),
    "another beginning": ("", lambda line: "{}", "is not the beginning of a history"),
    "a newer format": ("", lambda line: f'{{"kgen_history": {exchange.FORMAT + 1}}}', "written by a newer kgen"),
    "another count": ("end", lambda line: '{"end": 3}', "says that 3 rows come before it"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_refused_whole_with_its_line(
    database: Database, other: Database, write: Callable[..., Path], damage: str
) -> None:
    table, change, message = DAMAGES[damage]
    Filled(other).finish(WINNER, 1.4, 1.5, 1.6)
    text = lines(other)
    wanted = {"": lambda line: "kgen_history" in line, "end": lambda line: "end" in json.loads(line)}
    number = max(place for place, line in enumerate(text) if wanted.get(table, is_of(table))(line))
    text[number] = change(text[number])
    with pytest.raises(InputError, match=rf"history\.jsonl: line {number + 1}: .*{message}.*; nothing was imported"):
        bring(database, write(text))
    assert rows(database) == []


def test_file_that_was_cut_off_is_refused_whole(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    text = lines(full.database)[:-3]
    with pytest.raises(InputError, match=f"line {len(text) + 1}: is missing: the file was cut off"):
        bring(other, write(text))
    assert rows(other) == []


def test_good_file_beside_a_damaged_one_is_not_imported(full: Filled, other: Database, write: Callable[..., Path]) -> None:
    text = lines(full.database)
    good, bad = write(text, "a.jsonl"), write(text[:-1], "b.jsonl")
    with pytest.raises(InputError, match="b.jsonl"):
        bring(other, good, bad)
    assert rows(other) == []


def test_bytes_that_are_no_text_are_named_with_their_line(other: Database, tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b'{"kgen_history": 1}\n\xff\xfe\n')
    with pytest.raises(InputError, match="line 2: is no JSON .'utf-8'"):
        bring(other, file)


def test_file_that_is_not_there_is_named(other: Database, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none.jsonl: cannot be read: No such file"):
        bring(other, tmp_path / "none.jsonl")


def test_line_of_an_older_kgen_has_the_defaults_of_newer_columns(
    full: Filled, other: Database, write: Callable[..., Path]
) -> None:
    text = []
    for line in lines(full.database):
        item = json.loads(line)
        if item.get("table") == "sweep":
            del item["row"]["kind"], item["crc"]
        text.append(json.dumps(item))
    bring(other, write(text))
    assert [row.kind for row in queries.sweeps(other)] == ["sweep"]


def test_rows_are_read_one_at_a_time(full: Filled, monkeypatch: pytest.MonkeyPatch, other: Database) -> None:
    """The reader asks for a line only when what it read before was written, but for one batch."""
    monkeypatch.setattr(exchange, "_BATCH", 1)
    text = lines(full.database)
    ahead: list[int] = []
    target = exchange._Target.write

    def counted(self: exchange._Target, batch: object) -> None:
        ahead.append(reader.number)
        target(self, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(exchange._Target, "write", counted)
    reader = exchange._Reader("history", (line.encode() for line in text))
    with other.connections.write() as connection:
        into = exchange._Target(connection, exchange.Imported())
        for batch in exchange._batches(reader.rows()):
            into.write(batch)
    assert ahead == list(range(3, len(text) + 1))
