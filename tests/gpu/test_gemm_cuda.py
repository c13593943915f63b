"""Products of our own on a GPU: bare linear layers of many sizes through the evaluator, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from models import design, made, module, plainest, source

from kgen.candidate import Candidate
from kgen.design import Design
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.protocol import Accuracy, Evaluation, Status
from kgen.graph import capture
from kgen.hardware import probe
from kgen.problem import load, read_problem
from kgen.search import Point

pytestmark = pytest.mark.gpu

BARE_LINEAR = str(Path(__file__).parents[1] / "problems" / "bare_linear.py")
ON_SM90 = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
#: Sizes whose sums are so long that PyTorch's own float32 loses more in them than products of parts do.
LONG_SUMS = {(64, 8192, 8192), (1024, 8192, 8192)}
#: Rows, k, columns.
SIZES = [
    (1, 1, 1), (1, 1000, 1000), (7, 1111, 999), (65, 520, 33), (512, 512, 512), (1000, 1111, 999), (2050, 1111, 2047),
    (64, 8192, 8192), (1024, 8192, 8192),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("builds")))
        yield


# Accuracy, as every sweep judges it


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: "x".join(map(str, size)))
def size(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    return request.param


def judge(size: tuple[int, int, int], accuracy: Accuracy, home: Path) -> list[tuple[Candidate, Evaluation]]:
    """What became of the product at every corner of its space, as a bare linear layer of one size."""
    rows, k, columns = size
    sizes = {"batch_size": str(rows), "in_features": str(k), "out_features": str(columns)}
    problem = read_problem(BARE_LINEAR, sizes)
    with Evaluator(problem, device="cuda", accuracy=accuracy, home=home, baselines=("eager",)) as evaluator:
        builder = evaluator.builder()
        of = Design(problem, capture(load(problem)), evaluator.hardware, accuracy)
        (kernel,), space = of.options[0].kernels, of.choices[0].spaces[0]
        found = [of.candidate(Point(0, (kernel.index(corner),))) for corner in space.corners()]
        with ThreadPoolExecutor() as pool:
            reports = list(pool.map(lambda c: builder.build(c.source), found))
        return [(c, evaluator.evaluate(c, report)) for c, report in zip(found, reports)]


@pytest.fixture(scope="module")
def judged(
    size: tuple[int, int, int], tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Candidate, Evaluation]]:
    return judge(size, Accuracy.FP32, tmp_path_factory.mktemp("home"))


def figures(judged: list[tuple[Candidate, Evaluation]]) -> str:
    """A line for each candidate: its verdict, its error over PyTorch's, the regime that used most of its allowance."""
    lines = []
    for c, e in judged:
        worst = max((x for x in e.errors if x.used is not None), key=lambda x: x.used, default=None)
        used = f"used {worst.used:.2f} of {worst.regime}" if worst else "no figures"
        lines.append(f"{e.status} error x{e.error_ratio} {used} {dict(c.params)} {e.reason}")
    return "\n" + "\n".join(lines)


def test_bare_products_are_right_in_all_regimes(judged: list[tuple[Candidate, Evaluation]]) -> None:
    assert judged and all(e.status is Status.OK for _, e in judged), figures(judged)


def test_bare_products_of_long_sums_are_no_less_accurate_than_pytorch(
    size: tuple[int, int, int], judged: list[tuple[Candidate, Evaluation]]
) -> None:
    if size not in LONG_SUMS:
        pytest.skip("PyTorch's own sums are as exact as float32 can be here: the gate alone is the bar")
    assert all(e.error_ratio is not None and e.error_ratio <= 1.0 for _, e in judged), figures(judged)


def test_both_variants_are_judged(judged: list[tuple[Candidate, Evaluation]]) -> None:
    offered = {"sm90", "sm80"} if probe("cuda").capability == 90 else {"sm80"}
    assert "sm80" in {c.params["k0.variant"] for c, _ in judged} <= offered


@pytest.mark.skipif(not ON_SM90, reason="one product is for sm_90 alone")
@pytest.mark.parametrize("size", [(7, 1111, 999), (1000, 1111, 999), (1024, 8192, 8192)], ids=str)
def test_one_product_is_as_accurate_as_tf32(size: tuple[int, int, int], tmp_path: Path) -> None:
    found = judge(size, Accuracy.TF32, tmp_path)
    assert {c.params["k0.products"] for c, _ in found} >= {1}
    assert all(e.status is Status.OK for _, e in found), figures(found)


# What the gate leaves out

LINEAR = "self.linear = nn.Linear(200, 132)"


def of_text(forward: str, init: str = LINEAR, inputs: str = "torch.randn(300, 200)", arguments: str = "x") -> tuple:
    """The problem's model, and the first candidate's with the same weights, on the GPU."""
    loaded = made(source(forward, inputs, init, arguments))
    candidate = plainest(design(loaded, probe("cuda")))[0]
    assert "gemm[" in candidate.plan
    torch.manual_seed(0)
    model = loaded.model().cuda().eval()
    new = module(candidate).ModelNew().cuda().eval()
    new.load_state_dict(model.state_dict())
    return model, new


def assert_close(model: Callable, new: Callable, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), model(*inputs), rtol=2e-5, atol=2e-5)


