"""The evaluations that each strategy needs to come within 2% of the best, on recorded sweeps and without a device.

    python benchmarks/search_strategies.py [--seeds N] [--strategy NAME] [FILE ...]

``record_sweep.py`` wrote the sweeps of ``recorded/``, with a time for every point of a space. A strategy is asked for
points and told the recorded times. Each point counts as one evaluation, right or not. The best is the best of all
points.

Spaces are declared with likely values first, and most strategies begin there. Each strategy therefore runs twice: in the
declared order, and with plans and combinations in a random order for each seed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

from _record import Cell, record

from kgen.errors import InputError
from kgen.tuning.search import STRATEGIES, KernelSpace, Option, Point, distinct_kernels

RECORDED = Path(__file__).parent / "recorded"
NEAR = 1.02  # times the best; limit of a point that is near enough


@dataclass(frozen=True)
class Sweep:
    """A recorded sweep: its options, and the milliseconds of every point (``None`` for a failure)."""

    name: str
    noise: float
    options: tuple[Option, ...]
    times: dict[Point, float | None]

    @property
    def best(self) -> float:
        return min(ms for ms in self.times.values() if ms is not None)


def read(path: Path) -> Sweep:
    """Read a file that ``record_sweep.py`` wrote."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    kernels = [
        KernelSpace(kernel["name"], [dict(zip(kernel["axes"], values)) for values in kernel["combinations"]])
        for kernel in kept["kernels"]
    ]
    options = tuple(
        Option(option["name"], tuple(kernels[n] for n in option["kernels"]), kept["common"]) for option in kept["options"]
    )
    times = {
        Point(number, choice): ms
        for number, (option, of) in enumerate(zip(options, kept["options"]))
        for choice, ms in zip(option.choices(), of["ms"], strict=True)
    }
    return Sweep(path.stem, kept["noise"], options, times)


def shuffled(sweep: Sweep, seed: int) -> Sweep:
    """The same sweep with options and combinations in a random order."""
    draw = random.Random(seed)
    kernels: dict[KernelSpace, KernelSpace] = {}
    for kernel in distinct_kernels(sweep.options):
        kernels[kernel] = KernelSpace(kernel.name, draw.sample(list(kernel), len(kernel)))
    places = draw.sample(range(len(sweep.options)), len(sweep.options))
    options = [replace(sweep.options[n], kernels=tuple(kernels[k] for k in sweep.options[n].kernels)) for n in places]

    def moved(point: Point) -> Point:
        of = sweep.options[point.option].kernels
        return Point(places.index(point.option), tuple(kernels[k].index(k[i]) for k, i in zip(of, point.choice)))

    return replace(sweep, options=tuple(options), times={moved(point): ms for point, ms in sweep.times.items()})


def needed(sweep: Sweep, strategy: str, seed: int) -> int | None:
    """The evaluations until one is within :data:`NEAR` of the best; ``None`` where the strategy ends before."""
    search, enough = STRATEGIES[strategy](sweep.options, seed), NEAR * sweep.best
    for count in range(1, len(sweep.times) + 1):
        point = search.ask()
        if point is None:
            return None
        ms = sweep.times[point]
        if ms is not None and ms <= enough:
            return count
        search.tell(point, ms)
    raise AssertionError(f"{strategy} asked for more points than there are")


def compared(sweep: Sweep, strategy: str, order: str, seeds: int) -> dict[str, Cell]:
    """A row of the table: median and quartiles over the seeds, and the strategy's own milliseconds per point."""
    sweeps = [shuffled(sweep, seed) if order == "drawn" else sweep for seed in range(seeds)]
    started = time.process_time()
    counts = [needed(of, strategy, seed) for seed, of in enumerate(sweeps)]
    spent = time.process_time() - started
    found = sorted(len(sweep.times) if count is None else count for count in counts)
    return {
        "sweep": sweep.name,
        "points": len(sweep.times),
        "kernels' combinations": sum(map(len, distinct_kernels(sweep.options))),
        "within 2%": sum(ms is not None and ms <= NEAR * sweep.best for ms in sweep.times.values()),
        "order": order,
        "strategy": strategy,
        "median": statistics.median(found),
        "a quarter needs at most": found[len(found) // 4],
        "three quarters need at most": found[(3 * len(found)) // 4],
        "never": sum(count is None for count in counts),
        "ms a question": 1e3 * spent / sum(found),
    }


def installed(strategy: str) -> bool:
    try:
        STRATEGIES[strategy].require()
    except InputError as error:
        print(f"left out: {error}")
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="recorded sweeps (default: all)")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--strategy", dest="strategies", action="append", choices=list(STRATEGIES))
    asked = parser.parse_args()
    sweeps = [read(path) for path in asked.files or sorted(RECORDED.glob("*.json"))]
    strategies = [name for name in asked.strategies or STRATEGIES if installed(name)]
    tried = itertools.product(sweeps, ("declared", "drawn"), strategies)
    rows = [compared(sweep, strategy, order, asked.seeds) for sweep, order, strategy in tried]
    noise = ", ".join(f"{sweep.name} {sweep.noise:.1%}" for sweep in sweeps)
    notes = (
        f"Evaluations until one is within {NEAR - 1:.0%} of the fastest of all points: median and quartiles over "
        f"{asked.seeds} seeds. `never`: the strategy ended without one, which counts as all points. `points` is the product "
        "of the kernels' combinations, summed over the plans. `kernels' combinations` is their sum. `within 2%` counts the "
        "points that are near enough. `declared`: the order in which kgen declares the space, likely values first. `drawn`: "
        "a random order for each seed. The replay of `recorded/` needs no device, and a point always takes its recorded "
        f"time. The noise of the recorded times (median difference of two halves of the rounds) is {noise}."
    )
    record("search_strategies", "Evaluations that each search strategy needs", rows, notes)


if __name__ == "__main__":
    main()
