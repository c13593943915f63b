"""Half precision on the CPU: a kernel of each schedule with bfloat16 and float16 in memory, against float64 and eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from models import design, made, module, source

from kgen.codegen.registry import templates
from kgen.compiler.graph.dtypes import NARROW
from kgen.devices.hardware import for_arch
from kgen.problems.problem import LoadedProblem, converted, load, read_problem
from kgen.protocol import Accuracy
from kgen.tuning.search import Point

LOOPS = sorted(templates("cpu").keys() - {"contraction", "implicit_gemm", "recurrence", "tiled_attention"})  #: products of half types, and layers, are library calls

#: One output for each schedule, and one for values that a half type cannot hold exactly.
FORWARD = """
a = F.gelu(y) * self.scale + 0.3
b = torch.softmax(self.norm(x), dim=1)
c = self.batch_norm(x)
d = image.sum(1) / 3
e = z.permute(0, 2, 1).relu() * 2
f = F.max_pool2d(image, 3, 2, 1)
g = x.cumsum(1)
j = z.permute(0, 2, 1).reshape(3, -1).relu()
k = y.index_copy(0, (y[:2, 0] * 0).long() + torch.arange(2), y[:2] * 2)
i = F.avg_pool2d(image.permute(0, 3, 1, 2), 3, 2, 1)
h = (x.float() * 1e5).to(x.dtype), (x * 1e-7), x.argmax(1), (x > 0.5).long()
return a, b, c, d, e, f, g, h, i, j, k
"""
INIT = """
self.scale = nn.Parameter(torch.randn(50))
self.norm, self.batch_norm = nn.LayerNorm(96), nn.BatchNorm1d(96)
"""


def problem(dtype: str) -> LoadedProblem:
    text = source(FORWARD, "torch.randn(32, 96), torch.randn(4, 6, 34, 36), torch.randn(40, 50), torch.randn(3, 70, 33)", INIT, "x, image, y, z")
    return made(f'{text}\n\n__dtype__ = "{dtype}"  # kgen converts the model\n', "train")


def leaves(value: Any) -> list[torch.Tensor]:
    return [leaf for x in value for leaf in leaves(x)] if isinstance(value, tuple) else [value]


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The root mean square of the error where ``exact`` is in the dtype's range."""
    limits = torch.finfo(found.dtype)
    held = exact.abs() < limits.max * (1 + limits.eps / 4)  # half a unit in the last place beyond the largest number
    assert bool((found[~held].double() == exact[~held].sign() * float("inf")).all())
    return float((found.double() - exact)[held].square().mean().sqrt())


@pytest.mark.parametrize("dtype", NARROW)
def test_each_schedule_is_as_accurate_as_eager(dtype: str) -> None:
    loaded = problem(dtype)
    of = design(loaded)
    option = next(number for number, o in enumerate(of.options) if all(f"{name}[" in o.name for name in LOOPS))
    candidate = of.candidate(Point(option, (0,) * len(of.options[option].kernels)))
    torch.manual_seed(0)
    model, inputs = loaded.model().train(), loaded.inputs()
    torch.manual_seed(0)
    new = converted(module(candidate).ModelNew(*loaded.init_inputs()), dtype).train()
    double = copy.deepcopy(model).double()
    with torch.no_grad():
        exact = leaves(double(*(x.double() for x in inputs)))
        exact[7] = inputs[0].double() * 1e5  # where forward itself makes float32, and then a half type
        eager, found = leaves(model(*inputs)), leaves(new(*inputs))
    assert [x.dtype for x in found] == [x.dtype for x in eager]
    for mine, theirs, truth in zip(found, eager, exact, strict=True):
        if mine.is_floating_point():
            assert error(mine, truth) <= 1.5 * error(theirs, truth) + 1e-9
        else:
            assert torch.equal(mine, theirs)
    for mine, theirs, truth in zip(new.buffers(), model.buffers(), double.buffers(), strict=True):
        assert mine.dtype == theirs.dtype and (mine.double() - truth).abs().max() <= 1.1 * (theirs.double() - truth).abs().max()


@pytest.mark.parametrize("dtype", NARROW)
def test_a_module_of_two_dtypes_is_as_accurate_as_eager(dtype: str) -> None:
    forward = """
    y = self.n(x.float()).to(x.dtype) * self.s
    return F.softmax(y, 1, dtype=torch.float32).to(x.dtype), y.float().cumsum(1), y.sum(0) + x.float().amax(0)
    """
    init = f"self.n, self.s = nn.LayerNorm(96), nn.Parameter(torch.randn(96, dtype=torch.{dtype}))"
    loaded = made(source(forward, f"torch.randn(32, 96, dtype=torch.{dtype})", init), "train")
    of = design(loaded)
    candidate = of.candidate(Point(0, (0,) * len(of.options[0].kernels)))
    torch.manual_seed(0)
    model, (x,) = loaded.model().train(), loaded.inputs()
    torch.manual_seed(0)
    new = module(candidate).ModelNew(*loaded.init_inputs()).train()
    double = copy.deepcopy(model).double()
    with torch.no_grad():
        scaled = double.n(x.double()) * double.s
        exact = [torch.softmax(scaled, 1), scaled.cumsum(1), scaled.sum(0) + x.double().amax(0)]
        eager, found = leaves(model(x)), leaves(new(x))
    assert {kernel.dtype for kernel in new.parameters()} == {torch.float32, getattr(torch, dtype)}
    for mine, theirs, truth in zip(found, eager, exact, strict=True):
        assert mine.dtype == theirs.dtype and error(mine, truth) <= 1.1 * error(theirs, truth)


def test_baselines_are_of_the_problem_s_dtype() -> None:
    model = load(problem("bfloat16").problem).model()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_attention_of_half_types_is_left_to_the_library_where_it_is_not_one_kernel() -> None:
    text = source("return F.scaled_dot_product_attention(x, x, x, is_causal=True).relu()", "torch.randn(2, 4, 64, 64)")
    loaded = made(f'{text}\n\n__dtype__ = "bfloat16"  # kgen converts the model\n')
    assert all("scaled_dot_product_attention(library)" in o.name or not o.kernels for o in design(loaded, for_arch("sm_80"), Accuracy.PYTORCH).options)
    assert design(loaded, for_arch("sm_90"), Accuracy.PYTORCH).options[0].name.startswith("tiled_attention[")


def test_dtype_is_a_part_of_the_identity_and_float32_keeps_its_own() -> None:
    plain, half = (read_problem("linear_gelu_softmax", {}, "eval", dtype) for dtype in (None, "bfloat16"))
    assert read_problem("linear_gelu_softmax", {}, "eval", "float32").id == plain.id != half.id
    assert (plain.dtype, half.dtype, half.title) == (None, "bfloat16", "linear_gelu_softmax(dtype='bfloat16')")
