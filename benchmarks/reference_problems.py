"""Sweeps the reference problems on the GPU, and records each winner beside PyTorch, with its roofline.

    python benchmarks/reference_problems.py [--budget N] [--at-once N] [--case NAME ...]

The problems run at full size in the classes fp32 and tf32, and at sizes that fill neither the GPU nor a tile. Several
sweeps run in parallel: one builds and validates while another is timed. The device's lock orders their timings.
``max-autotune`` takes longest to prepare, so only some cases have it. The database is that of ``KGEN_HOME``;
``benchmarks/fused_tails.py`` reads it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Mapping

from _record import Cell, record

from kgen.codegen import roofline
from kgen.codegen.registry import arithmetic
from kgen.codegen.roofline import Arithmetic, Basis
from kgen.protocol import BASELINES, Accuracy
from kgen.store import Database, queries
from kgen.store.results import SweepRow, Trial

#: The baselines of most cases, without max-autotune.
QUICK = BASELINES[:2]

#: Seconds of a sweep by its baselines. The finals take a quarter of them, and no other timing runs then.
SECONDS = {QUICK: 45, BASELINES: 85}


@dataclass(frozen=True)
class ReferenceSweep:
    """The arguments of one sweep: problem, mode, sizes, accuracy class and baselines."""

    problem: str
    mode: str = "train"
    sizes: Mapping[str, int] = field(default_factory=dict)
    accuracy: Accuracy = Accuracy.FP32
    baselines: tuple[str, ...] = QUICK

    @property
    def words(self) -> list[str]:
        """The command line of the sweep without its budget."""
        words = ["kgen", "sweep", self.problem, "--mode", self.mode, "--accuracy", self.accuracy.value]
        words += ["--device", "cuda", "--baselines", ",".join(self.baselines), "--quiet"]
        words += ["--time", str(SECONDS[self.baselines])]
        return words + [word for name, value in self.sizes.items() for word in ("-D", f"{name}={value}")]


def _sizes(batch: int, inner: int, columns: int) -> dict[str, int]:
    return {"batch_size": batch, "in_features": inner, "out_features": columns}


SMALL = _sizes(1024, 8192, 8192)
TF32 = Accuracy.TF32
CASES = {
    "scale_batchnorm train": ReferenceSweep("linear_scale_batchnorm", baselines=BASELINES),
    "gelu_softmax": ReferenceSweep("linear_gelu_softmax", baselines=BASELINES),
    "logsumexp_mish": ReferenceSweep("linear_scale_residual_clamp_logsumexp_mish", baselines=BASELINES),
    "batchnorm_scale_softmax train": ReferenceSweep("linear_batchnorm_scale_softmax", baselines=BASELINES),
    "scale_batchnorm eval": ReferenceSweep("linear_scale_batchnorm", "eval"),
    "batchnorm_scale_softmax eval": ReferenceSweep("linear_batchnorm_scale_softmax", "eval"),
    "scale_batchnorm 1024 train": ReferenceSweep("linear_scale_batchnorm", "train", SMALL),
    "scale_batchnorm 1024 eval": ReferenceSweep("linear_scale_batchnorm", "eval", SMALL),
    "tf32 scale_batchnorm train": ReferenceSweep("linear_scale_batchnorm", accuracy=TF32),
    "tf32 gelu_softmax": ReferenceSweep("linear_gelu_softmax", accuracy=TF32, baselines=BASELINES),
    "tf32 logsumexp_mish": ReferenceSweep("linear_scale_residual_clamp_logsumexp_mish", accuracy=TF32),
    "tf32 batchnorm_scale_softmax train": ReferenceSweep("linear_batchnorm_scale_softmax", accuracy=TF32),
    "16 rows": ReferenceSweep("linear_gelu_softmax", sizes=_sizes(16, 8192, 8192)),
    "64 rows": ReferenceSweep("linear_gelu_softmax", sizes=_sizes(64, 8192, 8192)),
    "256 rows": ReferenceSweep("linear_gelu_softmax", sizes=_sizes(256, 8192, 8192)),
    "ragged": ReferenceSweep("linear_gelu_softmax", sizes=_sizes(1000, 1111, 999)),
}


def sweep(name: str, budget: int) -> None:
    """Run ``kgen sweep`` as a user does, and print its output at the end."""
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
    """The winner of one sweep with its baselines. ``float32`` has the problem's baselines in the class fp32."""
    best, basis = row.best, Basis.read(row.arguments.get("roofline"))
    own = arithmetic("cuda", best.plan_data, best.params, row.accuracy)
    reached = roofline.of(basis, best.median_ms, own)
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
        "of contractions": _percent(reached.of_contractions),
        "counted as": str(reached.arithmetic),
        "GB/s": reached.gbytes_per_second,
        "of a copy": _percent(reached.of_copy),
        "eager of contractions": _percent(theirs.of_contractions) if theirs else "",
        "plan": best.plan,
        "params": ", ".join(f"{name}={value}" for name, value in best.params.items()),
        "seconds": row.seconds,
    }


def _prepare_ms(database: Database, best: Trial) -> float | None:
    """The milliseconds of preparing the winner's weights once; ``None`` where they were not measured."""
    detail = queries.candidate(database, best.candidate)
    times = [j.evaluation.timing.prepare_ms for j in detail.judgements if j.evaluation.timing]
    return next((ms for ms in times if ms is not None), None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def record_table() -> None:
    """Record the table of the database."""
    notes = (
        "Each row is one `kgen sweep`: right and tried candidates, and the medians of the baselines and of the winner, "
        "timed interleaved in one session. The speedup is over the fastest baseline, with its 95% bootstrap interval. In "
        "the class tf32 all baselines have TF32 on; another column has the ratio to eager float32. The error is the root "
        "mean square error against float64 over PyTorch's own on the same inputs, the largest of output and buffers. "
        "TFLOP/s are those of the matmul as it is written. Its share of the measured rate counts three matmuls in float16 "
        "as three. Weights are prepared once for each change of them."
    )
    record("reference_problems", "The reference problems beside PyTorch", table(), notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=12, help="candidates of each sweep")
    parser.add_argument("--at-once", type=int, default=3, help="sweeps that run in parallel")
    parser.add_argument("--case", action="append", choices=CASES, help="one of the cases (default: all)")
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.at_once) as pool:
        list(pool.map(lambda name: sweep(name, arguments.budget), arguments.case or CASES))
    record_table()


if __name__ == "__main__":
    main()
