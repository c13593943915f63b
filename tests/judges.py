"""Builders and judges without compilers and devices, for tests of what conducts them. They import little: nodes of a cluster do so often."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from samples import environment

from kgen.candidate import Candidate
from kgen.devices import hardware
from kgen.problems.problem import Problem
from kgen.protocol import (
    Accuracy,
    BuildReport,
    Depth,
    Environment,
    Evaluation,
    Health,
    LibraryProduct,
    Phase,
    Status,
    Timing,
)


def number_of(text: str, below: int) -> int:
    """A number that is always the same for a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % below


def timing(subject: str, ms: float, depth: Depth = Depth.SCREEN) -> Timing:
    return Timing(subject, depth, "session", ((ms, ms), (ms, ms)))


@dataclass
class CheapBuilder:
    """Builds in no time: each source to a library of its own, unless ``binary`` says otherwise."""

    binary: Callable[[str], str | None] = lambda source: hashlib.sha256(source.encode()).hexdigest()
    seconds: float = 0.0

    def build(self, source: str, behind: int = 0) -> BuildReport:
        time.sleep(self.seconds)
        binary = self.binary(source)
        return BuildReport(binary is not None, False, self.seconds, False, "builds", binary, "", "")


@dataclass
class CheapJudge:
    """Judges in no time. Of eight candidates one is wrong; how fast the others are follows from their ids.

    ``evaluated`` lists those that it was given; ``seconds`` is what each takes; ``finalists`` were timed in finals,
    for ``final_seconds`` and at most ``most_seconds``.
    """

    problem: Problem
    device: str = "cuda:0"
    gpu: str = "a gpu"
    seconds: Callable[[Candidate], float] = lambda candidate: 0.0
    tell: Callable[[Candidate], None] = lambda candidate: None
    sources: CheapBuilder = field(default_factory=CheapBuilder)
    at_once: int = 1
    accuracy: Accuracy = Accuracy.FP32
    products: tuple[LibraryProduct, ...] = ()
    fails: Exception | None = None
    evaluated: list[str] = field(default_factory=list)
    finalists: list[str] = field(default_factory=list)
    final_seconds: float = 0.0
    most_seconds: float = 0.0
    closed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.problem = replace(self.problem, mode=self.problem.mode or "train")
        self.environment: Environment = environment(self.gpu)
        self.hardware = hardware.cpu()
        self.layouts: dict[str, list[tuple[list[int], list[int]]]] = {}

    def start(self) -> None:
        if self.fails is not None:
            raise self.fails

    def close(self) -> None:
        self.closed.set()

    def builder(self) -> CheapBuilder:
        return self.sources

    def health(self) -> Health:
        return Health()

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        self.evaluated.append(candidate.id)
        self.tell(candidate)
        self.closed.wait(self.seconds(candidate))
        if number_of(candidate.id, 8) == 0:
            reason, phase = "row 3 is off", Phase.VALIDATE
            return Evaluation(candidate.id, Status.WRONG_VALUES, reason, self.accuracy, phase, build=build)
        timed = timing(candidate.id, 1.0 + number_of(candidate.id, 1000) / 1000)
        return Evaluation(candidate.id, Status.OK, "", self.accuracy, build=build, timing=timed)

    def baselines(self) -> tuple[Timing, ...]:
        return (timing("eager", 1.5),)

    def finals(
        self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float, most: float = math.inf
    ) -> tuple[Timing, ...]:
        self.final_seconds, self.most_seconds = seconds, most
        self.finalists += [candidate.id for candidate, _ in candidates]
        final = [timing(c.id, 1.0 + number_of(c.id, 1000) / 1000, Depth.FINAL) for c, _ in candidates]
        return (*final, timing("eager", 1.5, Depth.FINAL))