MORE = f"{LINEAR}\nself.w, self.b = nn.Parameter(torch.randn(200, 132)), nn.Parameter(torch.randn(132))\nself.s = nn.Parameter(torch.randn(()))"


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.matmul(x, self.w)",
        "return torch.addmm(self.b, x, self.w).relu()",
        "h = self.linear(x)\nreturn h.tanh() * self.s + self.b, h",
        "return self.linear(x) * x[:, :1]",
        "return self.linear(x) + y",
    ],
)
def test_products_with_maps_behind_them_are_right(forward: str) -> None:
    model, new = of_text(forward, MORE, "torch.randn(300, 200), torch.randn(300, 132)", "x, y")
    assert_close(model, new, torch.randn(300, 200, device="cuda"), torch.randn(300, 132, device="cuda"))


def test_flattened_batches_are_right() -> None:
    model, new = of_text("return self.linear(x).relu()", inputs="torch.randn(6, 50, 200)")
    assert_close(model, new, torch.randn(7, 50, 200, device="cuda"))


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1025])
def test_any_batch_is_right(rows: int) -> None:
    model, new = of_text("return self.linear(x).relu()")
    assert_close(model, new, torch.randn(rows, 200, device="cuda"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["x", "weight", "both"])
def test_what_is_not_finite_comes_out_as_pytorchs(value: float, where: str) -> None:
    model, new = of_text("return self.linear(x)")
    x = torch.randn(300, 200, device="cuda")
    with torch.no_grad():
        if where != "weight":
            x[17, 3] = x[299, 199] = value
        if where != "x":
            for m in (model, new):
                m.linear.weight[5, 7] = m.linear.weight[131, 0] = value
        expected, found = model(x), new(x)
    assert torch.equal(expected.isnan(), found.isnan())
    finite = ~expected.isnan()
    torch.testing.assert_close(found[finite], expected[finite], rtol=2e-5, atol=2e-5)


def test_every_way_to_multiply_leaves_what_is_not_finite_as_pytorchs() -> None:
    loaded = made(source("return self.linear(x)", "torch.randn(300, 2000)", "self.linear = nn.Linear(2000, 1034)"))
    of = design(loaded, probe("cuda"))
    (kernel,), space = of.options[0].kernels, of.choices[0].spaces[0]
    candidates = [of.candidate(Point(0, (kernel.index(corner),))) for corner in space.corners()]
    with ThreadPoolExecutor() as pool:
        modules = list(pool.map(module, candidates))
    model = loaded.model().cuda().eval()
    x = torch.randn(300, 2000, device="cuda")
    x[17, 3], x[18, 1999], x[299, 5] = float("nan"), float("inf"), -float("inf")
    with torch.no_grad():
        model.linear.weight[1033, 7] = float("inf")
        expected = model(x)
    for candidate, found in zip(candidates, modules):
        new = found.ModelNew().cuda().eval()
        new.load_state_dict(model.state_dict())
        with torch.no_grad():
            y = new(x)
        torch.testing.assert_close(y, expected, rtol=2e-5, atol=2e-5, equal_nan=True, msg=str(candidate.params))


def test_rows_of_very_different_size_keep_their_accuracy() -> None:
    model, new = of_text("return self.linear(x)")
    x = torch.randn(300, 200, device="cuda") * 10.0 ** torch.linspace(-30, 30, 300, device="cuda")[:, None]
    with torch.no_grad():
        for m in (model, new):
            m.linear.bias.zero_()
            m.linear.weight.mul_(10.0 ** torch.linspace(-5, 5, 132, device="cuda")[:, None])
        x_wide, w_wide = x.double(), model.linear.weight.double()
        error = (new(x).double() - x_wide @ w_wide.T).abs()
        assert (error <= 1e-6 * (x_wide.abs() @ w_wide.abs().T)).all()


def test_zeros_are_exact() -> None:
    _, new = of_text("return self.linear(x)")
    with torch.no_grad():
        assert torch.equal(new(torch.zeros(300, 200, device="cuda")), new.linear.bias.expand(300, 132))


def test_strided_and_misaligned_inputs_are_right() -> None:
    model, new = of_text("return self.linear(x)")
    assert_close(model, new, torch.randn(200, 300, device="cuda").T)
    assert_close(model, new, torch.randn(300 * 200 + 1, device="cuda")[1:].view(300, 200))


def test_changed_weights_are_split_again() -> None:
    model, new = of_text("return self.linear(x)")
    x = torch.randn(300, 200, device="cuda")
    assert_close(model, new, x)
    torch.nn.init.normal_(model.linear.weight)
    new.load_state_dict(model.state_dict())
    assert_close(model, new, x)


def test_a_cuda_graph_replays_it() -> None:
    model, new = of_text("return self.linear(x).relu()")
    x = torch.randn(300, 200, device="cuda")
    with torch.no_grad():
        new(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = new(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y, model(x), rtol=2e-5, atol=2e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_a_second_gpu_works() -> None:
    model, new = of_text("return self.linear(x)")
    assert_close(model, new, torch.randn(300, 200, device="cuda"))
    assert_close(model.to("cuda:1"), new.to("cuda:1"), torch.randn(300, 200, device="cuda:1"))
