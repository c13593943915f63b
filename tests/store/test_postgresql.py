"""What is PostgreSQL's own: servers that do not answer, users who may not, and many machines that write at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from click.testing import CliRunner
from postgres import Server
from samples import Filled, candidate, environment, start_writer, timing

from kgen.cli import main
from kgen.errors import DatabaseBusyError, DatabaseError
from kgen.protocol import Accuracy, Status
from kgen.store import Database, connections, holder, queries, schema


@pytest.fixture
def url(postgres_server: Server) -> Iterator[str]:
    with postgres_server.newest() as made:
        yield made


@pytest.fixture
def empty_url(postgres_server: Server) -> Iterator[str]:
    with postgres_server.empty() as made:
        yield made


def failure(server: Server, which: str) -> tuple[str, str]:
    """A URL that does not serve, and what its one line has to say."""
    return {
        "no server": ("postgresql+psycopg://kgen:hidden@127.0.0.1:1/kgen", "no connection"),
        "no socket": (f"postgresql+psycopg://kgen:hidden@/kgen?host={server.folder}/none", "no connection"),
        "wrong password": (server.url("postgres", "secretive", "hidden"), "password authentication failed"),
        "no password": (server.url("postgres", "secretive"), "no password supplied"),
        "unknown database": (server.url("no_such", password="hidden"), '"no_such" does not exist'),
        "unknown user": (server.url("postgres", "nobody", "hidden"), '"nobody" does not exist'),
        "unknown option": (server.url("postgres", password="hidden") + "&hop=1", 'invalid connection option "hop"'),
        "password in the query": (server.url("no_such") + "&password=hidden", '"no_such" does not exist'),
        "password with @": ("postgresql://kgen:hid@den@127.0.0.1/kgen", "write one in a password as %40"),
        "port": ("postgresql://kgen:hidden@127.0.0.1:many/kgen", "no database URL"),
    }[which]


FAILURES = (
    "no server",
    "no socket",
    "wrong password",
    "no password",
    "unknown database",
    "unknown user",
    "unknown option",
    "password in the query",
    "password with @",
    "port",
)


@pytest.mark.parametrize("which", FAILURES)
def test_server_that_does_not_serve_is_one_line_without_the_password(postgres_server: Server, which: str) -> None:
    url, message = failure(postgres_server, which)
    answer = CliRunner().invoke(main, ["history", "--db", url])
    assert (answer.exit_code, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert message in answer.stderr
    assert "hid" not in answer.stderr and postgres.PASSWORD not in answer.stderr


def test_password_of_a_database_that_serves_is_not_shown(postgres_server: Server) -> None:
    opened = connections.Connections(postgres_server.url(postgres.NEWEST, "secretive", postgres.PASSWORD))
    with opened.read() as connection:
        assert connection.exec_driver_sql("SELECT current_user").scalar() == "secretive"
    opened.close()
    assert "***" in opened.name and postgres.PASSWORD not in opened.name


def test_url_without_a_driver_means_the_one_that_kgen_brings(url: str) -> None:
    with Database.open(url.replace("postgresql+psycopg", "postgresql")) as database:
        assert queries.sweeps(database) == []


def test_missing_driver_is_named_with_its_remedy() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from kgen.cli import main; main(['history', '--db', 'postgresql://me:secret@here/db'])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "pip install 'kgen[postgresql]'" in answer.stderr and "secret" not in answer.stderr


def test_reader_cannot_write(filled: Filled) -> None:
    with pytest.raises(DatabaseError, match="read-only"), filled.database.connections.read() as connection:
        connection.exec_driver_sql("DELETE FROM sweep")


def test_reader_sees_one_state_from_beginning_to_end(filled: Filled, url: str) -> None:
    with Database.open(url) as other, other.connections.read() as connection:
        before = connection.exec_driver_sql("SELECT count(*) FROM trial").scalar()
        filled.judge(candidate())
        assert connection.exec_driver_sql("SELECT count(*) FROM trial").scalar() == before


def test_writer_gives_up_on_a_row_that_another_holds(
    filled: Filled, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.1)
    with filled.database.connections.write() as connection:
        connection.exec_driver_sql("SELECT * FROM sweep FOR UPDATE")
        with Database.open(url) as waiting, pytest.raises(DatabaseBusyError, match="locked by another process"):
            waiting.finish_sweep(filled.sweep, "finished", 1.0, None)


def test_text_with_a_nul_is_kept_with_a_sign_for_it(filled: Filled) -> None:
    filled.judge(candidate(), Status.CRASHED, reason="printed \0 and died")
    assert [group.reason for group in queries.sweep(filled.database, filled.sweep).failures] == ["printed \u2400 and died"]


def test_schema_made_by_many_at_once_is_made_once(empty_url: str) -> None:
    writers = [start_writer(empty_url, 1) for _ in range(3)]
    assert all(writer.communicate()[0] for writer in writers)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    with Database.open(empty_url, create=False) as database:
        assert len(queries.sweeps(database)) == 3
        with database.connections.read() as connection:
            rows = connection.exec_driver_sql(f"SELECT version_num FROM {schema.VERSION_TABLE}").scalars().all()
    assert rows == [schema.HEAD]


def test_machines_that_sweep_at_once_lose_nothing(url: str) -> None:
    writers = [start_writer(url, 40, shared=True) for _ in range(2)]
    printed = [writer.communicate()[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 2
    with Database.open(url) as database:
        for sweep, *judged in printed:
            assert list(database.evaluated(sweep)) == judged
        with database.connections.read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM candidate").scalar() == 40


def test_machines_share_what_is_known_of_their_kind_alone(filled: Filled, url: str) -> None:
    filled.judge(candidate())
    with Database.open(url) as elsewhere:
        assert elsewhere.known(candidate().id, filled.environment.id, Accuracy.FP32)
        assert elsewhere.known(candidate().id, environment("another cpu").id, Accuracy.FP32) is None


def test_sweep_is_taken_up_by_one_of_two_machines(filled: Filled, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.database.finish_sweep(filled.sweep, "interrupted", 1.0, None)
    filled.database.reopen_sweep(filled.sweep)
    monkeypatch.setattr(holder, "this_process", lambda: "elsewhere:1:2")
    with Database.open(url) as elsewhere, pytest.raises(DatabaseBusyError, match="running in another process"):
        elsewhere.reopen_sweep(filled.sweep)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["history", "--status", "ok", "--since", "1h"], "made_up"),
        (["best"], "1.500x [1.400, 1.600]"),
        (["show", "SWEEP"], "1 of 10 combinations timed"),
        (["show", "CANDIDATE"], "winner"),
        (["compare", "SWEEP", "SWEEP"], "the same"),
        (["compare", "ENVIRONMENT", "ENVIRONMENT"], "the same"),
        (["sql", "SELECT params ->> 'k0.block' AS block FROM candidate"], "128"),
        (["prune", "--failed"], "there is nothing to drop"),
        (["export-history"], '{"end":9}'),
        (["doctor"], "database"),
    ],
)
def test_command_answers_from_postgresql(filled: Filled, url: str, command: list[str], answer: str) -> None:
    winner = candidate("winner")
    filled.finish(winner, 1.4, 1.5, 1.6)
    filled.database.add_timings(filled.sweep, filled.environment.id, Accuracy.FP32, [timing("eager", (3.0,))])
    filled.database.finish_sweep(filled.sweep, "finished", 61.0, winner.id)
    named = {"SWEEP": filled.sweep, "CANDIDATE": winner.id, "ENVIRONMENT": filled.environment.id}
    result = CliRunner().invoke(main, [*(named.get(word, word) for word in command), "--db", url], env={"COLUMNS": "160"})
    assert (result.exit_code, answer in result.stdout) == (0, True), result.output
