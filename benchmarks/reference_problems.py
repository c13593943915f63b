"""Sweep the reference problems on the GPU, and record each winner beside PyTorch, with its roofline.

    python benchmarks/reference_problems.py [--budget N] [--at-once N] [--case NAME ...]

At full size in the class fp32, the same in the class tf32, and at sizes that do not fill the chip or any tile. Sweeps run
beside each other: what one builds and validates fills the time of another, and timings wait for each other at the
device's lock. ``max-autotune`` takes longest to prepare: the cases that are timed beside it are marked. The database is
that of ``KGEN_HOME``; ``benchmarks/fused_tails.py`` goes on from it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Mapping

from _record import Cell, record

from kgen import roofline
from kgen.evaluator.protocol import BASELINES, Accuracy
from kgen.roofline import Arithmetic, Basis
from kgen.store import Database, queries
from kgen.store.results import SweepRow, Trial

#: Baselines of the cases that are not marked.
QUICK = BASELINES[:2]

#: Seconds that a sweep may take, by its baselines: a quarter of them are the finals, which no other sweep overlaps.
SECONDS = {QUICK: 45, BASELINES: 85}


@dataclass(frozen=True)
class Case:
    """What is swept: a problem with its sizes, in a mode and a class of accuracy, beside which baselines."""

    problem: str
    mode: str = "train"
    sizes: Mapping[str, int] = field(default_factory=dict)
    accuracy: Accuracy = Accuracy.FP32
    baselines: tuple[str, ...] = QUICK

    @property
    def words(self) -> list[str]:
        """The command line of the sweep, but for its budget."""
        words = ["kgen", "sweep", self.problem, "--mode", self.mode, "--accuracy", self.accuracy.value]
        words += ["--device", "cuda", "--baselines", ",".join(self.baselines), "--quiet"]
        words += ["--time", str(SECONDS[self.baselines])]
        return words + [word for name, value in self.sizes.items() for word in ("-D", f"{name}={value}")]


def _sizes(batch: int, inner: int, columns: int) -> dict[str, int]:
    return {"batch_size": batch, "in_features": inner, "out_features": columns}


SMALL = _sizes(1024, 8192, 8192)
TF32 = Accuracy.TF32
CASES = {
    "scale_batchnorm train": Case("linear_scale_batchnorm", baselines=BASELINES),
    "gelu_softmax": Case("linear_gelu_softmax", baselines=BASELINES),
    "logsumexp_mish": Case("linear_scale_residual_clamp_logsumexp_mish", baselines=BASELINES),
    "batchnorm_scale_softmax train": Case("linear_batchnorm_scale_softmax", baselines=BASELINES),
    "scale_batchnorm eval": Case("linear_scale_batchnorm", "eval"),
    "batchnorm_scale_softmax eval": Case("linear_batchnorm_scale_softmax", "eval"),
    "scale_batchnorm 1024 train": Case("linear_scale_batchnorm", "train", SMALL),
    "scale_batchnorm 1024 eval": Case("linear_scale_batchnorm", "eval", SMALL),
    "tf32 scale_batchnorm train": Case("linear_scale_batchnorm", accuracy=TF32),
    "tf32 gelu_softmax": Case("linear_gelu_softmax", accuracy=TF32, baselines=BASELINES),
    "tf32 logsumexp_mish": Case("linear_scale_residual_clamp_logsumexp_mish", accuracy=TF32),
    "tf32 batchnorm_scale_softmax train": Case("linear_batchnorm_scale_softmax", accuracy=TF32),
    "16 rows": Case("linear_gelu_softmax", sizes=_sizes(16, 8192, 8192)),
    "64 rows": Case("linear_gelu_softmax", sizes=_sizes(64, 8192, 8192)),
    "256 rows": Case("linear_gelu_softmax", sizes=_sizes(256, 8192, 8192)),
    "ragged": Case("linear_gelu_softmax", sizes=_sizes(1000, 1111, 999)),
}


def sweep(name: str, budget: int) -> None:
    """Run ``kgen sweep`` as a user would, and print what it printed when it has ended."""
    words = [*CASES[name].words, "--budget", str(budget)]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True)
    print("\n".join(["$ " + " ".join(words), done.stdout, done.stderr]), flush=True)


def table() -> list[dict[str, Cell]]:
    """A row for the latest finished sweep of each problem and class."""
    with Database.open(create=False) as database:
        found = [row for row in queries.sweeps(database) if row.state == "finished" and row.kind == "sweep" and row.best]
        latest = {(row.accuracy, row.problem.id): row for row in reversed(found)}
        float32 = {row.problem.id: row.best.baselines for row in latest.values() if row.accuracy is Accuracy.FP32}
        rows = [_row(row, _prepare_ms(database, row.best), float32.get(row.problem.id, {})) for row in latest.values()]
    return sorted(rows, key=lambda r: (str(r["class"]), str(r["problem"]), str(r["mode"])))


def _row(row: SweepRow, prepare_ms: float | None, float32: Mapping[str, float]) -> dict[str, Cell]:
    """One sweep's winner beside the baselines. ``float32`` are baselines of the same problem in the class fp32."""
    best, basis = row.best, Basis.read(row.arguments.get("roofline"))
    reached = roofline.of(basis, best.median_ms, Arithmetic.of(best.params, row.accuracy))
    eager, plain = best.baselines.get("eager"), float32.get("eager")
    theirs = roofline.of(basis, eager, Arithmetic.of_library(row.accuracy)) if eager else None
    return {
        "class": row.accuracy.value,
        "problem": row.problem.title,
        "mode": row.problem.mode,
        "right": row.right,
        "tried": row.tried,
        "eager ms": eager,
        "compile ms": best.baselines.get("compile"),
        "max-autotune ms": best.baselines.get("compile-max-autotune"),
        "winner ms": best.median_ms,
        "prepare ms": prepare_ms,
        "speedup": best.speedup,
        "interval": f"{best.speedup_low:.4f} to {best.speedup_high:.4f}" if best.speedup_low else "screened",
        "over float32 eager": plain / best.median_ms if plain else None,
        "error / PyTorch's": best.error_ratio,
        "TFLOP/s": reached.tflops,
        "of products": _percent(reached.of_products),
        "counted as": str(reached.arithmetic),
        "GB/s": reached.gbytes_per_second,
        "of a copy": _percent(reached.of_copy),
        "eager of products": _percent(theirs.of_products) if theirs else "",
        "plan": best.plan,
        "params": ", ".join(f"{name}={value}" for name, value in best.params.items()),
        "seconds": row.seconds,
    }


