"""The time and size of pages of ``kgen report`` on 100,000 evaluations, of one problem and of many.

    python benchmarks/report_scale.py [--sweeps N] [--candidates N] [--repeats N] [--chromium PROGRAM] [--folder FOLDER]

The script first makes the databases, with the figures of ``store_scale.py``, in a temporary folder or in ``FOLDER``. It
uses existing ones as they are. Whole processes of the command line write each page: once without the stored plotting
library, then with it. With a Chromium, the page is also drawn. The script holds the lock of CPU timings, so that no
other kgen works meanwhile.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from _record import ROOT, Cell, record
from store_scale import Figures, add_sweep, made_up_problem

from kgen.evaluator.runtime.locks import DeviceLock
from kgen.protocol import Environment
from kgen.store import Database

PROBLEMS = 200  # problems on the page about many; KernelBench's levels 1 and 2 have as many
SECONDS = 5.0  # seconds; limit of the page about one problem
MEGABYTES = 6.0  # units of 1e6 bytes; limit of the page about one problem


@dataclass(frozen=True)
class Taken:
    """The wall seconds of one process, and its ``busy`` seconds on a CPU, which other load does not change."""

    seconds: float
    busy: float


def fill(db: Path, problems: int, sweeps: int, candidates: int) -> None:
    """Make a database of sweeps over ``problems`` problems in turn, with made-up figures."""
    environment = Environment("cpu", "a CPU", "x86_64-avx2", "", "", "g++ 12", "2.13", "3.11", 2, "here")
    made = [made_up_problem(number) for number in range(problems)]
    figures = Figures()
    with Database.open(str(db)) as database:
        database.add_environment(environment)
        for problem in made:
            database.add_problem(problem)
        for number in range(sweeps):
            add_sweep(database, made[number % problems], environment, number, candidates, figures)


def report(db: Path, file: Path) -> Taken:
    """Run one process that writes the page about everything in ``db``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_HOME": str(db.parent / "home")}
    command = [sys.executable, "-m", "kgen", "report", "--db", str(db), "-o", str(file)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(seconds, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def drawn(file: Path, chromium: str | None) -> float | None:
    """Seconds until the last chart is drawn; ``None`` without a browser."""
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        start = time.perf_counter()
        page.goto(file.as_uri(), wait_until="commit")
        page.wait_for_selector("html[data-drawn=yes]", timeout=300_000)
        seconds = time.perf_counter() - start
        browser.close()
    return seconds


def measure(db: Path, problems: int, evaluations: int, repeats: int, chromium: str | None) -> list[Cell]:
    """The figures of the page about ``problems`` problems, in the order of :data:`COLUMNS`."""
    shutil.rmtree(db.parent / "home", ignore_errors=True)
    file = db.with_suffix(".html")
    with DeviceLock("cpu").timing():
        first = report(db, file)
        others = [report(db, file) for _ in range(repeats)]
        shown = drawn(file, chromium)
    size = file.stat().st_size / 1e6
    seconds = statistics.median(taken.seconds for taken in others)
    busy = statistics.median(taken.busy for taken in others)
    within = "yes" if max(first.seconds, seconds) < SECONDS and size < MEGABYTES else "NO"
    limit = within if problems == 1 else None
    return [problems, evaluations, first.seconds, first.busy, seconds, busy, size, limit, shown]


COLUMNS = (
    "problems",
    "evaluations",
    "first page, s",
    "of it on a processor, s",
    "further ones, s",
    "of them on a processor, s",
    "size, MB",
    "within the limits",
    "drawn in, s",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sweeps", type=int, default=500)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--folder", type=Path, help="folder of the databases")
    asked = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory() as temporary:
        for problems in (1, PROBLEMS):
            db = (asked.folder or Path(temporary)) / f"{problems}.db"
            if not db.exists():
                fill(db, problems, asked.sweeps, asked.candidates)
            row = measure(db, problems, asked.sweeps * asked.candidates, asked.repeats, asked.chromium)
            measured.append(dict(zip(COLUMNS, row, strict=True)))
    notes = (
        f"Whole processes of `kgen report` on an SQLite database with sweeps of {asked.candidates} candidates: the "
        f"first one, which puts the plotting library together, and the median of {asked.repeats} further ones, which "
        f"find it. Limits of a page about one problem: {SECONDS:g} s and {MEGABYTES:g} MB. Drawn: the time until the "
        "last chart stands in a headless Chromium."
    )
    record("report_scale", "Pages about large databases", measured, notes)


if __name__ == "__main__":
    main()
