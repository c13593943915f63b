"""The resolution of the evaluator's timings, and the cost of judging one candidate.

    python benchmarks/evaluator_targets.py [--device cuda] [--runs 20] [--candidates 6] [--seconds 4] [--parallel 4]

`timing_resolution`: each run has its own evaluator. It judges the same file twice, as two candidates that differ in a
comment, and a third candidate that is 3% slower. The three and eager are timed interleaved. The script counts the runs
in which the copies are tied, and those in which the slower one is told apart. It also counts the pairs of runs whose
speedups over eager agree within 1%. Runs share one build. Some run in parallel processes, whose timings take turns
by the device's lock.

`evaluation_cost`: seconds by phase for candidates that are built already.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import median

from _record import record
from reference_problems import CASES

from kgen.candidate import Candidate, Trust
from kgen.devices.machine import find_own_tools
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import load, read_problem
from kgen.protocol import Accuracy, Status, Timing
from kgen.protocol.statistics import median_ms, ratio_interval, verdict
from kgen.tuning.design import Design, captured
from kgen.tuning.search import STRATEGIES

SLOWER = 0.03  # share of the time; added to the slower candidate
AGREEMENT = 0.01  # share; limit of the difference between two speedups
#: Smaller sizes of the same problems, for machines without a GPU.
CPU_SIZES = {"batch_size": 1024, "in_features": 256, "out_features": 8192}
GHZ = 1.98  # GHz; clock that ``torch.cuda._sleep`` counts on an H200 below its power limit

_SLOWED = '''

import time

_forward = ModelNew.forward


def _slower(self, *inputs):
    {line}
    return _forward(self, *inputs)


ModelNew.forward = _slower
'''
_WAITS = {
    "cuda": "torch.cuda._sleep({cycles})",
    "cpu": "ended = time.perf_counter_ns() + {ns}\n    while time.perf_counter_ns() < ended: continue",
}


def open_evaluator(case: str, device: str, home: Path, trust: Trust = Trust.OWN) -> Evaluator:
    swept = CASES[case]
    sizes = CPU_SIZES if device == "cpu" else swept.sizes
    problem = read_problem(swept.problem, {name: str(size) for name, size in sizes.items()}, swept.mode)
    return Evaluator(problem, device=device, accuracy=swept.accuracy, home=home, baselines=("eager",), notice=print,
                     trust=trust)


def candidates(evaluator: Evaluator, count: int) -> list[Candidate]:
    """The first ``count`` candidates of a sweep that have kernels of their own."""
    loaded = load(evaluator.problem)
    design = Design(evaluator.problem, captured(replace(loaded, problem=evaluator.problem)), evaluator.hardware)
    search = STRATEGIES["coordinate"](design.options)
    found = (design.candidate(search.ask()) for _ in itertools.count())
    return list(itertools.islice((c for c in found if not c.control), count))


def copies(candidate: Candidate, ms: float) -> list[Candidate]:
    """The same file twice, apart from a comment, and one that is slower by the share :data:`SLOWER` of ``ms``."""
    ns = SLOWER * ms * 1e6
    line = _WAITS[candidate.device_type].format(cycles=int(ns * GHZ), ns=int(ns))
    slowed = candidate.source + _SLOWED.format(line=line)
    return [
        replace(candidate, source=source, origin=Trust.FOREIGN)
        for source in (f"{candidate.source}# one\n", f"{candidate.source}# two\n", slowed)
    ]


def prepared(device: str, home: Path) -> list[Candidate]:
    """The copies that every run judges; their builds are below ``home``."""
    with open_evaluator("gelu_softmax", device, home) as evaluator:
        builder = evaluator.builder()
        (candidate,) = candidates(evaluator, 1)
        judged = evaluator.evaluate(candidate, builder.build(candidate.source))
        assert judged.status is Status.OK and judged.timing is not None, judged.reason
        return copies(candidate, median_ms(judged.timing))


def one_run(device: str, home: Path, seconds: float, files: Sequence[Candidate]) -> dict[str, float | str | None]:
    """One evaluator that judges the same file twice and a slower one, and then times them interleaved."""
    lost, started = [], time.monotonic()
    with open_evaluator("gelu_softmax", device, home) as evaluator:
        builder = evaluator.builder()
        entries = [(candidate, builder.build(candidate.source)) for candidate in files]
        judged = [evaluator.evaluate(*entry) for entry in entries]
        lost += [evaluation.reason for evaluation in judged if evaluation.status is not Status.OK]
        found = evaluator.finals(entries, seconds=seconds, failed=lambda _, failure: lost.append(failure.reason))
    said = {"lost": "; ".join(lost), "seconds": time.monotonic() - started}
    return said | (dict.fromkeys(_MEASURED) if lost else _measured(files, found))


_MEASURED = ("copies", "copies told apart", "3% slower", "slower told apart", "ratio", "speedup", "ms")


def _measured(files: Sequence[Candidate], found: Sequence[Timing]) -> dict[str, float | str]:
    """The figures of a run, by the names of :data:`_MEASURED`."""
    timings = {timing.subject: timing for timing in found}
    one, two, slower = (timings[candidate.id] for candidate in files)
    return {
        "copies": _shown(one, two), "copies told apart": verdict(ratio_interval(one, two)) in ("faster", "slower"),
        "3% slower": _shown(slower, one), "slower told apart": verdict(ratio_interval(one, slower)) == "slower"
        or verdict(ratio_interval(slower, one)) == "faster", "ratio": ratio_interval(slower, one).mid,
        "speedup": ratio_interval(timings["eager"], one).mid, "ms": median_ms(one),
    }


def _shown(a: Timing, b: Timing) -> str:
    interval = ratio_interval(a, b)
    return f"{interval.mid:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def resolution(device: str, runs: int, seconds: float, parallel: int, home: Path) -> None:
    files = prepared(device, home)
    rows = []
    with ProcessPoolExecutor(parallel, multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(one_run, device, home, seconds, files) for _ in range(runs)]
        for number, run in enumerate(as_completed(waiting)):
            rows.append({"run": number, **run.result()})
            print(rows[-1], flush=True)
    speedups = [row["speedup"] for row in rows if row["speedup"]]
    pairs = list(zip(speedups[::2], speedups[1::2]))
    agreeing = sum(abs(a / b - 1) <= AGREEMENT for a, b in pairs)
    ratio = median(row["ratio"] or 1 for row in rows)
    tied = sum(row["copies told apart"] is False for row in rows)
    told = sum(row["slower told apart"] is True for row in rows)
    notes = (
        f"linear_gelu_softmax; {seconds:g} s of interleaved timing a run, each run an evaluator of its own, "
        f"{parallel} beside each other.\n\n"
        f"- the same file twice was called a tie in {tied} of {runs}\n"
        f"- a module made {SLOWER:.0%} slower (as measured: {ratio:.4f}) was told apart in {told} of {runs}\n"
        f"- speedups over eager agreed within {AGREEMENT:.0%} in {agreeing} of {len(pairs)} pairs of runs"
    )
    record(f"timing_resolution_{device}", "Resolution of timings", rows, notes)


def cost(device: str, count: int, cases: list[str], home: Path, trusts: Sequence[Trust]) -> None:
    rows = []
    for case, trust in itertools.product(cases, trusts):
        with open_evaluator(case, device, home, trust) as evaluator:
            builder = evaluator.builder()
            files = [replace(candidate, origin=trust) for candidate in candidates(evaluator, count)]
            with ThreadPoolExecutor() as pool:
                entries = list(zip(files, pool.map(lambda c: builder.build(c.source), files)))
            evaluator.baselines()
            found, whole = [], []
            for entry in entries:
                started = time.monotonic()
                judged = evaluator.evaluate(*entry)
                whole.append(time.monotonic() - started)
                print(case, judged.status, judged.reason, dict(judged.seconds), f"{whole[-1]:.3f} s", flush=True)
                if judged.status is Status.OK:
                    found.append({str(phase): seconds for phase, seconds in judged.seconds})
        later = found[1:] or found
        row: dict[str, str | int | float] = {"problem": case, "trust": trust, "candidates": len(later)}
        for phase in ("load", "validate", "time"):
            row[f"{phase} s"] = median(seconds[phase] for seconds in later)
        row["all s"] = median(whole[1:] or whole)
        row["first one's validation s"] = found[0]["validate"]
        rows.append(row)
    notes = (
        "Medians over right candidates, built already, without the first, which waits for the oracle's float64 runs. "
        "`all s` is the whole call by the parent's clock."
    )
    record(f"evaluation_cost_{device}", "Cost of judging one candidate at screening depth", rows, notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=4.0, help="of interleaved timing in each run")
    parser.add_argument("--parallel", type=int, default=4, help="runs beside each other")
    parser.add_argument("--candidates", type=int, default=6, help="judged for each problem to see what it costs")
    parser.add_argument("--foreign", action="store_true", help="judge the candidates of the cost as foreign ones too")
    parser.add_argument("--case", action="append", choices=CASES, help="problems for the cost (default: all of fp32)")
    arguments = parser.parse_args()
    find_own_tools()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.candidates:
            cases = arguments.case or [name for name, case in CASES.items() if case.accuracy is Accuracy.FP32]
            trusts = [Trust.OWN, Trust.FOREIGN] if arguments.foreign else [Trust.OWN]
            cost(arguments.device, arguments.candidates, cases, Path(folder), trusts)
        if arguments.runs:
            resolution(arguments.device, arguments.runs, arguments.seconds, arguments.parallel, Path(folder))


if __name__ == "__main__":
    main()
