"""Margins of the accuracy gate: how much of its allowance honest kernels use, and how far dishonest ones exceed it.

    python benchmarks/accuracy_gate.py

Each subject replaces the matrix product of each problem by another way to compute it. Honest ones sum in another order,
in pieces, or more exactly; dishonest ones lose accuracy on the way. Figures are the largest share of an allowance that
was used in any regime: below 1 passes. Runs on the CPU, at reduced sizes: the gate compares errors, not times.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from _record import ROOT, record

from kgen.candidate import Candidate
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.protocol import Accuracy
from kgen.problem import read_problem

SIZES = {"batch_size": "256", "in_features": "1024", "out_features": "512"}

PROBLEMS = [
    ("linear_gelu_softmax", "train"),
    ("linear_batchnorm_scale_softmax", "train"),
    ("linear_batchnorm_scale_softmax", "eval"),
    ("linear_scale_batchnorm", "train"),
    ("linear_scale_batchnorm", "eval"),
    ("linear_scale_residual_clamp_logsumexp_mish", "train"),
]

PIECES = "k = x.shape[1] // {n}\n    return sum(x[:, i*k:(i+1)*k] @ w[:, i*k:(i+1)*k].t() for i in range({n})) + b"

#: Name: (honest, the body of ``product(x, w, b)``).
SUBJECTS = {
    "4 pieces of K": (True, PIECES.format(n=4)),
    "32 pieces of K": (True, PIECES.format(n=32)),
    "summed backwards": (True, "return x.flip(1) @ w.flip(1).t() + b"),
    "pairwise sums": (True, "return torch.stack([(x * w[j]).sum(1) for j in range(w.shape[0])], 1) + b"),
    "scaled before": (True, "return (x * 0.7) @ (w / 0.7).t() + b"),
    "float64 inside": (True, "return (x.double() @ w.double().t() + b.double()).float()"),
    "one long sequential sum": (
        False, "y = b.expand(x.shape[0], -1).clone()\n    for k in range(x.shape[1]):\n"
        "        y += x[:, k:k+1] * w[:, k]\n    return y"),
    "bfloat16 in two parts": (
        False, "h = x.bfloat16().float()\n    l = (x - h).bfloat16().float()\n    return h @ w.t() + l @ w.t() + b"),
    "float16 inputs": (False, "return x.half().float() @ w.t() + b"),
    "TF32": (
        False, "cut = lambda v: (v.contiguous().view(torch.int32) + 0x1000 & -8192).view(torch.float32)\n"
        "    return cut(x) @ cut(w).t() + b"),
    "a dropped term": (False, "return x[:, 1:] @ w[:, 1:].t() + b"),
    "a dropped bias of one column": (False, "b = b.clone()\n    b[3] = 0\n    return x @ w.t() + b"),
}


def source(problem: str, body: str) -> str:
    """The problem's own module with its matrix product replaced."""
    text = (ROOT / "problems" / f"{problem}.py").read_text().replace("class Model(", "class ModelNew(")
    text = text.replace("self.linear(x)", "product(x, self.linear.weight, self.linear.bias)")
    return f"{text}\n\ndef product(x, w, b):\n    {body}\n"


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, mode in PROBLEMS:
            problem = read_problem(str(ROOT / "problems" / f"{name}.py"), SIZES, mode)
            with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=Path(folder), baselines=()) as evaluator:
                builder = evaluator.builder()
                for subject, (honest, body) in SUBJECTS.items():
                    candidate = Candidate(source(name, body), subject, {}, "cpu")
                    found = evaluator.evaluate(candidate, builder.build(candidate.source))
                    judged = [row for row in found.errors if row.used is not None]
                    worst = max(judged, key=lambda row: row.used)
                    rows.append({
                        "problem": name, "mode": mode, "subject": subject, "kind": "honest" if honest else "dishonest",
                        "status": str(found.status), "allowance used": round(worst.used, 2), "regime": worst.regime})
    record("accuracy_gate", "Margins of the accuracy gate", rows,
           "The largest share of an allowance that each subject used in any regime up to the first that failed.")


if __name__ == "__main__":
    main()
