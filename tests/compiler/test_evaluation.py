"""Lowering, by evaluation in float64: each kernel's program computes what PyTorch does, without a compiler."""

from __future__ import annotations

import inspect
import math
from functools import cache

import pytest
import torch
import torch.utils._pytree as pytree
from evaluated import run
from forwards import CASES, problem
from models import graph, made, source
from windows_and_scans import CASES as WINDOWS_AND_SCANS, INPUTS

from kgen.codegen.registry import templates
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.loops.evaluation import value_of
from kgen.compiler.loops.functions import FUNCTIONS
from kgen.compiler.operators.op import LOWERED
from kgen.compiler.operators.table import OPS
from kgen.problems.problem import LoadedProblem

MOST_PLANS = 8  #: of each forward

#: Contractions and reductions behind and in front of others, by the inputs that they take.
FORWARDS = {
    "linear": ("return F.gelu(self.linear(x)), self.linear(x).softmax(1)", "torch.randn(6, 20)", "self.linear = nn.Linear(20, 24)"),
    "matmul": ("return (x @ y).relu(), x.mT @ x.square(), torch.bmm(x, y) * 2", "torch.randn(3, 5, 7), torch.randn(3, 7, 4)", ""),
    "matrices": ("return torch.addmm(b, x, y), torch.mm(x, y).tanh(), torch.mv(x, b)", "torch.randn(5, 7), torch.randn(7, 7), torch.randn(7)", ""),
    "products of several": ("return torch.einsum('bhld,bhsd,bhls,bhsp->bhlp', x, y, x @ y.mT, y[..., :3]), torch.einsum('bhld,de,bhle->bhl', x, x[0, 0].mT @ x[0, 0], x), "
                            "torch.einsum('...d,de', x, x[0, 0].mT @ x[0, 0]), torch.einsum('bhld,bhsd->bhs', x, y)", "torch.randn(3, 2, 5, 7), torch.randn(3, 2, 4, 7)", ""),
    "weights that are unpacked": ("w = (self.packed[:, None] >> self.shift[:, None]) & 15\nreturn x @ ((w.flatten(0, 1) - self.zero).to(x.dtype) * self.scale), x * self.scale.exp(), F.linear(x, self.bytes.to(x.dtype) * self.scale[0])",
                                  "torch.randn(6, 32)", "self.register_buffer('packed', torch.randint(-2 ** 31, 2 ** 31 - 1, (4, 32)).to(torch.int32))\n"
                                  "self.register_buffer('shift', torch.arange(0, 32, 4, dtype=torch.int32))\nself.register_buffer('zero', torch.randint(0, 16, (32,)))\n"
                                  "self.register_buffer('bytes', torch.randint(-128, 128, (32, 32), dtype=torch.int8))\nself.scale = nn.Parameter(torch.rand(32) + 0.5)"),
    "convolution": ("return self.conv(x.relu()).relu(), F.max_pool2d(self.conv(x).tanh(), 2)", "torch.randn(2, 3, 8, 10)", "self.conv = nn.Conv2d(3, 32, 3, padding=1)"),
    "convolution, channels reduced": ("return self.conv(x).softmax(1), self.conv(x).mean((2, 3))", "torch.randn(2, 3, 8, 10)", "self.conv = nn.Conv2d(3, 32, 3, stride=2)"),
    "transposed convolution": ("return self.conv(x).sigmoid()", "torch.randn(2, 3, 5, 6)", "self.conv = nn.ConvTranspose2d(3, 32, 3, 2, 1, 1)"),
    "lines and volumes": ("return self.one(x).relu(), self.three(y) * 2", "torch.randn(2, 3, 9), torch.randn(2, 3, 4, 5, 6)", "self.one = nn.Conv1d(3, 32, 3, dilation=2)\nself.three = nn.Conv3d(3, 32, 2)"),
    "affine norms": ("return self.layer(x), self.group(x.unflatten(1, (4, 5))), F.rms_norm(x, (20,))", "torch.randn(6, 20)", "self.layer = nn.LayerNorm(20)\nself.group = nn.GroupNorm(2, 4)"),
    "batch norm": ("return self.norm(x).relu()", "torch.randn(6, 20)", "self.norm = nn.BatchNorm1d(20)\nself.norm.running_var += 1"),
    "rows": ("return x.softmax(1), x.log_softmax(1), x.logsumexp(1), x.sum(1), x.mean(1), x.amax(1), x.amin(1), x.prod(1), x.argmax(1), x.argmin(1)", "torch.randn(6, 20)", ""),
    "columns and all": ("return x.sum(0), x.softmax(0), x.mean(), x.argmax(), x.std()", "torch.randn(6, 20)", ""),
    "more activations": ("return F.leaky_relu(x, 0.1), F.elu(x, 0.7), F.selu(x), F.silu(x), F.mish(x), F.softplus(x, 2.0), F.hardswish(x), F.hardsigmoid(x), "
                    "F.logsigmoid(x), F.relu6(x), F.threshold(x, 0.1, 2.0), F.gelu(x, approximate='tanh'), F.hardtanh(x - 0.5), x.sqrt(), x.rsqrt(), x.log1p(), x.expm1(), x.erf()",
                    "torch.rand(6, 20)", ""),
    "more of one kind": ("return torch.add(x, y, alpha=2), x.sin(), torch.fmin(x, y), torch.logical_or(x > 0, y > 0), torch.logical_xor(x > 0, y > 0), torch.clamp(x, max=y), ~i",
                         "torch.randn(6, 20), torch.randn(6, 20), torch.randint(0, 9, (6, 20))", ""),
    "windows of one and three dimensions": ("return F.adaptive_avg_pool1d(x, 3) * 2, F.adaptive_avg_pool3d(y, (2, 2, 3)), F.interpolate(y, scale_factor=2)",
                                            "torch.randn(2, 3, 9), torch.randn(2, 3, 4, 4, 6)", ""),
    "a vector": ("return torch.mv(x, y) * 2", "torch.randn(6, 20), torch.randn(20)", ""),
    "transposed lines and volumes": ("return self.one(x).relu(), self.three(y).relu()", "torch.randn(2, 4, 9), torch.randn(2, 4, 4, 5, 6)",
                                     "self.one = nn.ConvTranspose1d(4, 32, 3, 2)\nself.three = nn.ConvTranspose3d(4, 32, 2, 2)"),
    "root mean square": ("return F.rms_norm(x, (20,), self.weight, 1e-5)", "torch.randn(6, 20)", "self.weight = nn.Parameter(torch.rand(20))"),
    "few long rows": ("return x.softmax(1), x.log_softmax(1), F.layer_norm(x, (70000,), self.weight, self.bias)", "torch.randn(2, 70000)",
                      "self.weight, self.bias = nn.Parameter(torch.rand(70000)), nn.Parameter(torch.rand(70000))"),
    "a linear layer, summed": ("return self.linear(x).sum(1, keepdim=True), self.linear(x).mean(1)", "torch.randn(64, 20)", "self.linear = nn.Linear(20, 24)"),
    "images of a batch norm": ("return self.norm(self.conv(x)).relu(), self.norm(self.conv(x)).mean((2, 3))", "torch.randn(2, 3, 8, 10)",
                               "self.conv = nn.Conv2d(3, 32, 3)\nself.norm = nn.BatchNorm2d(32)"),
    "groups of channels": ("return F.group_norm(self.conv(x), 4)", "torch.randn(2, 3, 8, 10)", "self.conv = nn.Conv2d(3, 32, 3)"),
    "causal attention": ("return F.scaled_dot_product_attention(x, y, b, is_causal=True, scale=0.3)",
                         "torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 4)", ""),
    "attention under a mask": ("some = (b > 0) & (torch.arange(5) > 0)[:, None]  # the first row has none\n"
                               "return F.scaled_dot_product_attention(x, y, y, attn_mask=some, enable_gqa=True)",
                               "torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 8), torch.randn(5, 5)", ""),
    "an LSTM as a wave": ("o, (h, c) = self.lstm(x, (y, b))\nreturn o[:, -1], h, c", "torch.randn(3, 5, 6), torch.randn(2, 3, 8), torch.randn(2, 3, 8)",
                          "self.lstm = nn.LSTM(6, 8, 2, batch_first=True)"),
    "a GRU in both directions": ("return self.gru(x, y)", "torch.randn(5, 3, 6), torch.randn(4, 3, 8)", "self.gru = nn.GRU(6, 8, 2, bidirectional=True)"),
    "plain recurrent layers": ("return self.tanh(x)[0], self.relu(x)[1]", "torch.randn(5, 3, 6)",
                               "self.tanh = nn.RNN(6, 8, bidirectional=True)\nself.relu = nn.RNN(6, 8, nonlinearity='relu', bias=False)"),
    "a gated scan": ("h, o = y, []\nfor t in range(9):\n    h = b[:, t] * h + x[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)", "torch.randn(3, 9, 8), torch.randn(3, 8), torch.randn(3, 9, 8)", ""),
    "pairs of a few rows of a table": ("e = self.w[x]\nreturn (torch.bmm(e, e.mT) + 1.0)[:, self.a, self.b]", "torch.randint(0, 9, (64, 5))",
                                       "self.w = nn.Parameter(torch.randn(9, 8))\nself.register_buffer('a', torch.tensor([1, 4, 4]))\nself.register_buffer('b', torch.tensor([0, 2, 4]))"),
    "small matrices that lie the other way": ("return (x.exp().mT @ y)[:, self.a], torch.bmm(x.mT, y.sin())", "torch.randn(64, 8, 5), torch.randn(64, 8, 6)", "self.register_buffer('a', torch.tensor([1, 4, 4]))"),
    "a spread of groups": ("y = self.linear(x)\nreturn y.unflatten(1, (6, 4)).amax(2), F.group_norm(y, 6)", "torch.randn(8, 20)", "self.linear = nn.Linear(20, 24)"),
}  # fmt: skip


