"""The time of queries to a database of 100,000 evaluations with sources and samples, in SQLite or PostgreSQL.

    python benchmarks/store_scale.py [--sweeps N] [--candidates N] [--repeats N] [--db FILE|URL]

The script first makes the database with made-up figures, at ``--db`` or in a temporary folder. It uses an existing one
as it is. Each query runs in a process that has the database open, and as a whole process of the command line.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from _record import ROOT, Cell, record
from sqlalchemy import func, insert, select, update

from kgen.candidate import Candidate, Plan, Rejection
from kgen.problems.problem import Problem, read_problem
from kgen.protocol import (
    BASELINES,
    Accuracy,
    BuildReport,
    CaseErrors,
    Depth,
    Environment,
    Evaluation,
    KernelResources,
    Status,
    Timing,
)
from kgen.store import Database, comparison, models, queries, ranking, rows
from kgen.store.selection import Selection
from kgen.views.report import page, sections

PROBLEMS = 20
FINALISTS = 5  # candidates of each sweep
REJECTED = 50  # rejected combinations of each sweep
DISTRIBUTIONS = 20  # error rows of each evaluation
SOURCE_LINES = 150
BURSTS, SAMPLES = 8, 20  # sample blocks of a screening, and samples of each; finals have four times the blocks

PLANS = (
    Plan.of_mode([("", ["linear"]), ("inner_reduction", ["gelu", "softmax"])]),
    Plan.of_mode([("", ["linear"]), ("pointwise", ["gelu"]), ("inner_reduction", ["softmax"])]),
)
FAILURES = (Status.WRONG_VALUES, Status.BUILD_ERROR, Status.CRASHED)

#: Limits in seconds: of a query, of a whole process, and of the report of one problem.
QUESTION, PROCESS, REPORT = 0.2, 1.0, 5.0


@dataclass(frozen=True)
class Size:
    """The size of the database to make."""

    sweeps: int
    candidates: int  #: candidates of each sweep


# Making the database -------------------------------------------------------------------------------------------


class Figures:
    """Made-up rows of evaluations and timings. They are made once and used again with other ids."""

    def __init__(self) -> None:
        self.generator = random.Random(0)
        self._evaluations = {status: rows.from_evaluation(made_up_evaluation(status)) for status in (Status.OK, *FAILURES)}
        depths = {Depth.SCREEN: BURSTS, Depth.FINAL: 4 * BURSTS}
        self._timings = {depth: [self._made(depth, count) for _ in range(50)] for depth, count in depths.items()}

    def evaluation(self, candidate: str, status: Status) -> dict[str, Any]:
        """A row of ``evaluation`` without its problem and environment."""
        return {**self._evaluations[status], "id": rows.new_id(), "candidate_id": candidate, "binary_hash": candidate}

    def timing(self, subject: str, depth: Depth) -> dict[str, Any]:
        """A row of ``timing`` without its sweep and environment."""
        return {**self.generator.choice(self._timings[depth]), "id": rows.new_id(), "subject": subject}

    def _made(self, depth: Depth, count: int) -> dict[str, Any]:
        ms = self.generator.uniform(1.0, 3.0)
        bursts = tuple(tuple(self.generator.gauss(ms, 0.01 * ms) for _ in range(SAMPLES)) for _ in range(count))
        return rows.from_timing(Timing("", depth, "session", bursts, None, (("cache", "cold"),)))


def fill(database: Database, size: Size) -> None:
    """Make sweeps over :data:`PROBLEMS` problems in turn, with made-up figures."""
    environment = Environment("cpu", "a CPU", "x86_64-avx2", "", "", "g++ 12", "2.13", "3.11", 2, "here")
    database.add_environment(environment)
    figures = Figures()
    problems = [made_up_problem(number) for number in range(PROBLEMS)]
    for problem in problems:
        database.add_problem(problem)
    for number in range(size.sweeps):
        add_sweep(database, problems[number % PROBLEMS], environment, number, size.candidates, figures)
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{size.sweeps} sweeps", end="", file=sys.stderr)


def made_up_problem(number: int) -> Problem:
    known = read_problem(str(ROOT / "problems" / "linear_gelu_softmax.py"))
    return replace(known, name=f"problem_{number}", source=f"{known.source}# {number}\n", mode="train")


def add_sweep(
    database: Database, problem: Problem, environment: Environment, number: int, candidates: int, figures: Figures
) -> None:
    """Write one finished sweep in a few statements instead of row by row."""
    sweep = database.start_sweep(
        problem=problem,
        environment=environment,
        accuracy=Accuracy.FP32,
        device="cpu",
        arguments={"number": number},
        combinations=10 * candidates,
        budget=candidates,
    )
    made = [made_up_candidate(number, place) for place in range(candidates)]
    fails = (figures.generator.random() < 0.3 for _ in made)
    statuses = [figures.generator.choice(FAILURES) if failed else Status.OK for failed in fails]
    belongs = {"problem_id": problem.id, "environment_id": environment.id}
    evaluations = [{**figures.evaluation(one.id, status), **belongs} for one, status in zip(made, statuses)]
    of_sweep = {"sweep_id": sweep, "environment_id": environment.id, "accuracy": Accuracy.FP32.value}
    timings = [
        {**figures.timing(row["candidate_id"], Depth.SCREEN), **of_sweep, "evaluation_id": row["id"]}
        for row in evaluations
        if row["status"] == Status.OK.value
    ]
    milliseconds = {timing["subject"]: timing["median_ms"] for timing in timings}
    for row in evaluations:
        row["median_ms"] = milliseconds.get(row["candidate_id"])
    finalists = sorted(milliseconds, key=milliseconds.__getitem__)[:FINALISTS]
    finals = [{**figures.timing(name, Depth.FINAL), **of_sweep} for name in (*finalists, *BASELINES)]
    trials = [made_up_trial(sweep, number, row, finalists) for number, row in enumerate(evaluations, 1)]
    ended = {
        "started_at": rows.now() - timedelta(days=365) + timedelta(hours=number),
        "best": finalists[0],
        "state": "finished",
        "seconds": 60.0,
    }
    with database.connections.write() as connection:
        connection.execute(insert(models.Candidate), [rows.from_candidate(one) for one in made])
        connection.execute(insert(models.Source), [{"candidate_id": one.id, "text": one.source} for one in made])
        connection.execute(insert(models.Evaluation), evaluations)
        connection.execute(insert(models.Timing), timings)
        connection.execute(insert(models.Timing), [{**row, "evaluation_id": None} for row in finals])
        connection.execute(insert(models.Trial), trials)
        connection.execute(update(models.Sweep).where(models.Sweep.id == sweep).values(ended))
    database.add_rejections(sweep, [Rejection(PLANS[0].name, {"k0.block": n}, f"limit {n % 5}", "why", PLANS[0]) for n in range(REJECTED)])


def made_up_candidate(sweep: int, place: int) -> Candidate:
    params = {
        "k0.block": (128, 256, 512, 1024)[place % 4],
        "k0.reduction": ("warp_shuffle", "shared_tree")[place // 4 % 2],
        "k0.vec": (1, 2, 4)[place // 8 % 3],
        "k0.rows": place // 24,
    }
    source = f"# candidate {place} of sweep {sweep}\n" + "    value = value * scale + shift  # as in real ones\n" * SOURCE_LINES
    plan = PLANS[place % 2]
    return Candidate(source, plan.name, params, "cpu", kernels=1 + place % 2, plan_data=plan)


def made_up_evaluation(status: Status) -> Evaluation:
    error = CaseErrors("as given", "output", 1.2e-8, 3.4e-7, 1.1e-8, 3.3e-7, 1.09, 0.54, True)
    errors = tuple(replace(error, case=f"case {number}") for number in range(DISTRIBUTIONS))
    build = BuildReport(True, False, 0.75, False, "builds/1", "", "", "", (KernelResources("row", 32, 1024, 0),))
    reason = "row 3 is off" if status is not Status.OK else ""
    return Evaluation("", status, reason, Accuracy.FP32, None, errors, build, log="runs/logs/1.log")


def made_up_trial(sweep: str, number: int, evaluation: dict[str, Any], finalists: list[str]) -> dict[str, Any]:
    ms, final = evaluation["median_ms"], evaluation["candidate_id"] in finalists
    speedup = 2.5 / ms if ms else None
    return {
        "sweep_id": sweep,
        "candidate_id": evaluation["candidate_id"],
        "evaluation_id": evaluation["id"],
        "number": number,
        "status": evaluation["status"],
        "taken_over": False,
        "final": final,
        "tie": False,
        "median_ms": ms,
        "speedup": speedup,
        "speedup_low": 0.98 * speedup if final and speedup else None,
        "speedup_high": 1.02 * speedup if final and speedup else None,
        "error_ratio": 1.0,
        "baseline": "compile" if final else None,
        "baselines": dict.fromkeys(BASELINES, 2.5) if final else None,
        "created_at": evaluation["created_at"],
    }


# Asking --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A query with its command line. ``limit`` and ``process_limit`` are seconds."""

    name: str
    ask: Callable[[Database], object]
    command: tuple[str, ...]
    limit: float = QUESTION
    process_limit: float = PROCESS


