"""The time of whole processes of the command line: ``kgen --help``, and ``kgen history`` on a small database.

    python benchmarks/cli_startup.py [--repeats N]

Each is compared with a process of the same Python that imports only the libraries that the command needs. The
difference is kgen's own work.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from _record import ROOT, record

from kgen.candidate import Candidate, Plan
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy, Depth, Environment, Evaluation, Status, Timing
from kgen.store import Database

SWEEPS, CANDIDATES = 10, 40  # sweeps of the database, and candidates of each sweep
PLAN = Plan.of_mode([("", ["linear"]), ("inner_reduction", ["gelu"])])

#: Each command with the imports that it needs.
SUBJECTS = [
    (["--help"], "import click"),
    (["history"], "import click, rich.console, rich.table, sqlalchemy.orm"),
]


def fill(db: Path) -> None:
    """Make a small database of finished sweeps, with made-up figures."""
    problem = replace(read_problem(str(ROOT / "problems" / "linear_gelu_softmax.py")), mode="train")
    environment = Environment("cpu", "a CPU", "x86_64", "", "", "g++", "2.13", "3.11", 2, "here")
    with Database.open(str(db)) as database:
        database.add_problem(problem)
        database.add_environment(environment)
        for number in range(SWEEPS):
            arguments = {"number": number}
            sweep = database.start_sweep(
                problem=problem,
                environment=environment,
                accuracy=Accuracy.FP32,
                device="cpu",
                arguments=arguments,
                combinations=CANDIDATES,
                budget=CANDIDATES,
            )
            for block in range(CANDIDATES):
                source = f"# {number} {block}\n" * 200
                params = {"k0.block": block}
                candidate = Candidate(source, PLAN.name, params, "cpu", kernels=1, plan_data=PLAN)
                timing = Timing(candidate.id, Depth.SCREEN, "session", ((1.0,) * 20,) * 5)
                evaluation = Evaluation(candidate.id, Status.OK, "", Accuracy.FP32, timing=timing)
                database.add_evaluation(
                    sweep, candidate, evaluation, environment_id=environment.id, median_ms=1.0, speedup=1.0
                )
            database.finish_sweep(sweep, "finished", 1.0, candidate.id)


def seconds(command: list[str], environment: dict[str, str]) -> float:
    """Wall seconds of one process, from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    rows = []
    with tempfile.TemporaryDirectory() as home:
        fill(Path(home) / "kgen.db")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_HOME": home}
        environment.pop("KGEN_DB", None)
        for command, imports in SUBJECTS:
            kgen = [sys.executable, "-m", "kgen", *command]
            bare = [sys.executable, "-c", imports]
            for process in (kgen, bare):
                seconds(process, environment)  # compiles bytecode once
            pairs = [(seconds(kgen, environment), seconds(bare, environment)) for _ in range(repeats)]
            whole, libraries = (statistics.median(side) for side in zip(*pairs))
            rows.append(
                {
                    "command": "kgen " + " ".join(command),
                    "whole process, s": whole,
                    "libraries alone, s": libraries,
                    "kgen's own, s": whole - libraries,
                }
            )
    notes = (
        f"Medians of {repeats} processes each, taken in turn. Libraries alone: a process that imports only what the "
        f"command cannot do without. The database has {SWEEPS} sweeps of {CANDIDATES} candidates."
    )
    record("cli_startup", "Start of the command line", rows, notes)


if __name__ == "__main__":
    main()
