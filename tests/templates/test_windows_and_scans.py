"""Windows and scans: values against float64 and eager's error on the CPU; which calls are kernels, and which are not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from models import design, graph, made, module, source

from kgen.compiler.loops import NotFusable, lower
from kgen.compiler.operators import OPS
from kgen.problem import LoadedProblem
from kgen.tuning.search import Point

LINE, IMAGE, VOLUME = "line", "image", "volume"
INPUTS = {LINE: "torch.randn(2, 6, 19)", IMAGE: "torch.randn(2, 6, 9, 12)", VOLUME: "torch.randn(2, 4, 6, 7, 10)"}

#: The call of each case, with its input: the modules in it are made in ``__init__``.
WINDOWS = {
    "max 1d": ("nn.MaxPool1d(3)(line)", LINE),
    "max 1d dilated": ("nn.MaxPool1d(4, 1, 2, 3)(line)", LINE),
    "max 2d between maps": ("nn.MaxPool2d(3, 2, 1, ceil_mode=True)(image.relu() * -2.0) + 1.0", IMAGE),
    "max 2d of a view": ("nn.MaxPool2d(2)(image.transpose(2, 3)).flatten(1)", IMAGE),
    "max 2d of one image": ("nn.MaxPool2d((3, 2), 1, 1)(line)", LINE),
    "max 3d": ("nn.MaxPool3d(3, 2, 1, 2)(volume)", VOLUME),
    "mean 1d": ("nn.AvgPool1d(4, 1, 2, count_include_pad=False)(line)", LINE),
    "mean 2d": ("nn.AvgPool2d(3)(image)", IMAGE),
    "mean 2d in ceil mode": ("nn.AvgPool2d(3, 2, 1, ceil_mode=True)(image)", IMAGE),
    "mean 2d of inner elements": ("nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)(image)", IMAGE),
    "mean 2d with a divisor": ("nn.AvgPool2d(3, 2, 1, divisor_override=5)(image)", IMAGE),
    "mean 3d": ("nn.AvgPool3d(3, 2, 1)(volume)", VOLUME),
    "adaptive": ("nn.AdaptiveAvgPool2d((3, 4))(image)", IMAGE),
    "adaptive to one": ("nn.AdaptiveAvgPool3d(1)(volume)", VOLUME),
    "nearest": ("F.interpolate(image, scale_factor=(2, 3)).tanh()", IMAGE),
    "depthwise 1d": ("nn.Conv1d(6, 6, 4, groups=6, stride=3)(line)", LINE),
    "depthwise 2d": ("nn.Conv2d(6, 6, 3, groups=6, padding=1)(torch.tanh(image))", IMAGE),
    "depthwise 2d, two outputs to a channel": ("nn.Conv2d(6, 12, (3, 5), groups=6, padding='same', bias=False)(image).relu()", IMAGE),
    "groups of two channels": ("nn.Conv2d(6, 9, 3, groups=3, stride=2, padding=2, dilation=2)(image)", IMAGE),
    "depthwise 3d": ("nn.Conv3d(4, 4, 3, groups=4)(volume)", VOLUME),
}  # fmt: skip

SCANS = {
    "sum along rows": ("torch.cumsum(line, -1)", LINE),
    "sum between maps": ("torch.cumsum(line * line, 2) * line + 1.0", LINE),
    "sum along an outer axis": ("torch.cumsum(line, 1)", LINE),
    "sum of a view": ("torch.cumsum(line.transpose(1, 2), 1)", LINE),
    "product": ("torch.cumprod(image, 2).relu()", IMAGE),
    "sum from the end": ("torch.cumsum(line.flip(2), 2).flip(2)", LINE),
    "sum from the end of an outer axis": ("torch.cumsum(image.flip(1), 1).flip(1)", IMAGE),
    "masked sum": ("torch.cumsum(line * (line[:, :1] * 2.0), 1)", LINE),
}  # fmt: skip

CASES = {**WINDOWS, **SCANS}


def problem(calls: Sequence[str]) -> LoadedProblem:
    """One forward that returns the value of every call, its modules made once."""
    init, lines = [], []
    for number, call in enumerate(calls):
        if call.startswith("nn."):
            made_by, _, given = call.partition(")(")
            init.append(f"self.m{number} = {made_by})")
            call = f"self.m{number}({given}"
        lines.append(f"r{number} = {call}")
    returned = ", ".join(f"r{n}" for n in range(len(calls)))
    return made(source("\n".join([*lines, f"return [{returned}]"]), ", ".join(INPUTS.values()), "\n".join(init), ", ".join(INPUTS)))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[torch.Tensor, ...]]:
    """Of each case the values of kgen, of eager, and of eager in float64, at the captured batch and at another."""
    loaded = problem([call for call, _ in CASES.values()])
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
