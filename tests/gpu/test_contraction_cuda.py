"""Contractions of our own on a GPU: bare ones of many sizes through the evaluator, and what it leaves out.

Everything that the selected tests run is compiled before the first of them, on all cores. The default run has the sizes
of ``DEFAULT``: odd ones over a covering set of the space, one row, few columns, long sums, and a batch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from models import design, made, module, plainest, source

from kgen.candidate import Candidate
from kgen.compiler.capture.capture import capture
from kgen.devices.hardware import Hardware, gpu as limits
from kgen.evaluator.evaluator import Evaluator
from kgen.problems.problem import LoadedProblem, Problem, load, read_problem
from kgen.protocol import Accuracy, Evaluation, Status
from kgen.tuning.design import Design
from kgen.tuning.search import Point

pytestmark = pytest.mark.gpu

PROBLEMS = Path(__file__).parents[1] / "problems"
ON_SM90 = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
#: Sizes whose sums are so long that PyTorch's own float32 loses more in them than products of terms do.
LONG_SUMS = {(64, 8192, 8192), (1024, 8192, 8192)}
#: Rows, k, columns of linear layers: over a covering set of the space, and at the first combination of each variant.
CORNERS = [(1000, 1111, 999), (64, 8192, 8192), (300, 511, 999)]
FIRSTS = [(1, 1000, 1000), (7, 1111, 999), (65, 520, 33), (40, 36, 20), (2050, 1111, 2047), (1024, 8192, 8192)]
#: Batches, rows, k, columns of contractions of two inputs.
BATCHES = [(5, 70, 333, 131), (3, 300, 4100, 130)]
#: Sizes at which one product is tried. With 7 rows, cuBLAS may leave TF32 alone though it is allowed.
TF32_SIZES = [(7, 1111, 999), (1024, 8192, 8192)]
#: Sizes of the default run; tests of the others have the marker ``exhaustive``.
DEFAULT = {(1000, 1111, 999), (1, 1000, 1000), (65, 520, 33), (1024, 8192, 8192), (5, 70, 333, 131)}
#: Problems that are judged beside each other: each has processes of its own to start, and timings wait for one another.
AT_ONCE = 4


@dataclass(frozen=True)
class Judging:
    """One problem for the evaluator, the class that it is judged in, and how much of its contraction's space is tried."""

    problem: Problem
    accuracy: Accuracy
    whole: bool

    @property
    def design(self) -> Design:
        return _design(self)

    @property
    def candidates(self) -> list[Candidate]:
        """Over a covering set of the space of the plan with a kernel, or at each variant's first."""
        of = self.design
        number = next(number for number, option in enumerate(of.options) if option.kernels)
        (kernel,), space = of.options[number].kernels, of.choices[number].spaces[0]
        firsts = {(p["variant"], p["products"]): p for p in reversed(kernel)}
        chosen = space.covering_set() if self.whole else tuple(firsts.values())
        return [of.candidate(Point(number, (kernel.index(params),))) for params in chosen]


@lru_cache(maxsize=None)
def gpu() -> Hardware:
    return limits("cuda")


@lru_cache(maxsize=None)
def _design(judging: Judging) -> Design:
    return Design(judging.problem, capture(load(judging.problem)), gpu(), judging.accuracy)


def linear(size: tuple[int, int, int], accuracy: Accuracy = Accuracy.FP32) -> Judging:
    names = ("batch_size", "in_features", "out_features")
    sizes = {name: str(value) for name, value in zip(names, size)}
    whole = size in CORNERS and accuracy is Accuracy.FP32
    return Judging(read_problem(str(PROBLEMS / "bare_linear.py"), sizes, "eval"), accuracy, whole)


def batched(size: tuple[int, int, int, int]) -> Judging:
    sizes = {name: str(value) for name, value in zip(("batch_size", "rows", "inner", "columns"), size)}
    return Judging(read_problem(str(PROBLEMS / "bare_bmm.py"), sizes, "eval"), Accuracy.FP32, whole=False)


