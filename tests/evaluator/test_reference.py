"""What candidates are measured against is computed in float64, whatever the problem asks for."""

import pytest
import torch
from models import made, source

from kgen.evaluator.reference import Reference

#: Problems whose parts are float32 by name, of less precision, or by operators that may draw random numbers: forward,
#: __init__, inputs.
ASKING = {
    "attention": ("return F.scaled_dot_product_attention(x, x, x)", "", "torch.randn(2, 3, 40, 16)"),
    "attention with a mask": (
        "return F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)",
        "self.register_buffer('mask', torch.rand(40, 40) > 0.3)", "torch.randn(2, 3, 40, 16)"),
    "float32 by name": (
        "return F.layer_norm(x.float(), (64,)).type_as(x) + torch.ones(64, dtype=torch.float32)", "", "torch.randn(9, 64)"),
    "a tensor in a list": ("return x * self.kept[0]", "self.kept = [torch.rand(64)]", "torch.randn(9, 64)"),
    "a complex parameter": (
        "return torch.fft.irfft(torch.fft.rfft(x) * self.w)",
        "self.w = nn.Parameter(torch.randn(33, dtype=torch.cfloat))", "torch.randn(9, 64)"),
    "dropout that drops nothing": ("return F.dropout(torch.tanh(x), 0.3, self.training)", "", "torch.randn(9, 64)"),
}  # fmt: skip


def reference(name: str) -> tuple[Reference, list[torch.Tensor]]:
    forward, init, inputs = ASKING[name]
    loaded = made(source(forward, inputs, init), "eval")
    torch.manual_seed(0)
    return Reference(loaded, "cpu", 5), loaded.inputs()


@pytest.mark.parametrize("name", ASKING)
def test_nothing_is_rounded_to_float32(name: str) -> None:
    of, inputs = reference(name)
    state = of.single.state_dict()
    eager, _ = of.eager(inputs, state, "eval", 0)
    exact, _ = of.exact(inputs, state, "eval", 0)
    rounded = exact.float().double()
    assert exact.dtype == torch.float64 and (exact != rounded).any()
    assert 0 < (exact - eager.double()).abs().max() < 1e-4


@pytest.mark.parametrize("name", ["attention", "attention with a mask"])
def test_roundings_show_inside_attention(name: str) -> None:
    of, inputs = reference(name)
    state = of.single.state_dict()
    exact, _ = of.exact(inputs, state, "eval", 0)
    noisy, _ = of.exact(inputs, state, "eval", 0, noise=True)
    assert float(((noisy - exact) / exact).abs().max()) > 1.5 * 2**-23  # more than one rounding behind it


def test_equal_elements_come_in_another_order_in_noisy_runs() -> None:
    forward, inputs = "return torch.topk(x.relu(), 8, dim=1)", "torch.randn(9, 64) - 9"
    loaded = made(source(forward, inputs, ""), "eval")
    of = Reference(loaded, "cpu", 5)
    runs = [of.exact(loaded.inputs(), of.single.state_dict(), "eval", 0, noise=True)[0][1] for _ in range(2)]
    assert not torch.equal(*runs)
