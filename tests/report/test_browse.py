"""``kgen browse``: a live database is seen as it grows, nobody is blocked, nothing changes, and it ends cleanly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import postgres
import pytest
from histories import History, fill
from running import Home, end
from samples import problem
from sqlalchemy import insert, select
from yaml import safe_load

from kgen.protocol import Status
from kgen.store import Database, attempts, models, modules, proposals, queries, requests, tasks
from kgen.store.attempts import Attempt
from kgen.store.kernel_task import Measured, Operand, TaskKey, Variant
from kgen.store.requests import StoredRequest
from kgen.store.rows import from_problem
from kgen.store.snapshot import snapshot
from kgen.views.report.browse import QUERIES

CANNED = safe_load(QUERIES.read_text(encoding="utf-8"))["databases"]["kgen"]["queries"]
TABLES = set(models.Base.metadata.tables)
ANSWERS = {"parameter": "k0.block", "sweep": "", "candidate": ""}  #: for the queries that ask for something

_SECONDS = 20  #: that an answer may take on a busy machine: less than a writer is waited for


@dataclass(frozen=True)
class Served:
    """A server that runs, and its address."""

    home: Home
    process: subprocess.Popen[str]
    address: str

    def ask(self, path: str, **arguments: str) -> Any:
        query = urllib.parse.urlencode({"_shape": "array", **arguments})
        with urllib.request.urlopen(f"{self.address}{path}.json?{query}", timeout=_SECONDS) as answer:
            return json.load(answer)

    def count(self, table: str) -> int:
        [row] = self.ask("", sql=f"SELECT count(*) AS number FROM {table}")
        return row["number"]


@contextmanager
def serving(home: Home, *options: str) -> Iterator[Served]:
    process = home.start("browse", "--port", "0", *options)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), process.communicate()
        yield Served(home, process, line.split()[0])
    finally:
        process.kill()
        process.communicate()


def add_task(database: Database) -> None:
    """A task of the latest sweep, with a result, and a candidate of one step."""
    key = TaskKey("p" * 64, False, "3", (Operand.dense("input", (8, 4), "float32"),), "fp32", "cpu", "a cpu", "avx2", "g++ 12", 2)
    sweep = queries.sweeps(database)[0]
    tasks.add_tasks(database, sweep.id, [tasks.NewTask(key, "pointwise[relu]", 0.25, 3)])
    with database.connections.read() as connection:
        place = connection.execute(select(models.Environment.id)).scalars().first()
        candidate = connection.execute(select(models.Candidate.id)).scalars().first()
    measured = Measured(Variant.of("pointwise", {"block": 256}), "t" * 64, Status.OK, "", 1.5, 0.5, 1e-7, 2e-7)
    found = tasks.add_result(database, key.id, str(place), measured)
    tasks.add_steps(database, str(candidate), [tasks.Step("k0", key.id, found.id)])


def add_proposal(database: Database) -> None:
    """An answer without proposals, of the first sweep."""
    with database.connections.read() as connection:
        sweep = connection.execute(select(models.Sweep.id)).scalars().first()
    proposals.add(database, proposals.StoredProposals(str(sweep), 1, "folder", "", "", "", None, None, ()))


@pytest.fixture(scope="module")
def served(reported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over a copy of a filled database, in a folder whose name means something in a URL."""
    home = Home(tmp_path_factory.mktemp("browsed") / "100% #1")
    home.db.parent.mkdir(parents=True)
    shutil.copy(reported, home.db)
    with Database.open(str(home.db)) as database:
        attempts.add(database, Attempt("a", "a.py", "0", None, {}, "fp32", "cpu", "refused", "the reason", 1.0, {}))
        requests.add(database, [StoredRequest("", "first", "0", 0, {"candidate": ""})])
        modules.keep(database, modules.StoredModule("f" * 64, "Block", 1.0, ()))
        add_task(database)
        add_proposal(database)
    with serving(home) as found:
        yield found


@pytest.mark.parametrize("name", CANNED)
def test_query_finds_something(served: Served, name: str) -> None:
    arguments = {parameter: ANSWERS[parameter] for parameter in CANNED[name].get("params", ())}
    assert served.ask(f"/{name}", **arguments)


def test_every_table_is_described() -> None:
    metadata = safe_load(QUERIES.read_text(encoding="utf-8"))["databases"]["kgen"]["tables"]
    assert {name for name, about in metadata.items() if "description" in about} == TABLES


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_is_shown_in_the_order_that_is_named(served: Served, table: str) -> None:
    assert served.ask(f"/{table}")


