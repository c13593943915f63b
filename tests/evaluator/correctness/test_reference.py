"""What candidates are measured against is computed in float64, whatever the problem asks for."""

import pytest
import torch
from models import made, source

from kgen.evaluator.correctness.reference import Reference, _Rounding

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


@pytest.mark.parametrize("tf32, least, most", [([True], 2**-14, 2**-11), ([False], 2**-26, 2**-22), (None, 2**-14, 2**-11)])
def test_operands_of_convolutions_are_rounded_to_tf32_where_cudnn_does_so(
    tf32: list[bool] | None, least: float, most: float
) -> None:
    torch.manual_seed(0)
    x, w = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 16, 9, 9), (8, 16, 3, 3)))
    exact = torch.conv2d(x, w)
    with _Rounding(torch.Generator().manual_seed(1), torch.float32, tf32=tf32):
        noisy = torch.conv2d(x, w)
    assert least < float((noisy - exact).square().mean().sqrt() / exact.square().mean().sqrt()) < most


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


def test_of_two_equal_numbers_each_comes_first_in_one_of_two_noisy_runs() -> None:
    """With three runs of an order that is drawn, one pair in eight would come as it does without noise each time."""
    forward = "return torch.topk(x, 8, dim=1)[1]"
    inputs = "torch.arange(32.0).repeat_interleave(2).repeat(200, 1) + 100"
    loaded = made(source(forward, inputs, ""), "eval")
    of = Reference(loaded, "cpu", 5)
    first, second = (of.exact(loaded.inputs(), {}, "eval", 0, noise=True)[0] for _ in range(2))
    assert (first != second).all() and torch.equal(first.sort(1)[0], second.sort(1)[0])


@pytest.mark.parametrize("numbers, in_both", [("1.0, 1.0 + 2.0 ** -23", True), ("1e-40, 2e-40", True), ("1.0, 1.0 + 2.0 ** -20", False)])
def test_numbers_that_float32_hardly_tells_apart_come_in_both_orders_in_noisy_runs(numbers: str, in_both: bool) -> None:
    """A softmax of float32 errs so much, and has zeros where float64 has small numbers."""
    loaded = made(source("return torch.topk(x, 1, dim=1)[1]", f"torch.tensor([{numbers}]).repeat(200, 1)", ""), "eval")
    of = Reference(loaded, "cpu", 5)
    first, second = (of.exact(loaded.inputs(), {}, "eval", 0, noise=True)[0] for _ in range(2))
    assert (int((first != second).sum()) > 60) is in_both


def test_elements_that_are_not_finite_come_in_another_order_in_noisy_runs_and_largest_first() -> None:
    loaded = made(source("return torch.sort(x, dim=1, descending=True)", "torch.randn(4, 40)", ""), "eval")
    of, (x,) = Reference(loaded, "cpu", 5), loaded.inputs()
    x[:, 3:11], x[:, 20:28] = float("nan"), float("inf")
    first, second = (of.exact([x], {}, "eval", 0, noise=True)[0][1] for _ in range(2))
    for of_kind, found in ((range(3, 11), slice(0, 8)), (range(20, 28), slice(8, 16))):
        assert not torch.equal(first[:, found], second[:, found])
        assert {int(i) for i in first[:, found].flatten()} == set(of_kind)
    assert torch.equal(first[:, 16:], second[:, 16:])


#: Norms that subtract a mean: forward and __init__ for inputs of (6, 8, 5, 7), and the dimensions of which each has one.
NORMS = {
    "layer norm": ("return self.norm(x)", "self.norm = nn.LayerNorm((5, 7))", (2, 3)),
    "layer norm without weights": ("return F.layer_norm(x, (7,))", "", (3,)),
    "group norm": ("return self.norm(x)", "self.norm = nn.GroupNorm(8, 8)", (2, 3)),
    "instance norm": ("return self.norm(x)", "self.norm = nn.InstanceNorm2d(8)", (2, 3)),
    "batch norm": ("return self.norm(x)", "self.norm = nn.BatchNorm2d(8)", (0, 2, 3)),
}


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", NORMS)
def test_a_mean_that_a_norm_subtracts_is_rounded_in_noisy_runs(name: str, mode: str) -> None:
    """All elements behind one mean have the same error then, which is that of the mean: some 100 standard deviations."""
    forward, init, dims = NORMS[name]
    loaded = made(source(forward, "torch.randn(6, 8, 5, 7) + 100", init), mode)
    of, inputs = Reference(loaded, "cpu", 5), loaded.inputs()
    state = of.single.state_dict()
    if name == "batch norm":
        state["norm.running_mean"] += 100
    exact, _ = of.exact(inputs, state, mode, 0)
    noisy, _ = of.exact(inputs, state, mode, 0, noise=True)
    error = noisy - exact
    shared = error.mean(dims, keepdim=True)
    assert 10 * 2**-23 < float(shared.abs().max()) < 1000 * 2**-23
    assert float((error - shared).abs().max()) < 8 * 2**-23


def test_attention_to_nothing_is_nan_in_a_bare_run_alone() -> None:
    forward = "return F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask)"
    init = "self.register_buffer('mask', torch.arange(40).view(40, 1) != 7)"
    loaded = made(source(forward, "torch.randn(2, 3, 40, 16)", init), "eval")
    of, inputs = Reference(loaded, "cpu", 5), loaded.inputs()
    state = of.single.state_dict()
    exact, _ = of.exact(inputs, state, "eval", 0)
    assert of.masks and not exact[:, :, 7].any()
    bare, _ = of.exact(inputs, state, "eval", 0, bare=True)
    assert bare[:, :, 7].isnan().all() and torch.equal(bare[:, :, 8:], exact[:, :, 8:])
