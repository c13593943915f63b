"""The memory of a sweep's conducting process over a thousand candidates.

    python benchmarks/sweep_memory.py [--candidates 1000] [--arch sm_90]

Candidates are rendered, stored and reported as in any sweep. Stand-ins for builder and evaluator answer at once, with as
many figures and samples as real ones. Other processes hold the tensors of a real sweep.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Callable, Sequence

from _record import Cell, record

from kgen.candidate import Candidate
from kgen.devices import hardware
from kgen.evaluator.pool import DevicePool
from kgen.problems.problem import Problem, read_problem
from kgen.protocol import (
    Accuracy,
    BuildReport,
    CaseErrors,
    Depth,
    Environment,
    Evaluation,
    Health,
    KernelResources,
    Status,
    Timing,
)
from kgen.tuning import events, sweep

NAME = "linear_gelu_softmax"
DISTRIBUTIONS, BURSTS, CALLS = 18, 5, 20  # error rows, sample blocks and calls of one evaluation
GOAL_MB = 1000  # units of 1e6 bytes; limit of the resident memory


class Builder:
    """A builder that reports another library for each source and compiles nothing."""

    def build(self, source: str) -> BuildReport:
        binary = hashlib.sha256(source.encode()).hexdigest()
        kernels = (KernelResources("row", 32, 1024, 0),)
        return BuildReport(True, False, 1.0, False, "builds", binary, "", "logs/build.log", kernels)


class InstantEvaluator:
    """An evaluator to which every candidate is right, with a time that follows from its id."""

    device = "cuda:0"
    accuracy = Accuracy.FP32
    at_once = 3

    def __init__(self, problem: Problem, arch: str) -> None:
        self.problem = replace(problem, mode="train")
        self.hardware = hardware.for_arch(arch)
        self.environment = Environment("cuda", "none", arch, "", "", "", "", "", 1, "")

    def start(self) -> None:
        """Does nothing: no process has to start."""

    def close(self) -> None:
        """Does nothing: no process has to end."""

    def builder(self) -> Builder:
        return Builder()

    def health(self) -> Health:
        return Health()

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        errors = tuple(
            CaseErrors(f"case {number}", "output", 1e-6, 1e-5, 1e-6, 1e-5, 1.0, 0.5, True)
            for number in range(DISTRIBUTIONS)
        )
        timing = self._timing(candidate.id, 1 + int(candidate.id[:4], 16) / 65536, Depth.SCREEN)
        return Evaluation(candidate.id, Status.OK, "", self.accuracy, errors=errors, build=build, timing=timing)

    def baselines(self) -> tuple[Timing, ...]:
        return (self._timing("eager", 2.0, Depth.SCREEN),)

    def finals(self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float) -> tuple[Timing, ...]:
        subjects = ("eager", *(candidate.id for candidate, _ in candidates))
        return tuple(self._timing(subject, 1.0, Depth.FINAL) for subject in subjects)

    def _timing(self, subject: str, ms: float, depth: Depth) -> Timing:
        bursts = tuple(tuple(ms + 1e-4 * call + 1e-3 * burst for call in range(CALLS)) for burst in range(BURSTS))
        return Timing(subject, depth, "session", bursts, 1.0, (("cache", "cold"),))


def resident_mb() -> float:
    """The resident memory of this process, in units of 1e6 bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def watch(rows: list[dict[str, Cell]], every: int) -> Callable[[events.Event], None]:
    """A listener that records the memory at the start and after every ``every`` candidates."""

    def take(event: events.Event) -> None:
        if isinstance(event, events.Started):
            rows.append({"candidates": 0, "resident, MB": resident_mb()})
        elif isinstance(event, events.Evaluated) and event.number % every == 0:
            rows.append({"candidates": event.number, "resident, MB": resident_mb()})

    return take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--arch", default="sm_90")
    arguments = parser.parse_args()
    problem = read_problem(NAME)
    request = sweep.SweepRequest(problem, budget=arguments.candidates, jobs=4, baselines=("eager",))
    rows: list[dict[str, Cell]] = []
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"KGEN_HOME": home, "KGEN_DB": f"{home}/kgen.db"}
        devices = DevicePool([InstantEvaluator(problem, arguments.arch)])
        sweep.run(request, watch(rows, max(1, arguments.candidates // 10)), lambda *_: devices)
    largest = max(float(row["resident, MB"] or 0.0) for row in rows)
    notes = (
        f"{NAME} at full size for {arguments.arch}: **{largest:.0f} MB** at most (the goal is under {GOAL_MB}). Most "
        "of it is torch, which the process needs to capture the problem."
    )
    record("sweep_memory", "Memory of a sweep's process", rows, notes)


if __name__ == "__main__":
    main()