def judgings(session: pytest.Session) -> list[Judging]:
    """All that the selected tests judge."""
    callspecs = (getattr(item, "callspec", None) for item in session.items if item.path == Path(__file__))
    sizes = {callspec.params["size"] for callspec in callspecs if callspec and "size" in callspec.params}
    found = [linear(size) for size in (*CORNERS, *FIRSTS) if size in sizes]
    found += [batched(size) for size in BATCHES if size in sizes]
    return found + [linear(size, Accuracy.TF32) for size in TF32_SIZES if size in sizes and ON_SM90]


def marked(sizes: Iterable[tuple[int, ...]]) -> list[Any]:
    """Parameters of tests: each size with its markers."""
    return [
        pytest.param(size, id="x".join(map(str, size)), marks=[] if size in DEFAULT else [pytest.mark.exhaustive])
        for size in sizes
    ]


# Modules that are tried beside the evaluator

LINEAR = "self.linear = nn.Linear(200, 132)"
MORE = f"{LINEAR}\nself.w, self.b = nn.Parameter(torch.randn(200, 132)), nn.Parameter(torch.randn(132))\nself.s = nn.Parameter(torch.randn(()))"
XY = ("torch.randn(300, 200), torch.randn(300, 132)", "x, y")

#: Problems as text: forward, __init__, inputs, arguments.
TEXTS: dict[str, tuple[str, str, str, str]] = {
    "linear": ("return self.linear(x)", LINEAR, "torch.randn(300, 200)", "x"),
    "relu": ("return self.linear(x).relu()", LINEAR, "torch.randn(300, 200)", "x"),
    "flattened": ("return self.linear(x).relu()", LINEAR, "torch.randn(6, 50, 200)", "x"),
    "matmul": ("return torch.matmul(x, self.w)", MORE, *XY),
    "addmm": ("return torch.addmm(self.b, x, self.w).relu()", MORE, *XY),
    "two outputs": ("h = self.linear(x)\nreturn h.tanh() * self.s + self.b, h", MORE, *XY),
    "rows": ("return self.linear(x) * x[:, :1]", MORE, *XY),
    "residual": ("return self.linear(x) + y", MORE, *XY),
    "inputs": ("return torch.matmul(x, y).relu()", "", "torch.randn(300, 200), torch.randn(200, 133)", "x, y"),
    "long sums": ("return torch.matmul(x, y).relu()", "", "torch.randn(130, 65540) / 256, torch.randn(65540, 132)", "x, y"),
    "long sums of rows": ("return torch.matmul(x, y.mT).relu()", "", "torch.randn(130, 65540) / 256, torch.randn(300, 65540)", "x, y"),
    "short sums": ("return torch.matmul(x, y).relu()", "", "torch.randn(4100, 64) / 8, torch.randn(64, 5000)", "x, y"),
    "rather short sums": ("return torch.matmul(x, y).relu()", "", "torch.randn(4100, 200) / 8, torch.randn(200, 5000)", "x, y"),
    "triangle": ("return torch.triu(x @ y)", "", "torch.triu(torch.randn(517, 517)) / 16, torch.triu(torch.randn(517, 517))", "x, y"),
    "transposed": ("return torch.matmul(x, x.mT)", "", "torch.randn(6, 77, 200)", "x"),
    "batch": ("return torch.bmm(x, y) + self.b", "self.b = nn.Parameter(torch.randn(133))",
              "torch.randn(6, 77, 200), torch.randn(6, 200, 133)", "x, y"),
    "heads": ("return torch.matmul(x, y).tanh()", "", "torch.randn(4, 3, 77, 40), torch.randn(4, 3, 40, 64)", "x, y"),
    "batch of weights": ("return torch.bmm(x, self.w).relu()", "self.w = nn.Parameter(torch.randn(6, 200, 132))",
                         "torch.randn(6, 77, 200)", "x"),
}  # fmt: skip

