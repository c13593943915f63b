"""Real processes in odd surroundings: closed streams, other bytes than UTF-8, a read-only home, and an early Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from running import PROBLEM, ROOT
from samples import Filled

KGEN = [sys.executable, "-m", "kgen"]


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def shell(script: str, *arguments: str | bytes, **environment: str | bytes) -> subprocess.CompletedProcess[bytes]:
    """A shell that runs kgen as ``"$@"``."""
    return subprocess.run(
        ["sh", "-c", script, "sh", *KGEN, *arguments], capture_output=True, env=os.environb | _bytes(environment)
    )


def _bytes(environment: dict[str, str | bytes]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}


def refused(done: subprocess.CompletedProcess[bytes], words: bytes) -> None:
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1), done
    assert words in done.stderr


#: What others of the same test also state.
FURTHER = pytest.mark.exhaustive


@pytest.mark.parametrize(
    "closed", [">&-", pytest.param("<&-", marks=FURTHER), pytest.param(">&- 2>&-", marks=FURTHER), "<&- >&- 2>&-"]
)
def test_closed_stream_is_like_a_reader_that_is_gone(won: Filled, closed: str) -> None:
    done = shell(f'"$@" {closed}', "history")
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_streams_do_not_lead_into_the_database(won: Filled, kgen_home: Path) -> None:
    shell('"$@" <&- >&- 2>&-', "prune", "--failed", "--yes")
    with closing(sqlite3.connect(kgen_home / "kgen.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_question_that_is_not_utf8_is_one_line(won: Filled) -> None:
    refused(shell("printf 'SELECT \"\\377\"' | \"$@\"", "sql", "-"), b"standard input is not UTF-8 text")
    refused(shell("printf 'SELECT \"\\377\"' | \"$@\"", "sql", "-", LC_ALL="C"), b"standard input is not UTF-8 text")


@pytest.mark.parametrize("command", ["plan", "history", "best", "eval", "sweep", "import"])
def test_name_that_is_not_utf8_is_one_line(won: Filled, folder: Path, command: str) -> None:
    shutil.copy(folder / "problems" / "made_up.py", os.fsencode(folder) + b"/p\xff.py")
    refused(shell('"$@"', command, b"p\xff.py"), b"'p\\udcff.py': is not UTF-8")


def test_home_that_is_not_utf8_is_one_line() -> None:
    refused(shell('"$@"', "history", KGEN_HOME=b"h\xff"), b"KGEN_HOME 'h\\udcff': is not UTF-8")


#: Runs a command in a mount namespace in which a folder is read-only.
READ_ONLY = """
import os, subprocess, sys
folder, *command = sys.argv[1:]
for arguments in (["--bind", folder, folder], ["-o", "remount,ro,bind", folder]):
    subprocess.run(["mount", *arguments], check=True)
os.execv(command[0], command)
"""


@pytest.fixture
def read_only(kgen_home: Path) -> list[str]:
    """The beginning of a command that finds kgen's home read-only."""
    unshare = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("namespaces are not allowed here")
    return [*unshare, sys.executable, "-c", READ_ONLY, str(kgen_home), *KGEN]


#: Runs several commands, one after the other, and tells how each ended.
_EACH = """
import json, sys
from click.testing import CliRunner
from kgen.cli import main

ended = (CliRunner().invoke(main, words) for words in json.loads(sys.argv[1]))
print(json.dumps([[answer.exit_code, answer.stdout, answer.stderr] for answer in ended]))
"""


def test_read_only_home_is_read(won: Filled, read_only: list[str]) -> None:
    won.database.close()
    commands = [["history"], ["best", "made_up"], ["sql", "SELECT id FROM sweep"], ["export-history"], ["scores"]]
    in_namespace = [*read_only[: -len(KGEN)], sys.executable, "-c", _EACH, json.dumps(commands)]
    done = subprocess.run(in_namespace, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command, (code, out, err) in zip(commands, json.loads(done.stdout), strict=True):
        assert (code, "made_up" in out or won.sweep in out) == (0, True), (command, err)


def test_read_only_home_is_not_written(won: Filled, read_only: list[str]) -> None:
    won.database.close()
    done = subprocess.run([*read_only, "prune", "--failed", "--yes"], capture_output=True)
    refused(done, b"read-only")


def test_rows_of_a_running_sweep_are_read_from_a_read_only_home(won: Filled, read_only: list[str]) -> None:
    with won.database.connections.write() as connection:
        connection.exec_driver_sql("UPDATE sweep SET device = 'another'")
    with won.database.connections.read() as connection:  # keeps the log beside the database
        connection.exec_driver_sql("SELECT 1 FROM sweep")
        done = subprocess.run([*read_only, "sql", "SELECT device FROM sweep", "--csv"], capture_output=True, text=True)
    assert done.stdout.split() == ["device", "another"], done.stderr


#: kgen's program, which makes a file once it handles Ctrl-C: Python itself takes some time before.
_STARTS = """
import runpy, signal
install = signal.signal

def told(*arguments):
    before = install(*arguments)
    open({begun!r}, "w").close()
    return before

signal.signal = told
runpy.run_module("kgen", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("seconds", [0.0, pytest.param(0.1, marks=FURTHER), 0.3, 0.6, pytest.param(1.2, marks=FURTHER)])
def test_ctrl_c_while_kgen_starts_is_one_line_and_exit_code_130(tmp_path: Path, seconds: float) -> None:
    begun = tmp_path / "begun"
    code = _STARTS.format(begun=str(begun))
    command = [sys.executable, "-c", code, "sweep", PROBLEM, "--device", "cpu"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not begun.exists():
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (130, b"kgen: interrupted"), err
    assert b"Traceback" not in err
