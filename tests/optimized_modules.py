"""Optimised modules without a sweep: the text of a problem, which needs no compiler, is taken for a winner."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from kgen.optimized import optimize, searching, trial
from kgen.optimized.winner import Winner
from kgen.problems.problem import Problem
from kgen.protocol.statistics import Interval

FASTER = Interval(1.1, 1.2, 1.3)


def winner(problem: Problem, program: Any, call: Any) -> Winner:
    """The text of a problem as a winner's: its ``ModelNew`` computes with torch's own operators."""
    source = re.sub(r"\bModel\b", "ModelNew", problem.source)
    return Winner(
        candidate=hashlib.sha256(source.encode()).hexdigest(), source=source, problem=problem.source_hash,
        problem_source=problem.source, shapes=searching.shapes_of(program, call), speedup=FASTER,
        baselines=(("eager", 1.2), ("compile", 1.3)), sweep="0" * 16, median_ms=1.0, kernels=("gelu, mul",), library=("linear",),
    )  # fmt: skip


class Sweeps:
    """The sweeps that would have been run: the names of their problems."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def swept(self, searching: Any, problem: Problem, program: Any, call: Any, seconds: float) -> Winner | str:
        self.names.append(problem.name)
        return winner(problem, program, call)


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> Sweeps:
    """Each sweep ends at once with a winner. The database stays empty."""
    found = Sweeps()
    monkeypatch.setattr(searching.Searching, "_swept_problem", lambda self, *args: found.swept(self, *args))
    monkeypatch.setattr(trial, "compared", lambda *args: FASTER)
    monkeypatch.setattr(optimize, "_keep", lambda *args: None)
    return found


__all__ = ["FASTER", "Sweeps", "sweeps", "winner"]
