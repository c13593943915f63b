"""The effect of parallel builds on timings on a GPU, where a sweep allows both at once.

    python benchmarks/build_overlap.py [--device cuda] [--rounds 6] [--seconds 3]

One candidate is timed interleaved with eager PyTorch. Turns without other work alternate with turns beside one build
per core, each of a new source. Each pair of turns gives two ratios of busy over quiet: of the candidate's time, and of
its speedup over eager.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median

from _record import Cell, record
from evaluator_targets import candidates, open_evaluator

from kgen.candidate import Candidate
from kgen.devices.machine import find_own_tools
from kgen.evaluator.candidates.build import Builder, read_extension
from kgen.evaluator.evaluator import Evaluator
from kgen.protocol import BuildReport
from kgen.protocol.statistics import median_ms, ratio_interval

TRIES = 4  # timings of one turn, of which the first valid one counts


@contextmanager
def building(builder: Builder, source: str, numbers: Iterator[int]) -> Iterator[list[float]]:
    """Keeps one build per core running, each of a new source. Yields the list of their seconds."""
    extension = read_extension(source)
    assert extension is not None
    took: list[float] = []
    ended = threading.Event()

    def build_on() -> None:
        while not ended.is_set():
            report = builder.build(source.replace(extension.name, f"{extension.name}_{next(numbers)}"))
            assert report.ok and not report.cached, report.reason
            took.append(report.seconds)

    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(cores) as threads:
        running = [threads.submit(build_on) for _ in range(cores)]
        try:
            yield took
        finally:
            ended.set()
    for one in running:
        one.result()


def turn(evaluator: Evaluator, entry: tuple[Candidate, BuildReport], seconds: float) -> dict[str, float]:
    """The candidate's time, and its speedup with the interval's width, from one interleaved timing.

    ``doubted`` counts the invalid timings that were repeated before it.
    """
    for doubted in range(TRIES):
        timings = {timing.subject: timing for timing in evaluator.finals([entry], seconds=seconds)}
        if entry[0].id in timings:
            own, eager = timings[entry[0].id], timings["eager"]
            speedup = ratio_interval(eager, own)
            times = {"ms": median_ms(own), "eager ms": median_ms(eager)}
            return {**times, "speedup": speedup.mid, "width": speedup.width, "doubted": doubted}
    raise SystemExit(f"no timing of {TRIES} was believed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3.0, help="of timing in each turn")
    arguments = parser.parse_args()
    find_own_tools()
    rows: list[dict[str, Cell]] = []
    numbers = itertools.count()
    builds: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_evaluator("gelu_softmax", arguments.device, Path(folder)) as evaluator,
    ):
        builder = evaluator.builder()
        (candidate,) = candidates(evaluator, 1)
        entry = candidate, builder.build(candidate.source)
        turn(evaluator, entry, arguments.seconds)  # warm-up of clocks and driver caches
        for number in range(arguments.rounds):
            found = {}
            for kind in ("quiet", "busy") if number % 2 == 0 else ("busy", "quiet"):
                if kind == "quiet":
                    found[kind] = turn(evaluator, entry, arguments.seconds)
                    continue
                with building(builder, candidate.source, numbers) as took:
                    found[kind] = turn(evaluator, entry, arguments.seconds)
                builds += took
            row: dict[str, Cell] = {"round": number}
            row |= {f"{kind} {name}": value for kind in ("quiet", "busy") for name, value in found[kind].items()}
            row["ms, busy / quiet"] = found["busy"]["ms"] / found["quiet"]["ms"]
            row["speedup, busy / quiet"] = found["busy"]["speedup"] / found["quiet"]["speedup"]
            rows.append(row)
            print(row, flush=True)
    notes = (
        f"linear_gelu_softmax; {arguments.seconds:g} s of timing a turn. Builds that ended during timings: {len(builds)}, "
        f"{mean(builds):.1f} s each. Median of busy / quiet: "
        f"{median(row['ms, busy / quiet'] for row in rows):.4f} for the candidate's time, "
        f"{median(row['speedup, busy / quiet'] for row in rows):.4f} for its speedup over eager."
    )
    kind = arguments.device.partition(":")[0]
    record(f"build_overlap_{kind}", "What builds beside a timing do to it", rows, notes)


if __name__ == "__main__":
    main()