#: Contractions whose spaces have, together, clusters, splits of k, all tiles, whole rows and the library, small enough to be run
#: over a covering set.
EVERY_WAY = {
    "linear": source("return self.linear(x)", "torch.randn(520, 2000)", "self.linear = nn.Linear(2000, 1034)"),
    "small linear": source("return self.linear(x)", "torch.randn(310, 511)", "self.linear = nn.Linear(511, 1034)"),
    "small matmul": source(
        "return torch.matmul(x, self.w) + self.b", "torch.randn(310, 511)",
        "self.w, self.b = nn.Parameter(torch.randn(511, 1034) / 23), nn.Parameter(torch.randn(1034))"
    ),
}  # fmt: skip

#: Moments over the batch behind a contraction, in its epilogue: with splits of k, and with blocks that share tiles.
NORMALISED = {
    sizes: source(
        "return self.norm(self.linear(x) * self.scale)", f"torch.randn({sizes[0]}, {sizes[1]})",
        f"self.linear, self.norm = nn.Linear({sizes[1]}, {sizes[2]}), nn.BatchNorm1d({sizes[2]})\n"
        f"self.scale = nn.Parameter(torch.randn({sizes[2]}))",
    )
    for sizes in ((520, 2000, 1034), (1037, 200, 4100), (310, 330, 258))
}  # fmt: skip


@lru_cache(maxsize=None)
def text(name: str) -> tuple[LoadedProblem, Candidate]:
    forward, init, inputs, arguments = TEXTS[name]
    loaded = made(source(forward, inputs, init, arguments))
    found = plainest(design(loaded, gpu()), 1)[0]
    assert "contraction[" in found.plan
    return loaded, found


@lru_cache(maxsize=None)
def every_way(name: str) -> tuple[LoadedProblem, list[Candidate]]:
    loaded = made(EVERY_WAY[name])
    of = design(loaded, gpu())
    (kernel,), space = of.options[0].kernels, of.choices[0].spaces[0]
    return loaded, [of.candidate(Point(0, (kernel.index(params),))) for params in space.covering_set()]


@lru_cache(maxsize=None)
def normalised(sizes: tuple[int, int, int]) -> tuple[LoadedProblem, list[Candidate]]:
    loaded = made(NORMALISED[sizes], "train")
    of = design(loaded, gpu())
    number = next(n for n, o in enumerate(of.options) if o.name == "contraction[linear, mul, moments] + pointwise[normalise]")
    (kernel, _), (space, _) = of.options[number].kernels, of.choices[number].spaces
    return loaded, [of.candidate(Point(number, (kernel.index(params), 0))) for params in space.covering_set()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module", autouse=True)
def builds(request: pytest.FixtureRequest, home: Path) -> Iterator[None]:
    """All files that these tests run, built up front as a sweep builds them, where the files themselves look."""
    found = [c for judging in judgings(request.session) for c in judging.candidates]
    found += [text(name)[1] for name in TEXTS] + [c for name in EVERY_WAY for c in every_way(name)[1]]
    found += [c for sizes in NORMALISED for c in normalised(sizes)[1]]
    problem = linear(CORNERS[0]).problem
    with Evaluator(problem, device="cuda", accuracy=Accuracy.FP32, home=home, baselines=("eager",)) as evaluator:
        builder = evaluator.builder()
        with ThreadPoolExecutor() as pool:
            reports = list(pool.map(builder.build, {c.source: None for c in found}))
    assert all(r.ok for r in reports), next(r.reason for r in reports if not r.ok)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(builder.directory))
        yield


# Accuracy, as every sweep judges it


#: What became of each candidate of a problem, once all of them are judged.
Verdicts = Future[list[tuple[Candidate, Evaluation]]]


def judge(judging: Judging, home: Path) -> list[tuple[Candidate, Evaluation]]:
    """What became of each candidate."""
    with Evaluator(judging.problem, device="cuda", accuracy=judging.accuracy, home=home, baselines=("eager",)) as evaluator:
        builder = evaluator.builder()
        return [(c, evaluator.evaluate(c, builder.build(c.source))) for c in judging.candidates]


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest, builds: None, home: Path) -> Iterator[dict[Judging, Verdicts]]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {judging: pool.submit(judge, judging, home) for judging in judgings(request.session)}