def _prepare_ms(database: Database, best: Trial) -> float | None:
    """Milliseconds that the winner's weights took to prepare, once."""
    detail = queries.candidate(database, best.candidate)
    times = [j.evaluation.timing.prepare_ms for j in detail.judgements if j.evaluation.timing]
    return next((ms for ms in times if ms is not None), None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def record_table() -> None:
    """Keep the table of what the database has."""
    notes = (
        "Each row is one `kgen sweep`: candidates right and tried, the baselines' medians and the winner's, timed "
        "interleaved in one session; the speedup is over the fastest baseline, with its 95% bootstrap interval. In the "
        "class tf32 all baselines have TF32 allowed, and the ratio to eager float32 stands beside. The error is the root "
        "mean square against float64 over PyTorch's own on the same inputs, the largest over output and buffers. TFLOP/s "
        "are those of the product as it is written; its share of what the device was measured to reach counts three "
        "products of float16 as three. Preparing weights is done once for each change of them."
    )
    record("reference_problems", "The reference problems beside PyTorch", table(), notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=12, help="candidates of each sweep")
    parser.add_argument("--at-once", type=int, default=3, help="sweeps that run beside each other")
    parser.add_argument("--case", action="append", choices=CASES, help="one of the cases (default: all)")
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.at_once) as pool:
        list(pool.map(lambda name: sweep(name, arguments.budget), arguments.case or CASES))
    record_table()


if __name__ == "__main__":
    main()
