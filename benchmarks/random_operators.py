"""The power of the moments test for random operators whose numbers are not PyTorch's.

    python benchmarks/random_operators.py [--trials N]

Each trial draws new inputs and weights. It runs a reference and a candidate with dropout. It judges the candidate's
16 runs together, and its first run alone, as the evaluator does. Figures are the trials that pass, and the used share
of the bound. Everything runs in one process, and nothing is timed.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from _record import Cell, record

from kgen.evaluator.correctness import moments
from kgen.protocol import Accuracy

ROWS, INNER, COLUMNS = 64, 96, 64
RUNS = 16  #: of each candidate

Drop = Callable[[torch.Tensor, float, torch.Generator], torch.Tensor]


@dataclass(frozen=True)
class Problem:
    """The tensor that dropout is applied to, and the weight of a linear layer behind it."""

    dropped: torch.Tensor  # float64
    weight: torch.Tensor | None

    @classmethod
    def draw(cls, name: str, seed: int) -> Problem:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(ROWS, INNER, generator=generator)
        weight = torch.randn(COLUMNS, INNER, generator=generator) / INNER**0.5
        return cls((x.softmax(1) if name == "softmax" else x).double(), weight if name == "linear" else None)

    def run(self, drop: Drop, p: float, generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        y = drop(self.dropped.to(dtype), p, generator)
        return y if self.weight is None else F.linear(y, self.weight.to(dtype))


def mask(shape: tuple[int, ...], p: float, generator: torch.Generator) -> torch.Tensor:
    """A bool tensor that is false with probability ``p``."""
    return torch.rand(shape, generator=generator) >= p


def masked(x: torch.Tensor, p: float, generator: torch.Generator, *, share: tuple[int, int] = (1, 1)) -> torch.Tensor:
    """Dropout in which blocks of ``share`` rows and columns have one random number."""
    rows, columns = (-(-size // by) for size, by in zip(x.shape, share))
    kept = mask((rows, columns), p, generator).repeat_interleave(share[0], 0).repeat_interleave(share[1], 1)
    return x * kept[: x.shape[0], : x.shape[1]] / (1 - p)


def in_turns(number: int) -> Drop:
    """Dropout that uses ``number`` masks in turn."""
    kept: list[torch.Tensor] = []
    calls = itertools.count()

    def drop(x: torch.Tensor, p: float, generator: torch.Generator) -> torch.Tensor:
        call = next(calls)
        if call < number:
            kept.append(mask(x.shape, p, generator))
        return x * kept[call % number] / (1 - p)

    return drop


#: The factory of each candidate's dropout, by name. All but the first are wrong.
CANDIDATES: dict[str, Callable[[], Drop]] = {
    "right": lambda: masked,
    "half the probability": lambda: lambda x, p, g: masked(x, p / 2, g),
    "0.1 more": lambda: lambda x, p, g: masked(x, p + 0.1, g),
    "a tenth more": lambda: lambda x, p, g: masked(x, 1.1 * p, g),
    "no scale": lambda: lambda x, p, g: masked(x, p, g) * (1 - p),
    "one mask for all rows": lambda: partial(masked, share=(ROWS, 1)),
    "one mask for all columns": lambda: partial(masked, share=(1, INNER)),
    "one number for 4 neighbours": lambda: partial(masked, share=(1, 4)),
    "one mask for all calls": lambda: in_turns(1),
    "two masks in turns": lambda: in_turns(2),
    "no dropout": lambda: lambda x, p, g: x,
    "every other row left alone": lambda: lambda x, p, g: torch.where(
        torch.arange(len(x))[:, None] % 2 == 0, x, masked(x, p, g)),
    "another row's values": lambda: lambda x, p, g: masked(x.roll(1, 0), p, g),
    "1% too large": lambda: lambda x, p, g: masked(1.01 * x, p, g),
    "bfloat16": lambda: lambda x, p, g: masked(x.bfloat16().float(), p, g),
}


@dataclass(frozen=True)
class Reference:
    """A problem with the runs of the reference."""

    problem: Problem
    many: moments.Spread
    few: moments.Spread


@lru_cache(maxsize=None)
def reference(name: str, p: float, seed: int) -> Reference:
    """The problem drawn with ``seed``, with its runs; computed once for all candidates."""
    problem = Problem.draw(name, seed)

    def run(dtype: torch.dtype, number: int) -> torch.Tensor:
        return problem.run(masked, p, torch.Generator().manual_seed(1000 * seed + number), dtype)

    def spread(eager_runs: int) -> moments.Spread:
        exact = [moments.sampled(run(torch.float64, 1 + number)) for number in range(moments.EXACT)]
        eager = [moments.sampled(run(torch.float32, 100 + number)) for number in range(eager_runs)]
        found = moments.Spread.of(exact, eager)
        assert found is not None
        return found

    return Reference(problem, spread(moments.MANY), spread(moments.FEW))


def trial(name: str, p: float, drop: Drop, seed: int) -> tuple[bool, float, bool]:
    """Whether 16 runs pass, their used share of the bound, and whether the first run passes alone."""
    known = reference(name, p, seed)
    generator = torch.Generator().manual_seed(1000 * seed + 500)
    runs = [known.problem.run(drop, p, generator, torch.float32) for _ in range(RUNS)]
    figures = known.many.judge(runs, Accuracy.FP32)
    return figures["ok"], figures["used"], known.few.judge(runs[:1], Accuracy.FP32)["ok"]


def rows(trials: int) -> list[dict[str, Cell]]:
    """A row for each problem, probability and candidate."""
    found = []
    for name, p, (candidate, make) in itertools.product(
            ("dropout", "softmax", "linear"), (0.1, 0.2, 0.5), CANDIDATES.items()):
        number = 10 * trials if candidate == "right" else trials
        results = [trial(name, p, make(), seed) for seed in range(number)]
        found.append({
            "dropped": {"dropout": "x", "softmax": "softmax(x)", "linear": "x, before a product"}[name], "p": p,
            "candidate": candidate, "trials": number, "16 runs pass": sum(ok for ok, _, _ in results),
            "least used": min(used for _, used, _ in results), "most used": max(used for _, used, _ in results),
            "one run passes": sum(alone for _, _, alone in results)})
        print(*found[-1].values(), sep="\t", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40, help="of each wrong candidate; ten times as many of right")
    trials = parser.parse_args().trials
    torch.set_num_threads(1)  # the tensors are too small for several threads
    record("random_operators", "Random operators judged by moments", rows(trials),
           f"Dropout is applied to {ROWS} x {INNER} elements. A share of the bound above 1 fails. `inf` marks a rule "
           "without a share: two calls draw the same numbers.")


if __name__ == "__main__":
    main()
