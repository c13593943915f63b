"""``kgen prune``, ``export-history`` and ``import``, and databases that another process writes to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from samples import Filled, candidate
from typed import kgen

from kgen import paths
from kgen.protocol import Status
from kgen.store import connections


def test_prune_shows_first_and_drops_when_told(won: Filled, kgen_home: Path) -> None:
    source = paths.write_candidate(candidate("wrong").id, "wrong")
    looked = kgen("prune", "--failed")
    assert "1  trial" in looked.out and "--yes" in looked.err and source.exists()
    assert kgen("prune", "--failed", "--yes", "--json").json["rows"]["trial"] == 1
    assert kgen("history", "--json").json[0]["counts"] == {"ok": 1}
    assert not source.exists()


def test_prune_lists_no_more_sweeps_than_its_limit(filled: Filled) -> None:
    for _ in range(3):
        filled.sweep = filled.start()
        filled.database.finish_sweep(filled.sweep, "failed", 1.0, None)
    out = kgen("prune", "--status", "failed", "--limit", "1").out
    assert "sweeps, with all of them: 3, of which 1 are" in out and out.count("made_up, train mode") == 1


def test_prune_keeps_files_that_lie_elsewhere(filled: Filled, folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "1.log").write_text("not in the folder that kgen writes to")
    filled.judge(candidate("wrong"), Status.WRONG_VALUES)
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, None)
    assert kgen("prune", "made_up", "--yes").code == 0
    assert (folder / "logs" / "1.log").exists()


def test_export_says_what_it_wrote_on_stderr(won: Filled, folder: Path) -> None:
    rows = len(kgen("export-history").out.splitlines()) - 2
    counted = f"kgen: wrote 1 sweeps, 2 candidates, 2 evaluations, {rows} rows in all, to"
    assert kgen("export-history").err == f"{counted} stdout\n"
    assert (kgen("export-history", "-o", "h.jsonl").out, (folder / "h.jsonl").exists()) == ("", True)
    assert kgen("export-history", "-o", "h.jsonl").err == f"{counted} h.jsonl\n"


def test_prune_failed_lists_only_sweeps_with_failed_candidates(won: Filled) -> None:
    failing, won.sweep = won.sweep, won.start(number=2)
    won.judge(candidate("right"), speedup=1.1)
    won.database.finish_sweep(won.sweep, "finished", 1.0, None)
    listed = kgen("prune", "--failed", "--json").json
    assert [row["sweep"] for row in listed["of_failed"]] == [failing]
    assert won.sweep[:12] not in kgen("prune", "--failed").out


def test_history_moves_from_one_database_to_another(won: Filled, folder: Path) -> None:
    assert kgen("export-history", "-o", "history.jsonl").code == 0
    assert kgen("export-history").out.splitlines()[1:] == (folder / "history.jsonl").read_text().splitlines()[1:]
    assert kgen("import", "history.jsonl", "--db", "other.db", "--json").json["written"]["trial"] == 2
    assert sum(kgen("import", ".", "--db", "other.db", "--json").json["written"].values()) == 0
    [row] = kgen("history", "--db", "other.db", "--json").json
    assert row == kgen("history", "--json").json[0]


def test_history_goes_into_a_pipe_that_stays_one(won: Filled, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with subprocess.Popen(["cat", folder / "pipe"], stdout=subprocess.PIPE, text=True) as reader:
        assert kgen("export-history", "-o", "pipe").code == 0
        read, _ = reader.communicate()
    assert read.splitlines()[1:] == kgen("export-history", "-o", "-").out.splitlines()[1:]
    assert (folder / "pipe").is_fifo()


def test_page_on_standard_output_is_alone_there(won: Filled) -> None:
    answer = kgen("report", "made_up", "-o", "-")
    assert answer.code == 0 and answer.out.endswith("</html>") and answer.err.startswith("written: -")


@pytest.mark.parametrize(
    "command", [["history"], ["best"], ["show"], ["compare"], ["sql", "SELECT * FROM sweep"], ["export-history"]]
)
def test_database_that_a_sweep_writes_to_is_read_without_waiting(
    won: Filled, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.01)
    named = {"show": [won.sweep], "compare": [won.sweep, won.sweep]}.get(command[0], [])
    with won.database.connections.write() as connection:
        connection.exec_driver_sql("UPDATE sweep SET state = 'failed'")
        answer = kgen(*command, *named)
    assert answer.code == 0 and "another process" not in answer.err
    assert "failed" not in answer.out.replace("1 failed", "").replace("failed  status", "")


@pytest.mark.parametrize("command", [["prune", "--failed"], ["import", "history.jsonl"]])
def test_what_writes_gives_up_in_one_line_where_a_sweep_holds_the_database(
    won: Filled, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    kgen("export-history", "-o", "history.jsonl")
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.01)
    with won.database.connections.write():
        answer = kgen(*command)
    assert answer.code == 2 and "locked by another process" in answer.err.splitlines()[-1]
