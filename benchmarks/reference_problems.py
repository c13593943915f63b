"""Sweep the reference problems at full size on the GPU, and record each winner beside PyTorch.

    python benchmarks/reference_problems.py [--budget N] [--case NAME ...]

The database is that of ``KGEN_HOME``; ``benchmarks/fused_tails.py`` goes on from it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from _record import record

from kgen.store import Store, queries

#: name -> problem, overrides, mode
CASES = {
    "gelu_softmax": ("linear_gelu_softmax", {}, "train"),
    "batchnorm_scale_softmax train": ("linear_batchnorm_scale_softmax", {}, "train"),
    "batchnorm_scale_softmax eval": ("linear_batchnorm_scale_softmax", {}, "eval"),
    "logsumexp_mish": ("linear_scale_residual_clamp_logsumexp_mish", {}, "train"),
    "scale_batchnorm train": ("linear_scale_batchnorm", {}, "train"),
    "scale_batchnorm eval": ("linear_scale_batchnorm", {}, "eval"),
    "scale_batchnorm 1024 train": (
        "linear_scale_batchnorm", {"batch_size": 1024, "in_features": 8192, "out_features": 8192}, "train"),
    "scale_batchnorm 1024 eval": (
        "linear_scale_batchnorm", {"batch_size": 1024, "in_features": 8192, "out_features": 8192}, "eval"),
}  # fmt: skip


def sweep(case: str, budget: int) -> None:
    """Run ``kgen sweep`` as a user would."""
    problem, overrides, mode = CASES[case]
    words = [sys.executable, "-m", "kgen", "sweep", problem, "--mode", mode, "--device", "cuda", "--budget", str(budget)]
    words += [word for name, value in overrides.items() for word in ("-D", f"{name}={value}")]
    print("$", " ".join(words[1:]), flush=True)
    subprocess.run(words, check=False)


def table() -> list[dict]:
    rows = []
    with Store.open(create=False) as store:
        for row in queries.sweeps(store, limit=100):
            best = row.best
            if row.state != "finished" or best is None:
                continue
            rows.append({
                "problem": row.problem.title,
                "mode": row.problem.mode,
                "right": row.right,
                "tried": row.tried,
                "eager ms": best.baselines.get("eager"),
                "compile ms": best.baselines.get("compile"),
                "max-autotune ms": best.baselines.get("compile-max-autotune"),
                "winner ms": best.median_ms,
                "speedup": best.speedup,
                "interval": f"{best.speedup_low:.4f} to {best.speedup_high:.4f}" if best.speedup_low else "",
                "error / PyTorch's": best.error_ratio,
                "plan": best.plan,
                "seconds": row.seconds,
            })  # fmt: skip
    return sorted(rows, key=lambda r: (r["problem"], r["mode"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=56)
    parser.add_argument("--case", action="append", choices=CASES, help="one of the cases (default: all)")
    arguments = parser.parse_args()
    for case in arguments.case or CASES:
        sweep(case, arguments.budget)
    notes = (
        "Each row is one `kgen sweep`: candidates right and tried, the baselines' medians and the winner's, timed "
        "interleaved in one session; the speedup is over the fastest baseline, with its 95% bootstrap interval. The "
        "error is the root mean square against float64 over PyTorch's own on the same inputs."
    )
    record("reference_problems", "The reference problems, fused behind the library's product", table(), notes)


if __name__ == "__main__":
    main()