def questions(database: Database, folder: Path) -> list[Question]:
    """Queries about the latest sweep, its best candidate, and its problem."""
    [latest] = queries.sweeps(database, limit=1)
    assert latest.best
    name, sweep, best = latest.problem.name, latest.id, latest.best.candidate
    same = tuple(row.id for row in queries.sweeps(database, name=name, limit=2))
    crashed = Selection(status="crashed")

    def report(opened: Database) -> str:
        return page.render(sections.collect(opened, problem_ids=[latest.problem.id]), opened.name)

    return [
        Question("history", lambda s: queries.sweeps(s, limit=20), ("history",)),
        Question("history of a problem", lambda s: queries.sweeps(s, name=name, limit=20), ("history", name)),
        Question(
            "history by status",
            lambda s: queries.sweeps(s, among=crashed, limit=20),
            ("history", "--status", "crashed"),
        ),
        Question("best of all problems", lambda s: ranking.best(s), ("best",)),
        Question("best of a problem", lambda s: ranking.best(s, problem_ids=[latest.problem.id]), ("best", name)),
        Question("show sweep", lambda s: queries.sweep(s, sweep, leaders=20), ("show", sweep)),
        Question("show candidate", lambda s: queries.candidate(s, best), ("show", best)),
        Question("compare sweeps", lambda s: comparison.sweeps(s, *same, limit=20), ("compare", *same), 1.0, 2.0),
        Question("report of a problem", report, ("report", name, "-o", str(folder / "report.html")), REPORT, REPORT),
    ]


