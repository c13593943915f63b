"""Windows and scans: values against float64 and eager's error on the CPU; which calls are kernels, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from models import design, graph, made, module, source
from windows_and_scans import CASES, IMAGE, INPUTS, LINE, problem

from kgen.compiler.graph.graph import NotFusable
from kgen.compiler.lower.lowering import lower
from kgen.compiler.operators.table import OPS
from kgen.devices.hardware import for_arch
from kgen.tuning.search import Point


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[torch.Tensor, ...]]:
    """Of each case the values of kgen, of eager, and of eager in float64."""
    loaded = problem(INPUTS)
    of = design(loaded)
    option = of.options[0]
    assert "(library)" not in option.name
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("builds")))
        new_type = module(of.candidate(Point(0, (0,) * len(option.kernels)))).ModelNew
    torch.manual_seed(0)
    model = loaded.model().eval()
    torch.manual_seed(0)
    new = new_type().eval()
    inputs = loaded.inputs()
    with torch.no_grad():
        got, eager = new(*inputs), model(*inputs)
        exact = model.double()(*(x.double() for x in inputs))
    return dict(zip(CASES, zip(got, eager, exact)))


@pytest.mark.parametrize("case", CASES)
def test_values_are_as_accurate_as_eager(case: str, results: dict[str, tuple[torch.Tensor, ...]]) -> None:
    got, eager, exact = results[case]
    scale = exact.abs().max()
    allowed = 2.0 * (eager - exact).abs().max() / scale + 2e-7
    assert got.shape == eager.shape
    assert (got - exact).abs().max() / scale <= allowed


def only(call: str, inputs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Values of kgen's one kernel and of eager, for a forward without weights."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    loaded = made(source(f"return {call}", inputs))
    of = design(loaded)
    new = module(of.candidate(Point(0, (0,)))).ModelNew().eval()
    x = loaded.inputs()
    return new(*x), loaded.model()(*x)


def test_maximum_of_a_window_with_nan_is_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = "torch.tensor([1.0, float('nan'), 3.0, 2.0, -float('inf'), -float('inf')]).repeat(2, 3, 4, 1)"
    got, eager = only("F.max_pool2d(x, 2, 1)", inputs, tmp_path, monkeypatch)
    torch.testing.assert_close(got, eager, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return F.adaptive_avg_pool2d(x, (2, 5))", INPUTS[IMAGE]),
        ("return F.max_pool2d(x, 2, return_indices=True)[1]", INPUTS[IMAGE]),
        ("return F.interpolate(x, size=(5, 7))", INPUTS[IMAGE]),
        ("return torch.cumsum(x, 0)", INPUTS[LINE]),
    ],
)
def test_calls_without_a_fixed_window_stay_library_calls(forward: str, inputs: str) -> None:
    assert not any(node.op in OPS for node in graph(made(source(forward, inputs))).nodes)


@pytest.mark.parametrize(
    "forward",
    [
        "return F.max_pool2d(F.max_pool2d(x, 2), 2)",
        "return F.max_pool2d(x, 2).sum(dim=1)",
        "return F.max_pool2d(x.cumsum(1), 2)",
        "return x.cumsum(1).cumsum(1)",
    ],
)
def test_kernel_has_one_window_or_scan(forward: str) -> None:
    found = graph(made(source(forward, INPUTS[IMAGE])))
    with pytest.raises(NotFusable):
        lower(found, [n.name for n in found.nodes], found.returns)


@pytest.mark.parametrize(
    ("dtype", "vector"),
    [
        ("float32", "load_vector<4>(x_in + row * 4096 + in_a) : fill_vector<float, 4>(-INFINITY)"),
        ("bfloat16", "load_vector<8>(x_in + row * 4096 + in_a) : fill_vector<bfloat16_t, 8>(static_cast<bfloat16_t>(-INFINITY))"),
    ],
)
def test_windows_load_16_bytes_and_fill_what_lies_outside(dtype: str, vector: str) -> None:
    text = source("return F.max_pool1d(x, 8, 1, 4, 3)", "torch.randn(4, 8, 4096)")
    of = design(made(f'{text}\n\n__dtype__ = "{dtype}"  # kgen converts the model\n', "eval"), for_arch("sm_90"))
    kernel = of.candidate(Point(0, (0,))).source
    assert f"inside ? {vector};" in kernel
    assert "inside ? x :" not in kernel


@pytest.mark.parametrize(
    ("forward", "init", "skipped"),
    [
        ("torch.cat([x, self.c(x)], 1)", "self.c = nn.Conv2d(8, 8, 3, padding=1, groups=8)", True),
        ("F.avg_pool2d(F.pad(x, (0, 0, 0, 0, 0, 4), value=2.0), 3, 1)", "", False),  # padded values count
    ],
)
def test_rows_without_a_window_sum_nothing(forward: str, init: str, skipped: bool) -> None:
    of = design(made(source(f"return {forward}", "torch.randn(2, 8, 32, 32)", init)), for_arch("sm_90"))
    option = next(n for n, o in enumerate(of.options) if o.name.startswith("window[") and "+" not in o.name)
    text = of.candidate(Point(option, of.options[option].plainest)).source
    assert ("    if (row %" in text) == skipped
