"""Files of SQLite: those that cannot be used, locks that are waited for, and processes that are killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest
from samples import Filled, start_writer

from kgen.errors import DatabaseBusyError, DatabaseError, DatabaseVersionError, DiskError, NotFoundError
from kgen.store import Database, connections, queries


@pytest.fixture
def url(path: Path) -> str:
    """These tests are about files."""
    return f"sqlite:///{path}"


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.05)
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.2)


def test_url_in_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_DB", f"sqlite:///{tmp_path / 'other.db'}")
    with Database.open():
        assert (tmp_path / "other.db").is_file()


def test_home_folder_is_made(kgen_home: Path) -> None:
    with Database.open():
        assert (kgen_home / "kgen.db").is_file()


def test_url_opens_the_same_database_again(database: Database, filled: Filled) -> None:
    with Database.open(database.url) as again:
        assert queries.resolve(again, filled.sweep) == ("sweep", filled.sweep)


def test_writes_go_to_a_log_ahead(database: Database) -> None:
    with database.connections.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


def test_missing_database_is_not_made_by_a_reader(path: Path) -> None:
    with pytest.raises(NotFoundError, match="no database"):
        Database.open(str(path), create=False)
    assert not path.exists()


def test_empty_file_is_not_filled_by_a_reader(path: Path) -> None:
    path.touch()
    with pytest.raises(NotFoundError, match="empty"):
        Database.open(str(path), create=False)


def test_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("no database at all, but long enough to have a header of a hundred bytes" * 2)
    with pytest.raises(DatabaseError, match="is not a kgen database"):
        Database.open(str(path))


def test_database_of_another_program_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    with pytest.raises(DatabaseError, match="belongs to another program"):
        Database.open(str(path))


def test_database_of_a_newer_kgen_is_refused(database: Database, path: Path) -> None:
    with database.connections.write() as connection:
        connection.exec_driver_sql("UPDATE kgen_version SET version_num = '9999'")
    with pytest.raises(DatabaseVersionError, match="newer kgen"):
        Database.open(str(path))


def test_damaged_database_is_refused(database: Database, path: Path) -> None:
    database.close()
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)
    with pytest.raises(DatabaseError, match="damaged"):
        Database.open(str(path))


def test_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="cannot be opened"):
        Database.open(str(tmp_path))


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="cannot be made"):
        Database.open(str(tmp_path / "file" / "folder" / "kgen.db"))


def test_url_of_an_unknown_database_is_refused() -> None:
    with pytest.raises(DatabaseError, match="no database URL"):
        Database.open("nonsense://here")


def test_password_is_not_shown() -> None:
    with pytest.raises(DatabaseError) as raised:
        Database.open("nonsense://me:secret@here/db")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (sqlite3.SQLITE_FULL, DiskError, "the disk is full"),
        (sqlite3.SQLITE_READONLY, DiskError, "read-only"),
        (sqlite3.SQLITE_IOERR | 2 << 8, DiskError, "the disk reports an error"),
        (sqlite3.SQLITE_BUSY, DatabaseBusyError, "locked by another process"),
    ],
)
def test_error_of_the_disk_is_one_line(database: Database, code: int, kind: type[Exception], text: str) -> None:
    error = sqlite3.OperationalError("as the driver has it")
    error.sqlite_errorcode = code
    with pytest.raises(kind, match=text), database.connections.write():
        raise error


def test_disk_that_is_full_is_one_line(filled: Filled) -> None:
    with filled.database.connections.write() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # the pool keeps this connection, and its limit
    with pytest.raises(DiskError, match="full"):
        filled.database.add_problem(filled.problem.__class__("large", "large.py", "x" * 1_000_000, (), "train"))


def test_writer_waits_for_another_and_says_so_once(path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.05)
    notices: list[str] = []
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.5, other.commit).start()
    with Database.open(str(path), notice=notices.append) as waiting:
        Filled(waiting)
    other.close()
    assert len(notices) == 1 and "waiting" in notices[0]


def test_writers_of_one_process_take_turns_and_none_is_told_to_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.05)
    told: list[str] = []
    order: list[str] = []
    begun = threading.Event()
    with Database.open(f"sqlite:///{path}", notice=told.append) as database:
        def second() -> None:
            begun.set()
            with database.connections.write():
                order.append("second")

        with database.connections.write():
            thread = threading.Thread(target=second)
            thread.start()
            assert begun.wait(10)
            thread.join(0.3)
            order.append("first")
        thread.join(10)
    assert (order, told) == (["first", "second"], [])


def test_writer_gives_up_in_the_end(path: Path, database: Database, short_waits: None) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Database.open(str(path)) as waiting, pytest.raises(DatabaseBusyError, match="locked by another process"):
        Filled(waiting)
    other.close()


def test_reader_does_not_wait_for_a_writer(filled: Filled, path: Path, short_waits: None) -> None:
    with filled.database.connections.write(), Database.open(str(path), create=False) as reader:
        assert len(queries.sweeps(reader)) == 1


def test_reader_gives_up_on_an_exclusive_lock(path: Path, database: Database, short_waits: None) -> None:
    database.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DatabaseBusyError):
        Database.open(str(path), create=False)
    other.close()


def test_interrupt_within_a_write_is_heard_when_it_is_committed(filled: Filled, path: Path, short_waits: None) -> None:
    with pytest.raises(KeyboardInterrupt), filled.database.connections.write() as connection:
        signal.raise_signal(signal.SIGINT)
        connection.exec_driver_sql("UPDATE sweep SET state = 'failed'")
    with Database.open(str(path)) as other:
        assert queries.sweep(other, filled.sweep).row.state == "failed"
        other.finish_sweep(filled.sweep, "finished", 1.0, None)  # nothing is locked


def test_interrupt_ends_the_wait_for_another_writer(path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    interrupt = lambda line: signal.raise_signal(signal.SIGINT)
    with Database.open(str(path), notice=interrupt) as waiting, pytest.raises(KeyboardInterrupt):
        Filled(waiting)
    other.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only folders too")
def test_folder_that_is_read_only_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DiskError):
        Database.open(str(tmp_path / "kgen.db"))


def test_killed_writer_loses_nothing_that_was_committed(path: Path) -> None:
    committed: set[str] = set()
    for judged_before_the_kill in (0, 1, 5):
        writer = start_writer(str(path), 10_000)
        assert writer.stdout
        sweep = writer.stdout.readline().strip()
        for _ in range(judged_before_the_kill):
            committed.add(writer.stdout.readline().strip())
        writer.send_signal(signal.SIGKILL)
        committed |= {line.strip() for line in writer.stdout if line.endswith("\n")}
        writer.wait()
        writer.stdout.close()
        with Database.open(str(path)) as database:
            assert queries.sweep(database, sweep).row.state == "interrupted"
            with database.connections.read() as connection:
                assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
                assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
                found = set(connection.exec_driver_sql("SELECT candidate_id FROM trial").scalars())
        assert committed <= found


def test_two_sweeps_write_at_once_and_lose_nothing(path: Path) -> None:
    writers = [start_writer(str(path), 30) for _ in range(2)]
    printed = [set(writer.communicate()[0].split()) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    with Database.open(str(path)) as database:
        for ids in printed:
            sweep = next(name for name in ids if len(name) == 16)
            assert set(database.evaluated(sweep)) == ids - {sweep}
