"""Margins of the accuracy tolerance: the share of the allowed error that right and wrong kernels use.

    python benchmarks/accuracy_gate.py

Each subject replaces the matmul of a problem, or a sum of all elements, by another computation. Honest subjects sum in
another order, in pieces, or more exactly. Dishonest ones lose accuracy. A figure is the largest share of the allowed
error over all input distributions; below 1 passes. The script runs on the CPU at reduced sizes, because it compares
errors and not times.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from _record import ROOT, record

from kgen.candidate import Candidate
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import Problem, read_problem
from kgen.protocol import Accuracy

SIZES = {"batch_size": "256", "in_features": "1024", "out_features": "512"}

LINEAR = [
    ("linear_gelu_softmax", "train"),
    ("linear_batchnorm_scale_softmax", "train"),
    ("linear_batchnorm_scale_softmax", "eval"),
    ("linear_scale_batchnorm", "train"),
    ("linear_scale_batchnorm", "eval"),
    ("linear_scale_residual_clamp_logsumexp_mish", "train"),
]

#: The output is one element, so its error varies most.
SUM = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, target):
        return ((x - target) ** 2).sum()


def get_inputs():
    return [torch.rand(256, 192), torch.rand(256, 192)]


def get_init_inputs():
    return []
"""

PIECES = "k = x.shape[1] // {n}\n    return sum(x[:, i*k:(i+1)*k] @ w[:, i*k:(i+1)*k].t() for i in range({n})) + b"

#: Name: (honest, the body of ``product(x, w, b)``).
PRODUCTS = {
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


#: Name: (honest, the body of ``total(x)``).
SUMS = {
    "dot product": (True, "return torch.dot(x.flatten(), torch.ones(x.numel()))"),
    "32 accumulators": (True, "s = torch.zeros(32)\n    for piece in x.view(-1, 32):\n        s = s + piece\n    return s.sum()"),
    "256 accumulators": (
        True, "s = torch.zeros(256)\n    for piece in x.view(-1, 256):\n        s = s + piece\n    return s.sum()"),
    "rows, then their sum": (True, "return x.sum(1).sum()"),
    "summed backwards": (True, "return x.flatten().flip(0).sum()"),
    "float64 inside": (True, "return x.double().sum().float()"),
    "one long sequential sum": (
        False, "s = torch.zeros(())\n    for one in x.flatten():\n        s = s + one\n    return s"),
    "bfloat16 inputs": (False, "return x.bfloat16().float().sum()"),
    "TF32": (
        False, "return (x.contiguous().view(torch.int32) + 0x1000 & -8192).view(torch.float32).sum()"),
    "a dropped row": (False, "return x[1:].sum()"),
}


@dataclass(frozen=True)
class Experiment:
    """A problem, a part of its module's text, the replacement of that part, and the subjects that compute it."""

    problem: Problem
    replaced: str
    by: str
    signature: str
    subjects: Mapping[str, tuple[bool, str]]

    def source(self, body: str) -> str:
        """The problem's own module with one operator computed by ``body``."""
        text = self.problem.source.replace("class Model(", "class ModelNew(").replace(self.replaced, self.by)
        return f"{text}\n\ndef {self.signature}:\n    {body}\n"


def experiments(folder: Path) -> Iterator[Experiment]:
    for name, mode in LINEAR:
        problem = read_problem(str(ROOT / "problems" / f"{name}.py"), SIZES, mode)
        call = "product(x, self.linear.weight, self.linear.bias)"
        yield Experiment(problem, "self.linear(x)", call, "product(x, w, b)", PRODUCTS)
    path = folder / "squared_error.py"
    path.write_text(SUM)
    squares = "(x - target) ** 2"
    yield Experiment(read_problem(str(path)), f"({squares}).sum()", f"total({squares})", "total(x)", SUMS)


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for of in experiments(Path(folder)):
            problem = of.problem
            with Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=Path(folder), baselines=()) as evaluator:
                builder = evaluator.builder()
                for subject, (honest, body) in of.subjects.items():
                    candidate = Candidate(of.source(body), subject, {}, "cpu")
                    found = evaluator.evaluate(candidate, builder.build(candidate.source))
                    judged = [row for row in found.errors if row.used is not None]
                    worst = max(judged, key=lambda row: row.used)
                    rows.append({
                        "problem": problem.name, "mode": str(evaluator.problem.mode), "subject": subject,
                        "kind": "honest" if honest else "dishonest", "status": str(found.status),
                        "allowance used": round(worst.used, 2), "test case": worst.case})
    record("accuracy_gate", "Margins of the accuracy gate", rows,
           "The largest share of an allowance that each subject used in any test case up to the first that failed.")


if __name__ == "__main__":
    main()
