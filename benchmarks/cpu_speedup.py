"""The speedup of the winner of a whole sweep on the CPU: linear, GELU and softmax at 1024, 256 -> 8192.

    python benchmarks/cpu_speedup.py [--runs N] [--budget N]

Each run is one `kgen sweep` as a user starts it, with an empty folder and with every baseline.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from _record import ROOT, Cell, record

from kgen.store import Database, queries

PROBLEM = ("linear_gelu_softmax", "-D", "batch_size=1024", "-D", "in_features=256", "-D", "out_features=8192")
GOAL = 1.35  # speedup; target of the median


def run(number: int, budget: int) -> dict[str, Cell]:
    """Run one sweep into an empty folder. Returns its winner with the baselines of the same finals."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KGEN_HOME": home}
        environment.pop("KGEN_DB", None)
        words = ["sweep", *PROBLEM, "--device", "cpu", "--accuracy", "fp32", "--budget", str(budget), "--quiet"]
        subprocess.run([sys.executable, "-m", "kgen", *words], cwd=ROOT, env=environment, check=True)
        with Database.open(f"{home}/kgen.db", create=False) as database:
            [sweep] = queries.sweeps(database)
    best = sweep.best
    assert best is not None and best.final
    return {
        "run": number,
        "right": sweep.right,
        "tried": sweep.tried,
        **{f"{name}, ms": ms for name, ms in best.baselines.items()},
        "winner, ms": best.median_ms,
        "speedup": best.speedup,
        "low": best.speedup_low,
        "high": best.speedup_high,
        "error / PyTorch's": best.error_ratio,
        "plan": best.plan,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--budget", type=int, default=24)
    arguments = parser.parse_args()
    rows = [run(number + 1, arguments.budget) for number in range(arguments.runs)]
    median = statistics.median(float(row["speedup"] or 0.0) for row in rows)
    notes = (
        f"**{median:.2f}x**, the median of {len(rows)} sweeps, each from nothing (the goal is {GOAL}x). A speedup is the "
        "winner's over the fastest baseline, timed interleaved in the finals of its sweep, with its 95% bootstrap "
        "interval, low to high. Times differ between runs where the machine is not quiet; ratios are taken round by "
        "round. The error is the root mean square against float64 over PyTorch's own on the same inputs."
    )
    record("cpu_speedup", "The winner of a sweep on the CPU: linear, GELU, softmax, 1024, 256 -> 8192", rows, notes)


if __name__ == "__main__":
    main()