@pytest.fixture(scope="module", params=marked([*CORNERS, *FIRSTS]))
def size(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    return request.param


@pytest.fixture(scope="module")
def judged(size: tuple[int, int, int], verdicts: dict[Judging, Verdicts]) -> list[tuple[Candidate, Evaluation]]:
    return verdicts[linear(size)].result()


def figures(judged: list[tuple[Candidate, Evaluation]]) -> str:
    """A line for each candidate: its verdict, its error over PyTorch's, the regime that used most of its allowance."""
    lines = []
    for c, e in judged:
        worst = max((x for x in e.errors if x.used is not None), key=lambda x: x.used, default=None)
        used = f"used {worst.used:.2f} of {worst.case}" if worst else "no figures"
        lines.append(f"{e.status} error x{e.error_ratio} {used} {dict(c.params)} {e.reason}")
    return "\n" + "\n".join(lines)


def test_bare_contractions_are_right_in_all_regimes(judged: list[tuple[Candidate, Evaluation]]) -> None:
    assert judged and all(e.status is Status.OK for _, e in judged), figures(judged)


def test_bare_contractions_of_long_sums_are_no_less_accurate_than_pytorch(
    size: tuple[int, int, int], judged: list[tuple[Candidate, Evaluation]]
) -> None:
    if size not in LONG_SUMS:
        pytest.skip("PyTorch's own sums are as exact as float32 can be here: the gate alone is the bar")
    assert all(e.error_ratio is not None and e.error_ratio <= 1.0 for _, e in judged), figures(judged)


def test_all_variants_are_judged(judged: list[tuple[Candidate, Evaluation]]) -> None:
    offered = {"sm80", "whole", "library"} | ({"sm90"} if ON_SM90 else set())
    assert "sm80" in {c.params["k0.variant"] for c, _ in judged} <= offered


@pytest.mark.parametrize("size", marked(BATCHES))
def test_batches_of_contractions_are_right_in_all_regimes(size: tuple[int, int, int, int], verdicts: dict[Judging, Verdicts]) -> None:
    found = verdicts[batched(size)].result()
    assert found and all(e.status is Status.OK for _, e in found), figures(found)


@pytest.mark.skipif(not ON_SM90, reason="one product is for sm_90 alone")
@pytest.mark.parametrize("size", marked(TF32_SIZES))
def test_one_product_is_as_accurate_as_tf32(size: tuple[int, int, int], verdicts: dict[Judging, Verdicts]) -> None:
    """The class allows that error in every matmul: also with 7 rows, where cuBLAS computes in float32 though TF32 is allowed."""
    found = verdicts[linear(size, Accuracy.TF32)].result()
    one = [e for c, e in found if c.params["k0.products"] == 1]
    assert one and all(e.status is Status.OK for _, e in found), figures(found)
    errors = [e.errors[0].rms or 0.0 for e in one]  # of an output that is about a third in size; those of three products are below 1e-6
    assert all(1e-5 < error < 3e-4 for error in errors), figures(found)


# What the gate leaves out


def of_text(name: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The problem's model, and the first candidate's with the same weights, on the GPU."""
    loaded, candidate = text(name)
    torch.manual_seed(0)
    model = loaded.model().cuda().eval()
    new = module(candidate).ModelNew().cuda().eval()
    new.load_state_dict(model.state_dict())
    return model, new


def assert_close(model: Callable, new: Callable, *inputs: torch.Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), model(*inputs), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", TEXTS)
def test_contractions_of_all_kinds_are_right(name: str) -> None:
    model, new = of_text(name)
    assert_close(model, new, *(x.cuda() for x in text(name)[0].inputs()))


@pytest.mark.parametrize("name", ["transposed", "batch", "heads", "flattened"])
@pytest.mark.parametrize("batch", [0, 1, 7])
def test_any_number_of_matrices_is_right(name: str, batch: int) -> None:
    model, new = of_text(name)
    assert_close(model, new, *(torch.randn(batch, *x.shape[1:], device="cuda") for x in text(name)[0].inputs()))


@pytest.mark.skipif(not ON_SM90, reason="slices are for sm_90 alone")
@pytest.mark.parametrize("name", ["long sums", "long sums of rows"])
def test_long_sums_of_positive_products_lose_no_more_than_a_promotion_interval_does(name: str) -> None:
    """That is 1.9e-7 of a sum. A slice that is read before all of it is there would cost more, in few bits."""
    model, new = of_text(name)
    x, y = (torch.rand_like(a, device="cuda") for a in text(name)[0].inputs())
    with torch.no_grad():
        exact = model(x.double(), y.double())
        assert (new(x, y) - exact).norm() < 2.2e-7 * exact.norm()


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1025])
def test_any_batch_is_right(rows: int) -> None:
    model, new = of_text("relu")
    assert_close(model, new, torch.randn(rows, 200, device="cuda"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["x", "weight", "both"])
def test_what_is_not_finite_comes_out_as_pytorchs(value: float, where: str) -> None:
    model, new = of_text("linear")
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


def test_what_is_not_finite_stays_in_its_matrix() -> None:
    model, new = of_text("batch")
    x, y = torch.randn(6, 77, 200, device="cuda"), torch.randn(6, 200, 133, device="cuda")
    x[2, 5, 7], y[4, 9, 132] = float("nan"), float("inf")
    with torch.no_grad():
        torch.testing.assert_close(new(x, y), model(x, y), rtol=2e-5, atol=5e-5, equal_nan=True)


@pytest.mark.parametrize("name", EVERY_WAY)
def test_every_way_to_multiply_leaves_what_is_not_finite_as_pytorchs(name: str) -> None:
    loaded, candidates = every_way(name)
    model = loaded.model().cuda().eval()
    x = torch.randn(300, *loaded.inputs()[0].shape[1:], device="cuda")
    x[17, 3], x[18, -1], x[299, 5] = float("nan"), float("inf"), -float("inf")
    with torch.no_grad():
        weight = model.linear.weight if hasattr(model, "linear") else model.w.mT
        weight[1033, 7] = float("inf")
        expected = model(x)
    for candidate in candidates:
        new = module(candidate).ModelNew().cuda().eval()
        new.load_state_dict(model.state_dict())
        with torch.no_grad():
            y = new(x)
        torch.testing.assert_close(y, expected, rtol=2e-5, atol=2e-5, equal_nan=True, msg=str(candidate.params))


@pytest.mark.parametrize("sizes", NORMALISED, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("rows", [17, 33, None])
def test_statistics_begin_right_in_every_way_to_multiply(sizes: tuple[int, int, int], rows: int | None) -> None:
    loaded, candidates = normalised(sizes)
    torch.manual_seed(0)
    model = loaded.model().cuda().train()
    with torch.no_grad():
        model.linear.bias.add_(30.0)  # a mean of fifty deviations
    x = torch.randn(rows or sizes[0], sizes[1], device="cuda")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model.double()(x.double())
    for candidate in candidates:
        new = module(candidate).ModelNew().cuda().train()
        new.load_state_dict(state)
        with torch.no_grad():
            y = new(x)
        torch.testing.assert_close(y.double(), expected, rtol=1e-4, atol=1e-4, msg=str(candidate.params))
        for name in ("running_mean", "running_var"):
            found, wanted = getattr(new.norm, name).double(), getattr(model.norm, name)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6, msg=f"{name} {candidate.params}")


def test_rows_of_very_different_size_keep_their_accuracy() -> None:
    model, new = of_text("linear")
    x = torch.randn(300, 200, device="cuda") * 10.0 ** torch.linspace(-30, 30, 300, device="cuda")[:, None]
    with torch.no_grad():
        for m in (model, new):
            m.linear.bias.zero_()
            m.linear.weight.mul_(10.0 ** torch.linspace(-5, 5, 132, device="cuda")[:, None])
        x_wide, w_wide = x.double(), model.linear.weight.double()
        error = (new(x).double() - x_wide @ w_wide.T).abs()
        assert (error <= 1e-6 * (x_wide.abs() @ w_wide.abs().T)).all()


def test_zeros_are_exact() -> None:
    _, new = of_text("linear")
    with torch.no_grad():
        assert torch.equal(new(torch.zeros(300, 200, device="cuda")), new.linear.bias.expand(300, 132))


def test_strided_and_misaligned_inputs_are_right() -> None:
    model, new = of_text("linear")
    assert_close(model, new, torch.randn(200, 300, device="cuda").T)
    assert_close(model, new, torch.randn(300 * 200 + 1, device="cuda")[1:].view(300, 200))


def test_strided_operands_on_the_right_are_right() -> None:
    model, new = of_text("batch")
    x = torch.randn(6, 200, 77, device="cuda").mT
    assert_close(model, new, x, torch.randn(6, 133, 200, device="cuda").mT)
    assert_close(model, new, x, torch.randn(133, 6, 200, device="cuda").permute(1, 2, 0))


def test_changed_weights_are_split_again() -> None:
    model, new = of_text("linear")
    x = torch.randn(300, 200, device="cuda")
    assert_close(model, new, x)
    torch.nn.init.normal_(model.linear.weight)
    new.load_state_dict(model.state_dict())
    assert_close(model, new, x)


# Streams, graphs, devices, and the file alone


def captured(new: torch.nn.Module, x: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = new(x)
    return graph, y


@pytest.mark.parametrize("prepared", [True, False])
def test_a_cuda_graph_replays_it(prepared: bool) -> None:
    model, new = of_text("relu")
    x = torch.randn(300, 200, device="cuda")
    with torch.no_grad():
        new(x)
        if not prepared:
            new.refresh()
        graph, y = captured(new, x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y, model(x), rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(new(x), model(x), rtol=2e-5, atol=2e-5)


def test_a_cuda_graph_keeps_the_weights_that_it_was_captured_with() -> None:
    model, new = of_text("linear")
    x = torch.randn(300, 200, device="cuda")
    with torch.no_grad():
        expected = model(x)
        new(x)
        graph, y = captured(new, x)
        new.linear.weight.zero_()
        others = [new(x), *(torch.full((200, 132), 7.0, device="cuda") for _ in range(8))]
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(y, expected, rtol=2e-5, atol=2e-5)
        assert torch.equal(others[0], new.linear.bias.expand(300, 132))


def test_weights_split_on_one_stream_are_waited_for_on_another() -> None:
    model, new = of_text("linear")
    x = torch.randn(300, 200, device="cuda")
    side = torch.cuda.Stream()
    with torch.no_grad():
        expected = model(x)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            late = new(x)
        early = new(x)
        torch.cuda.synchronize()
    for y in (late, early):
        torch.testing.assert_close(y, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_a_second_gpu_works() -> None:
    model, new = of_text("linear")
    assert_close(model, new, torch.randn(300, 200, device="cuda"))
    assert_close(model.to("cuda:1"), new.to("cuda:1"), torch.randn(300, 200, device="cuda:1"))


#: Runs each file that it is given in plain torch, on a side stream and from a graph, and ends with 1 where one is wrong.
ALONE = """
import sys, types
import torch

for path in sys.argv[1:]:
    file = types.ModuleType("file")
    exec(compile(open(path).read(), path, "exec"), file.__dict__)
    torch.manual_seed(0)
    new = file.ModelNew().cuda().eval()
    x = torch.randn(300, new.linear.in_features, device="cuda")
    with torch.no_grad():
        expected = torch.nn.functional.linear(x.double(), new.linear.weight.double(), new.linear.bias.double()).float()
        plain, side = new(x), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            aside = new(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = new(x)
        graph.replay()
        torch.cuda.synchronize()
        for y in (plain, aside, replayed):
            torch.testing.assert_close(y, expected, rtol=2e-5, atol=2e-5)
assert not any(name.split(".")[0] == "kgen" for name in sys.modules)
"""


def test_files_run_without_kgen(tmp_path: Path) -> None:
    found = [*every_way("linear")[1], *every_way("small linear")[1]]
    files = [tmp_path / f"{number}.py" for number, _ in enumerate(found)]
    for file, candidate in zip(files, found):
        file.write_text(candidate.source)
    done = subprocess.run([sys.executable, "-c", ALONE, *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
