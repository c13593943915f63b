"""Half precision on a GPU: kernels of each schedule and products of operands as they are, judged by the evaluator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from models import design, made, plainest, source

from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.protocol import Accuracy, Status
from kgen.hardware import probe

pytestmark = pytest.mark.gpu

#: Forward, the rest of ``__init__``, and the input.
CASES = {
    "pointwise": ("return F.gelu(x) * self.s", "self.s = nn.Parameter(torch.randn(1000))", "torch.randn(333, 1000)"),
    "rows": ("return F.softmax(self.n(x), 1)", "self.n = nn.LayerNorm(4096)", "torch.randn(300, 4096)"),
    "columns": ("return self.n(x).relu()", "self.n = nn.BatchNorm1d(999)", "torch.randn(512, 999)"),
    "channels": ("return self.n(x).sum(1)", "self.n = nn.BatchNorm2d(16)", "torch.randn(8, 16, 33, 36)"),
    "window": ("return F.max_pool2d(x, 3, 2, 1)", "", "torch.randn(4, 8, 64, 64)"),
    "scan": ("return x.cumsum(1)", "", "torch.randn(64, 2000)"),
    "product": ("return F.gelu(self.l(x))", "self.l = nn.Linear(1112, 999)", "torch.randn(1000, 1112)"),
    "few rows": ("return self.l(x)", "self.l = nn.Linear(8192, 1000, bias=False)", "torch.randn(65, 8192)"),
    "batch": ("return torch.bmm(x, self.w.mT).relu()", "self.w = nn.Parameter(torch.randn(5, 131, 328))", "torch.randn(5, 70, 328)"),
    "moments": ("return self.n(self.l(x))", "self.l, self.n = nn.Linear(512, 1024), nn.BatchNorm1d(1024)", "torch.randn(999, 512)"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_most_fused_plan_is_right(case: str, dtype: str, tmp_path: Path) -> None:
    forward, init, inputs = CASES[case]
    text = f'{source(forward, inputs, init)}\n\n__dtype__ = "{dtype}"  # kgen converts the model\n'
    loaded = made(text, "train" if "BatchNorm" in init else "eval")
    of = design(loaded, probe(f"cuda:{torch.cuda.current_device()}"), Accuracy.PYTORCH)
    candidate = next(c for c in plainest(of) if c.kernels)
    with Evaluator(loaded.problem, device="cuda", accuracy=Accuracy.PYTORCH, home=tmp_path, baselines=("eager",)) as evaluator:
        found = evaluator.evaluate(candidate, evaluator.builder().build(candidate.source))
    assert found.status is Status.OK, f"{found.reason} ({candidate.plan}, {candidate.params})"
    assert found.accuracy is Accuracy.PYTORCH