def test_rows_that_a_running_process_commits_are_seen_at_once(served: Served) -> None:
    before = served.count("trial")
    with Database.open(str(served.home.db)) as database:  # open: what is written stays in the write-ahead log
        History(database).add(1.1, text="new")
        assert served.count("trial") == before + 1


def test_browsing_neither_waits_for_a_writer_nor_shows_what_is_not_committed(served: Served) -> None:
    with Database.open(str(served.home.db)) as database:
        before = served.count("problem")
        with database.connections.write() as connection:
            connection.execute(insert(models.Problem).values(from_problem(problem(source="written meanwhile"))))
            assert served.count("problem") == before
        assert served.count("problem") == before + 1


def test_writer_does_not_wait_for_a_reader(served: Served) -> None:
    with Database.open(str(served.home.db)) as database, socket.create_connection(address(served)) as reader:
        query = urllib.parse.quote("SELECT count(*) FROM evaluation a, evaluation b, evaluation c, evaluation d")
        reader.sendall(f"GET /kgen.json?_timelimit=1000&sql={query} HTTP/1.0\r\n\r\n".encode())
        told: list[str] = []
        database.connections._notice = told.append
        History(database).add(1.2, text="while it is read")
        assert told == []


def address(served: Served) -> tuple[str, int]:
    parsed = urllib.parse.urlsplit(served.address)
    assert parsed.hostname and parsed.port
    return parsed.hostname, parsed.port


def test_every_descriptor_of_the_database_is_read_only(served: Served) -> None:
    served.count("trial")
    folder = Path("/proc") / str(served.process.pid)
    opened = [link for link in (folder / "fd").iterdir() if link.exists() and link.samefile(served.home.db)]
    flags = [(folder / "fdinfo" / link.name).read_text().split("flags:")[1].split()[0] for link in opened]
    assert {int(flag, 8) & os.O_ACCMODE for flag in flags} == {os.O_RDONLY}


@pytest.mark.parametrize(
    "statement", ["DELETE FROM trial", "WITH x AS (SELECT 1) DELETE FROM trial", "PRAGMA user_version = 9"]
)
def test_what_would_change_something_is_refused(served: Served, statement: str) -> None:
    before = served.count("trial")
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.ask("", sql=statement)
    with refused.value as answer:
        assert answer.code == 400
    assert served.count("trial") == before


def test_only_this_machine_is_answered(served: Served) -> None:
    listening = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{address(served)[1]:04X}"
    assert [where for where in listening if where.endswith(port)][0] == f"0100007F:{port}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_cleanly(tmp_path: Path, reported: Path, number: signal.Signals) -> None:
    with serving(Home(tmp_path), "--db", str(reported)) as found:
        found.count("trial")
        ended, _ = end(found.process, number)
        assert (ended.code, ended.err) == (0, "")


def test_taken_port_is_told_in_one_line(served: Served) -> None:
    ended = served.home.kgen("browse", "--port", str(address(served)[1]))
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert "cannot be used (Address already in use" in ended.err


def test_missing_database_is_told_in_one_line(tmp_path: Path) -> None:
    ended = Home(tmp_path).typed("browse", "--port", "0")
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)


def test_missing_datasette_is_told_with_the_command_that_gets_it(tmp_path: Path, reported: Path) -> None:
    """A module in the way stands for one that is not there."""
    hidden = tmp_path / "datasette"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError(name='datasette')\n")
    home = Home(tmp_path)
    path = f"{tmp_path}:{home.environment()['PYTHONPATH']}"
    ended = home.kgen("browse", "--db", str(reported), PYTHONPATH=path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "kgen: kgen browse needs Datasette: pip install 'kgen[browse]'\n"


def test_snapshot_has_every_row_of_every_table(reported: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with Database.open(str(reported)) as database:
        snapshot(database, copy)
    with closing(sqlite3.connect(copy)) as copied, closing(sqlite3.connect(reported)) as source:
        for table in TABLES:
            query = f"SELECT * FROM {table} ORDER BY 1, 2"
            assert copied.execute(query).fetchall() == source.execute(query).fetchall()


def test_postgresql_is_served_as_a_snapshot_that_goes_with_the_server(
    postgres_server: postgres.Server, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with postgres_server.newest() as url:
        with Database.open(url) as database:
            fill(History(database))
        home = Home(tmp_path)
        process = home.start("browse", "--port", "0", "--db", url, TMPDIR=str(temporary))
        assert process.stdout
        found = Served(home, process, process.stdout.readline().split()[0])
        assert found.ask("/leaders")[0]["speedup"] == 1.3
        assert list(temporary.iterdir())
        ended, _ = end(process, signal.SIGINT)
        assert (ended.code, ended.err, list(temporary.iterdir())) == (0, "", [])