def seconds(run: Callable[[], object], repeats: int) -> float:
    """The median of several runs, after one that is not counted."""
    run()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def processor_seconds(command: list[str], environment: dict[str, str], folder: Path) -> float:
    """The CPU seconds of a process of the command line, which other load does not change."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def libraries_alone(repeats: int) -> float:
    """The seconds of a process that only imports the libraries that the command line needs."""
    command = [sys.executable, "-c", "import click, rich.console, rich.table, sqlalchemy.orm"]
    return seconds(lambda: subprocess.run(command, check=True), repeats)


def measure(database: Database, url: str, folder: Path, repeats: int) -> list[dict[str, Cell]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_HOME": str(folder), "KGEN_DB": url}
    measured: list[dict[str, Cell]] = []
    for question in questions(database, folder):
        command = [sys.executable, "-m", "kgen", *question.command]
        busy: list[float] = []
        asked = seconds(lambda: question.ask(database), repeats)
        process = seconds(lambda: busy.append(processor_seconds(command, environment, folder)), repeats)
        measured.append(
            {
                "question": question.name,
                "database, s": asked,
                "limit, s": question.limit,
                "whole process, s": process,
                "of it on a processor, s": statistics.median(busy[1:]),
                "its limit, s": question.process_limit,
                "within": "yes" if asked < question.limit and process < question.process_limit else "NO",
            }
        )
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sweeps", type=int, default=500)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--db", help="a file, or a URL; by default a temporary file")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        url = asked.db or str(Path(temporary) / "kgen.db")
        with Database.open(url) as database:
            if not queries.sweeps(database, limit=1):
                fill(database, Size(asked.sweeps, asked.candidates))
            with database.connections.read() as connection:
                count = connection.execute(select(func.count()).select_from(models.Evaluation)).scalar_one()
            measured = measure(database, url, Path(temporary), asked.repeats)
            alone = libraries_alone(asked.repeats)
            kind = "SQLite" if database.connections.is_sqlite else "PostgreSQL"
        page_bytes = (Path(temporary) / "report.html").stat().st_size
        stored = f", {os.path.getsize(url) / 1e9:.1f} GB" if kind == "SQLite" else ""
    notes = (
        f"{count} evaluations in {kind}{stored}, with sources, error figures of {DISTRIBUTIONS} input distributions and raw samples, in "
        f"sweeps of {asked.candidates} over {PROBLEMS} problems. Medians of {asked.repeats} after a first run: of queries to an "
        f"open database, and of whole processes of the command line. A process that only imports the libraries took "
        f"{alone:.2f} s, at a load of {os.getloadavg()[0]:.1f} processes. The report has {page_bytes / 1e6:.1f} MB "
        "(limit 6)."
    )
    record(f"store_scale_{kind.lower()}", f"Questions to a large database ({kind})", measured, notes)


if __name__ == "__main__":
    main()
