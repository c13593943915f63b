"""Recurrent layers on a GPU: values over a covering set of their space, against float64."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from models import design, made, module, source

from kgen.devices.hardware import gpu
from kgen.tuning.search import Point

pytestmark = pytest.mark.gpu

#: forward, __init__ and inputs. Hidden units are no multiple of what a warp reads, and rows of the batch no multiple of a slice.
CASES = {
    "a wave": ("return torch.cat(self.f(x, (y, y))[1], 2)", "self.f = nn.LSTM(40, 100, 3, batch_first=True)", "torch.randn(11, 70, 40), torch.randn(3, 11, 100)"),
    "both directions": ("return self.f(x, y)[0]", "self.f = nn.GRU(40, 256, bidirectional=True)", "torch.randn(70, 33, 40), torch.randn(2, 33, 256)"),
    "bfloat16, a wave": ("return torch.cat(self.f(x, (y, y))[1], 2)", "self.f = nn.LSTM(40, 104, 3, batch_first=True).bfloat16()", "torch.randn(11, 70, 40).bfloat16(), torch.randn(3, 11, 104).bfloat16()"),
    "float16, both directions": ("return self.f(x, y)[0]", "self.f = nn.GRU(40, 256, bidirectional=True).half()", "torch.randn(70, 33, 40).half(), torch.randn(2, 33, 256).half()"),
    "bfloat16, a large layer": ("return self.f(x)[0] + y", "self.f = nn.LSTM(64, 1024).bfloat16()", "torch.randn(20, 64, 64).bfloat16(), torch.randn(1024).bfloat16()"),
    "a large layer in turns": ("return self.f(x)[0] + y", "self.f = nn.LSTM(64, 1024)", "torch.randn(20, 64, 64), torch.randn(1024)"),
    "one layer without biases": ("return self.f(x)[0] + y", "self.f = nn.RNN(40, 516, bias=False)", "torch.randn(30, 5, 40), torch.randn(516)"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_values_are_as_accurate_as_eager(case: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    forward, init, inputs = CASES[case]
    loaded = made(source(forward, inputs, init, "x, y"), "eval")
    of = design(loaded, gpu("cuda"))
    number = next(n for n, o in enumerate(of.options) if o.name.startswith("linear(library) + recurrence["))
    kernel, *others = of.options[number].kernels
    chosen = range(0, len(kernel), max(1, len(kernel) // 6))
    with ThreadPoolExecutor() as pool:
        modules = list(pool.map(module, [of.candidate(Point(number, (n, *(0 for _ in others)))) for n in chosen]))
    torch.manual_seed(0)
    model, given = loaded.model().cuda().eval(), [x.cuda() for x in loaded.inputs()]
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        exact = copy.deepcopy(model).double()(*(x.double() for x in given))
        allowed = 2.0 * (model(*given) - exact).abs().max() + 1e-6
        for new in modules:
            one = new.ModelNew().cuda().eval()
            one.load_state_dict(model.state_dict())
            assert (one(*given) - exact).abs().max() <= allowed
            assert torch.equal(one(*given), one(*given))