def forward(case: str) -> LoadedProblem:
    if case in CASES:
        return problem(case)
    if case in WINDOWS_AND_SCANS:
        call, name = WINDOWS_AND_SCANS[case]
        of, _, given = call.partition(")(")
        module = call.startswith("nn.")
        return made(source(f"return self.m({given}" if module else f"return {call}", INPUTS[name], f"self.m = {of})" if module else "", name))
    text, inputs, init = FORWARDS[case]
    mode = "train" if "batch norm" in case else "eval"
    return made(source(text, inputs, init, ", ".join(("xyi" if "randint" in inputs else "xyb")[: inputs.count("torch.")])), mode)


@cache
def found(case: str) -> tuple[FusionPlan, ...]:
    """Plans of a case: each has a kernel that no plan before it has."""
    some: list[FusionPlan] = []
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for plan in plans(graph(forward(case)), tuple(templates("cuda").values())):
        kernels = {(kernel.schedule, tuple(plan.graph.node(name).op for name in kernel.nodes)) for kernel in plan.kernels}
        if not kernels <= seen and len(some) < MOST_PLANS:
            some.append(plan)
            seen |= kernels
    return tuple(some)


#: Forwards whose operators and schedules all stand in others, too. Kernels of each run on the CPU in the tests of templates.
RARE = (
    "comparisons", "choices", "masks as factors", "integers that become floats", "conversions", "buckets", "any and all", "positions",
    "small integers, reduced", "activations", "gates", "not a number, in place", "a list of one", "written in parts", "triangles", "concatenated",
    "padded around", "in another order", "parts", "bilinear", "sampled", "sampled at the nearest", "sampled in cubes", "embedding", "bags",
    "gathered", "selected", "taken along", "indexed", "indexed twice", "one of many", "of few, not numbers", "of few, reduced again", "cross entropy",
    "differences", "divergence", "margins", "instance norm", "moments", "norms of vectors", "max 1d", "max 2d of one image", "mean 2d",
    "mean 2d in ceil mode", "mean 2d of inner elements", "mean 2d with a divisor", "depthwise 2d", "depthwise 2d, two outputs to a channel",
    "groups of two channels", "depthwise 2d to one pixel", "mean 2d of one pixel", "sum along rows", "sum between maps", "sum along an outer axis",
    "sum from the end", "sum from the end of an outer axis", "sum of what stands before", "sum of what stands before, behind the sum",
    "sum of integers", "masked sum",
)  # fmt: skip
ALWAYS = [case for case in (*CASES, *WINDOWS_AND_SCANS, *FORWARDS) if case not in RARE]


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("case", [*ALWAYS, *(pytest.param(case, marks=pytest.mark.exhaustive) for case in RARE)])
def test_programs_compute_what_pytorch_does(case: str) -> None:
    loaded = forward(case)
    torch.manual_seed(0)
    module, inputs = loaded.model().train(loaded.problem.mode == "train"), loaded.inputs()
    exact = [v.double() if v.is_floating_point() else v for v in inputs]
    with torch.no_grad():
        expected = pytree.tree_leaves(module.double()(*exact))
        some = found(case)
        names = inspect.signature(module.forward).parameters
        assert some
        for plan in some:
            for got, truth in zip(run(plan, module, dict(zip(names, exact))), expected, strict=True):
                torch.testing.assert_close(got.to(truth.dtype), truth, rtol=1e-6, atol=1e-6, equal_nan=True, msg=lambda m: f"{plan.name}: {m}")


def test_a_division_downwards_is_exact_at_every_edge() -> None:
    numbers = [0.0, -0.0, 1.0, -1.0, 0.1, -0.3, 0.3, 7.0, 1e30, -1e30, 1e-30, -1e-30, math.inf, -math.inf, math.nan]
    x, y = torch.cartesian_prod(torch.tensor(numbers), torch.tensor(numbers)).double().unbind(1)
    torch.testing.assert_close(value_of(FUNCTIONS["floor_divide"].body, [x, y]), torch.div(x, y, rounding_mode="floor"), rtol=0, atol=0, equal_nan=True)


def test_every_operator_that_is_lowered_is_evaluated() -> None:
    """A vector as the right operand is no matrix: a kernel takes its product by a sum."""
    reached = {plan.graph.node(n).op for case in ALWAYS for plan in found(case) for k in plan.kernels for n in k.nodes}
    assert {op.name for op in OPS.values() if op.kind in LOWERED} - reached == {"mv"}
