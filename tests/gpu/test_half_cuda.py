"""Half precision on a GPU: kernels of each schedule and products of operands as they are, judged by the evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
import torch
from models import design, made, plainest, source

from kgen.candidate import Candidate
from kgen.devices.hardware import gpu
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import LoadedProblem
from kgen.protocol import Accuracy, Evaluation, Status

pytestmark = pytest.mark.gpu

AT_ONCE = 4  # problems judged beside each other

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


@cache
def most_fused(case: str, dtype: str) -> tuple[LoadedProblem, Candidate]:
    """A case as a problem in that dtype, and the candidate of its most fused plan."""
    forward, init, inputs = CASES[case]
    text = f'{source(forward, inputs, init)}\n\n__dtype__ = "{dtype}"  # kgen converts the model\n'
    loaded = made(text, "train" if "BatchNorm" in init else "eval")
    of = design(loaded, gpu(f"cuda:{torch.cuda.current_device()}"), Accuracy.PYTORCH)
    return loaded, next(c for c in plainest(of) if c.kernels)


def opened(loaded: LoadedProblem, home: Path) -> Evaluator:
    return Evaluator(loaded.problem, device="cuda", accuracy=Accuracy.PYTORCH, home=home, baselines=("eager",))


def judge(loaded: LoadedProblem, candidate: Candidate, home: Path) -> Evaluation:
    """The verdict on the candidate."""
    with opened(loaded, home) as evaluator:
        return evaluator.evaluate(candidate, evaluator.builder().build(candidate.source))


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Future[Evaluation]]]:
    """The verdict on each selected test's candidate: all are built on all cores, then several are judged at once."""
    folder = tmp_path_factory.mktemp("home")
    chosen = [item.callspec.params for item in request.session.items if item.path == Path(__file__)]
    found = {(params["case"], params["dtype"]): most_fused(params["case"], params["dtype"]) for params in chosen}
    with opened(next(iter(found.values()))[0], folder) as evaluator, ThreadPoolExecutor() as pool:
        reports = list(pool.map(evaluator.builder().build, [candidate.source for _, candidate in found.values()]))
    assert all(r.ok for r in reports), next(r.reason for r in reports if not r.ok)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {key: pool.submit(judge, *of, folder) for key, of in found.items()}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_most_fused_plan_is_right(case: str, dtype: str, verdicts: dict[tuple[str, str], Future[Evaluation]]) -> None:
    _, candidate = most_fused(case, dtype)
    found = verdicts[case, dtype].result()
    assert found.status is Status.OK, f"{found.reason} ({candidate.plan}, {candidate.params})"
    assert found.accuracy is Accuracy.PYTORCH
