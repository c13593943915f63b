"""``kgen`` with a folder of its own: in this process, and as real processes, watched, ended, and looked for afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from forking import Command, Forking

from kgen.cli import main

ROOT = Path(__file__).parents[1]
PROBLEM = str(Path(__file__).parent / "problems" / "long_tail.py")

#: A sweep that is short, because PyTorch is not compiled.
SHORT_SWEEP = ("sweep", PROBLEM, "--device", "cpu", "--baselines", "eager")

#: A command in a process of its own.
Process = subprocess.Popen[str] | Command

BRIEF = str(Path(__file__).parent / "brief.py")

#: kgen says these only because the machine does other work: the tests of other workers, for one.
_BUSY = re.compile(r"kgen: (waiting for \S+, held by .*|finals are timed once more: of a candidate, .*: work beside the call)")

_PATIENCE = 300.0  #: seconds; a process that takes longer hangs


@dataclass(frozen=True)
class Ended:
    """The output of a process, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def told(self) -> list[str]:
        """The lines of ``err`` that a machine without other work shows, too."""
        return [line for line in self.err.splitlines() if not _BUSY.fullmatch(line)]

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of ``--json``, each one an object."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Home:
    """A folder for ``kgen`` to run in and to write to; its path marks every process that is started in it."""

    folder: Path

    @property
    def db(self) -> Path:
        return self.folder / "runs" / "kgen.db"

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("KGEN_DB", "COLUMNS")}
        return kept | {"KGEN_HOME": str(self.folder / "runs"), "PYTHONPATH": str(ROOT)} | more

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A ``kgen`` process that runs."""
        return self.popen([sys.executable, "-m", "kgen", *arguments], **environment)

    def start_brief(self, *arguments: str, **environment: str) -> Process:
        """A ``kgen`` process that runs, with short finals; so have those that it starts. Where servers are forked, it is
        forked, too: imports would take most of its time."""
        given = self.environment(**environment)
        if given.get("FORKED_SERVERS"):
            folder, owner, variables = json.loads(given["FORKED_SERVERS"])
            if forked := Forking(Path(folder), owner, variables).command(BRIEF, arguments, self.folder, given):
                return forked
        return self.popen([sys.executable, BRIEF, *arguments], **environment)

    def typed(self, *arguments: str, **environment: str) -> Ended:
        """A ``kgen`` command of this process, which has torch loaded already."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setenv("KGEN_HOME", str(self.folder / "runs"))
            for name, value in environment.items():
                patch.setenv(name, value)
            answer = CliRunner().invoke(main, arguments)
        return Ended(answer.exit_code, answer.stdout, answer.stderr)

    def popen(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        """Any process that runs in the folder."""
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kgen(self, *arguments: str, **environment: str) -> Ended:
        """A ``kgen`` process that has ended."""
        return wait(self.start(*arguments, **environment))

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The database's own answer, without kgen."""
        with closing(sqlite3.connect(self.db)) as connection:
            return connection.execute(query).fetchall()

    def strays(self) -> list[str]:
        """Processes that were started in this folder, here or in a namespace below, and still live."""
        return [" ".join(command) for pid, command in _processes(str(self.folder)) if pid != os.getpid()]


def wait(process: Process) -> Ended:
    """Wait until a process has ended."""
    try:
        out, err = process.communicate(timeout=_PATIENCE)
    finally:
        process.kill()
    return Ended(process.returncode, out, err)


def wait_for_event(process: Process, kind: str, count: int = 1) -> None:
    """Read what a sweep with ``--json`` tells until the ``count``-th event of a kind."""
    assert process.stdout is not None
    for line in process.stdout:
        count -= json.loads(line)["event"] == kind
        if count == 0:
            return
    raise AssertionError(f"the sweep ended before: {wait(process).err}")


def seconds_until_none_is_left(home: Home) -> float:
    """How long processes outlive the one that started them; fails where they do so for long."""
    started = time.monotonic()
    while strays := home.strays():
        assert time.monotonic() - started < 10, f"still there: {strays}"
        time.sleep(0.05)
    return time.monotonic() - started


def end(process: Process, number: signal.Signals) -> tuple[Ended, float]:
    """Send a signal; what became of the process, and after how many seconds."""
    started = time.monotonic()
    process.send_signal(number)
    ended = wait(process)
    return ended, time.monotonic() - started


def _processes(mark: str) -> Iterator[tuple[int, list[str]]]:
    """Processes with ``mark`` in their environment, or in the names of their folder or of where their output goes.

    Servers of tests are forked, with the environment of the process that forks them.
    """
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes() or any(mark in os.readlink(folder / name) for name in ("cwd", "fd/1")):
                yield int(folder.name), (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
