"""Small made-up problems, candidates and evaluations, for tests of the database and of what reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kgen.candidate import Candidate, Plan
from kgen.problems.problem import Problem
from kgen.protocol import (
    Accuracy,
    BuildReport,
    CaseErrors,
    Depth,
    Environment,
    Evaluation,
    KernelResources,
    Phase,
    Status,
    Timing,
)

if TYPE_CHECKING:
    from kgen.store import Database

SOURCE = "batch_size = 8\n\nclass Model: ...\n\ndef get_inputs(): ...\n"


def problem(name: str = "made_up", mode: str = "train", asked_mode: str | None = None, source: str = SOURCE) -> Problem:
    return Problem(name, f"{name}.py", source, (), mode, asked_mode)


def environment(device: str = "a cpu", device_type: str = "cpu") -> Environment:
    return Environment(device_type, device, "avx2", "", "", "g++ 12", "2.13", "3.11", 2, "here")


PLAN = Plan.of_mode([("", ["linear"]), ("inner_reduction", ["gelu"])])


def candidate(text: str = "x = 1", *, control: bool = False, kernels: int = 1, block: int = 128) -> Candidate:
    return Candidate(
        text, PLAN.name, {"k0.block": block}, "cpu", kernels, control, rewrites=("fold",), plan_data=PLAN
    )


def timing(subject: str, *bursts: tuple[float, ...], depth: Depth = Depth.SCREEN) -> Timing:
    return Timing(subject, depth, "session 1", bursts or ((1.0, 1.5), (1.25,)), 0.5)


def evaluation(
    of: Candidate, status: Status = Status.OK, accuracy: Accuracy = Accuracy.FP32, reason: str = "right"
) -> Evaluation:
    """An evaluation with something in each field."""
    kernels = (KernelResources("row", 32, 1024, 0),)
    return Evaluation(
        candidate=of.id,
        status=status,
        reason=reason,
        accuracy=accuracy,
        phase=Phase.TIME,
        errors=(CaseErrors("given", "0", 1e-6, float("inf"), 2e-6, 1e-5, 0.5, 0.25, True, "a note"),),
        build=BuildReport(True, False, 0.75, False, "builds/1", "abc", "", "logs/build.log", kernels),
        timing=timing(of.id) if status is Status.OK else None,
        labels=("library only",),
        seconds=(("build", 0.75), ("time", 1.5)),
        log="logs/1.log",
    )


@dataclass
class Filled:
    """A database with one sweep begun, and the means to fill it."""

    database: Database
    problem: Problem = field(default_factory=problem)
    environment: Environment = field(default_factory=environment)
    accuracy: Accuracy = Accuracy.FP32
    device: str = "cpu"
    combinations: int = 10

    def __post_init__(self) -> None:
        self.database.add_problem(self.problem)
        self.database.add_environment(self.environment)
        self.sweep = self.start()

    def start(self, **arguments: int) -> str:
        return self.database.start_sweep(
            problem=self.problem,
            environment=self.environment,
            accuracy=self.accuracy,
            device=self.device,
            arguments=arguments,
            combinations=self.combinations,
            budget=5,
        )

    def judge(
        self,
        of: Candidate,
        status: Status = Status.OK,
        speedup: float | None = None,
        reason: str = "right",
        ms: float = 1.25,
    ) -> None:
        """Add an evaluation of a candidate to the sweep."""
        judged = evaluation(of, status, self.accuracy, reason)
        self.database.add_evaluation(
            self.sweep, of, judged, environment_id=self.environment.id, median_ms=ms, speedup=speedup
        )

    def finish(self, of: Candidate, low: float, speedup: float, high: float, tie: bool = False) -> None:
        """Make a right candidate a finalist of the sweep."""
        self.judge(of, speedup=speedup)
        make_final(self.database, self.sweep, of, low, speedup, high, tie)


def make_final(
    database: Database, sweep: str, of: Candidate, low: float, speedup: float, high: float, tie: bool = False
) -> None:
    """Keep what a candidate came to in the finals of a sweep."""
    database.set_result(
        sweep,
        of.id,
        median_ms=3.0 / speedup,
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        baselines={"eager": 4.0, "compile": 3.0},
        baseline="compile",
        error_ratio=0.5,
        tie=tie,
    )


#: A process that judges one candidate after the other, and prints each when it is committed.
WRITER = """
import sys
from samples import Filled, candidate
from kgen.store import Database
url, number, shared = sys.argv[1:]
with Database.open(url) as database:
    filled = Filled(database)
    print(filled.sweep, flush=True)
    for number in range(int(number)):
        one = candidate(f"{shared or filled.sweep} {number}")
        filled.judge(one)
        print(one.id, flush=True)
"""


def start_writer(url: str, number: int, shared: bool = False) -> subprocess.Popen[str]:
    """Start a :data:`WRITER` of so many candidates: ``shared`` ones, which others judge too, or its own."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [sys.executable, "-c", WRITER, url, str(number), "shared" if shared else ""]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
