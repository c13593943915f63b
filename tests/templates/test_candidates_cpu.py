"""Real candidates on the CPU: their values against float64, their numerics against eager's, and ModelNew's contract."""

from __future__ import annotations

import copy
import importlib.util
import io
import itertools
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from models import NAMES, candidate, captured, design, made, module, plainest, reference, source
from torch import nn
from torch.nn.utils import parametrize

from kgen.candidate import Candidate
from kgen.codegen.registry import templates
from kgen.compiler.fusion.fusion import plans
from kgen.problems.problem import LoadedProblem
from kgen.tuning import prediction
from kgen.tuning.search import Point

CPU_TEMPLATES = tuple(templates("cpu").values())


@pytest.fixture(scope="module", autouse=True)
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder for all builds of this file, so that a kernel that occurs again is built once."""
    folder = tmp_path_factory.mktemp("builds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(folder))
        yield folder


def built(candidates: Sequence[Candidate]) -> list[types.ModuleType]:
    """The candidates' modules, two builds at a time.

    Candidates may hold the same kernels. Each kernel's file is built once before the others load it: two threads of one
    process that write and compile the same file give PyTorch's loader a version that nobody builds.
    """
    once = list({c.id: c for c in candidates}.values())
    one_of_each_build = {re.search(r"^NAME = .*$|\Z", c.source, re.MULTILINE)[0]: c for c in once}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(module, one_of_each_build.values()))
        return list(pool.map(module, once))


def constructed(loaded: LoadedProblem, make: Callable[..., Any], training: bool) -> Any:
    torch.manual_seed(0)
    return make(*loaded.init_inputs()).train(training)


def drawn(loaded: LoadedProblem, seed: int = 1) -> list[Any]:
    torch.manual_seed(seed)
    return loaded.inputs()


def resized(inputs: Sequence[Any], rows: int) -> list[Any]:
    """The inputs with another batch."""
    torch.manual_seed(rows)
    batch = next(x.shape[0] for x in inputs if isinstance(x, torch.Tensor) and x.dim())
    return [
        torch.randn(rows, *x.shape[1:]) if isinstance(x, torch.Tensor) and x.dim() and x.shape[0] == batch else x
        for x in inputs
    ]


def flat(output: Any) -> list[Any]:
    return pytree.tree_flatten(output)[0]


def call(model: Any, inputs: Sequence[Any]) -> list[Any]:
    with torch.no_grad():
        return flat(model(*[x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]))


def laid_out(x: torch.Tensor) -> list[int]:
    """The strides of dimensions of more than one element."""
    return [stride for size, stride in zip(x.shape, x.stride()) if size > 1 and x.numel()]


def assert_as_accurate_as_eager(model: nn.Module, new: nn.Module, inputs: Sequence[Any]) -> None:
    """Outputs and buffers of ``new`` are as near to those in float64 as eager's are, within rounding. Changes neither."""
    exact, eager, new = copy.deepcopy(model).double(), copy.deepcopy(model), copy.deepcopy(new)
    wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    found = [call(m, given) for m, given in ((exact, wide), (eager, inputs), (new, inputs))]
    found = [[*outputs, *m.buffers()] for outputs, m in zip(found, (exact, eager, new))]
    for want, have, got in zip(*found, strict=True):
        if not isinstance(want, torch.Tensor):
            assert have == got
            continue
        assert got.shape == have.shape and got.dtype == have.dtype and laid_out(got) == laid_out(have)
        if not want.is_floating_point():
            assert torch.equal(have, got)
        elif want.numel():
            allowed = 2 * (have - want).abs().max() + 1e-6 * want.abs().max() + 1e-30
            assert (got - want).abs().max() <= allowed


def assert_right(
    loaded: LoadedProblem, candidates: Sequence[Candidate], mode: str, batches: Sequence[int] = (13, 1)
) -> None:
    training = mode == "train"
    model = constructed(loaded, loaded.model_class, training)
    for file in built(candidates):
        new = constructed(loaded, file.ModelNew, training)
        assert_as_accurate_as_eager(model, new, drawn(loaded))
        for rows in batches:
            assert_as_accurate_as_eager(model, new, resized(drawn(loaded), rows))


def fixed(loaded: LoadedProblem) -> bool:
    """Whether the problem is for one batch size."""
    return captured(loaded).graphs[0][1].batch_input is None


# Forms of forward: forward, inputs, __init__ and the parameters of forward

FORMS = {
    "names of the file": ("return F.relu(check) * run + torch.tanh(launch)", "torch.randn(6, 20), torch.randn(20), torch.randn(6, 20)", "",
                          "check, run, launch"),
    "names that differ in case": ("return torch.exp(a) * A", "torch.randn(6, 20), torch.randn(6, 20)", "", "A, a"),
    "a list and a dict": ("return torch.exp(xs[0]) + more['y']", "[torch.randn(6, 20)], {'y': torch.randn(6, 20)}", "", "xs, more"),
    "any number of arguments": ("return torch.exp(xs[0]) * xs[1]", "torch.randn(6, 20), torch.randn(6, 1)", "", "*xs"),
    "an input without dimensions": ("return torch.exp(x) * y", "torch.randn(6, 20), torch.tensor(1.5)", "", "x, y"),
    "a constant number": ("return torch.maximum(torch.exp(x), torch.tensor(0.5)) * torch.tensor(3)", "torch.randn(6, 20)", "", "x"),
    "a constant vector": ("return torch.exp(x) * torch.tensor([0.5, -2.0] * 10)", "torch.randn(6, 20)", "", "x"),
    "tensors in a list": ("return torch.exp(x) * self.scales[1]", "torch.randn(6, 20)", "self.scales = [torch.ones(20), torch.arange(20.0)]", "x"),
    "a write into a view": ("y = torch.exp(x)\ny[:, 3] = 0.0\nreturn torch.tanh(y) + 1.0", "torch.randn(6, 20)", "", "x"),
    "layers with numbers": ("return self.layers(x)", "torch.randn(6, 20)", "self.layers = nn.Sequential(nn.Linear(20, 8), nn.Dropout(0.0), nn.GELU())", "x"),
    "a dict of scalars": ("y = torch.exp(x)\nreturn {'y': y * 2.0, 'rows': x.shape[0], 'mean': y.mean()}", "torch.randn(6, 20)", "", "x"),
}  # fmt: skip


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("form", FORMS)
def test_kernels_are_right_in_every_form_of_forward(form: str) -> None:
    loaded = made(source(*FORMS[form]))
    (found,) = plainest(design(loaded), 1)
    assert found.kernels
    assert_right(loaded, [found], "eval", ())


# The reference problems


#: Each problem in the mode that it is made for; the other mode is exhaustive.
_OF_MODES = [(name, mode) for name in NAMES for mode in ("train", "eval")]
_ALWAYS = {(NAMES[0], "eval"), (NAMES[1], "train"), (NAMES[2], "eval"), (NAMES[3], "train")}


@pytest.mark.usefixtures("optimised_builds")
@pytest.mark.parametrize(("name", "mode"), [pytest.param(*one, marks=[] if one in _ALWAYS else [pytest.mark.exhaustive]) for one in _OF_MODES])
def test_first_plans_of_the_reference_problems_are_right(name: str, mode: str) -> None:
    loaded = reference(name, mode)
    found = plainest(design(loaded))
    assert_right(loaded, [*found[:3], found[-1]], mode, batches=(13, 200))


@pytest.mark.usefixtures("optimised_builds")
@pytest.mark.parametrize(
    ("name", "mode"),
    [(NAMES[0], "eval"), (NAMES[1], "train"), *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in ((NAMES[2], "eval"), (NAMES[3], "train")))],
)
def test_covering_sets_of_the_spaces_are_right(name: str, mode: str) -> None:
    """Each value of each parameter of the schedules in the first two plans."""
    loaded = reference(name, mode, out_features="600", batch_size="64")
    of = design(loaded)
    found, seen = [], set()
    for number, option in enumerate(of.options[:2]):
        ((_, plan),) = of.choices[number].plans
        new: list[list[int]] = [[] for _ in option.kernels]  # for each kernel, its points with values that no earlier one has
        for at, space in enumerate(of.choices[number].spaces):
            for params in space.covering_set():
                values = {(plan.kernels[at].schedule, *item) for item in params.items()}
                if not values <= seen:
                    seen |= values
                    new[at].append(option.kernels[at].index(params))
        found += [of.candidate(Point(number, choice)) for choice in itertools.zip_longest(*new, fillvalue=0)]
    assert_right(loaded, found, mode, batches=(7,))


# Models that nobody has seen

#: forward, __init__, inputs, arguments.
UNSEEN = {
    "layer norm, gelu": ("return F.gelu(self.norm(self.linear(x)))", "self.linear = nn.Linear(12, 20)\nself.norm = nn.LayerNorm(20)", "torch.randn(6, 12)", "x"),
    "layer norm over two dimensions": ("return self.norm(x) * y", "self.norm = nn.LayerNorm((5, 8))\nself.norm.weight.data.normal_()", "torch.randn(3, 5, 8), torch.randn(3, 1, 1)", "x, y"),
    "rms norm, silu, residual": ("return F.silu(self.norm(x)) + y", "self.norm = nn.RMSNorm(20, eps=1e-6)\nself.norm.weight.data.normal_()", "torch.randn(6, 20), torch.randn(6, 20)", "x, y"),
    "log softmax of sequences": ("return F.log_softmax(self.linear(x), dim=-1)", "self.linear = nn.Linear(12, 20)", "torch.randn(4, 5, 12)", "x"),
    "two kinds of outputs": ("y = torch.tanh(self.linear(x))\nreturn y, y.sum(dim=1), y.mean(dim=1, keepdim=True)", "self.linear = nn.Linear(12, 20)", "torch.randn(6, 12)", "x"),
    "maximum subtracted, sigmoid": ("return torch.sigmoid(x - x.amax(dim=1, keepdim=True))", "", "torch.randn(6, 20)", "x"),
    "minimum, norm": ("return x.amin(dim=1), x / x.norm(dim=1, keepdim=True).clamp(min=1e-6)", "", "torch.randn(6, 20)", "x"),
    "convolution, batch norm, relu": ("return F.relu(self.norm(self.conv(x))) * 0.5", "self.conv = nn.Conv2d(4, 5, 3)\nself.norm = nn.BatchNorm2d(5)\nself.norm.running_mean.normal_()\nself.norm.running_var.uniform_(0.5, 2)", "torch.randn(3, 4, 6, 7)", "x"),
    "channels of images": ("return torch.sigmoid(self.conv(x) + self.b) * self.s", "self.conv = nn.Conv2d(3, 4, 3)\nself.b = nn.Parameter(torch.randn(4, 1, 1))\nself.s = nn.Parameter(torch.randn(1, 4, 1, 1))", "torch.randn(2, 3, 5, 5)", "x"),
    "sorting in the middle": ("v, i = torch.sort(F.relu(x) * 2.0, dim=1)\nreturn torch.softmax(v + 1.0, dim=1), i", "", "torch.randn(6, 20)", "x"),
    "sort and cumsum": ("y = torch.sort(torch.exp(x), dim=1)[0]\nreturn torch.cumsum(y, dim=1) / y.sum(dim=1, keepdim=True)", "", "torch.randn(6, 20)", "x"),
    "transposed in the middle": ("y = torch.tanh(x).t()\nz = F.relu(y)\nreturn torch.softmax(z.t() * 3.0, dim=1)", "", "torch.randn(6, 20)", "x"),
    "contraction of batches": ("return torch.softmax(torch.bmm(x, y) * 0.3, dim=-1)", "", "torch.randn(4, 5, 6), torch.randn(4, 6, 7)", "x, y"),
    "flattened sequences": ("y = self.linear(x.flatten(0, 1)).relu()\nreturn y.view(x.shape[0], 5, 20).softmax(dim=-1)", "self.linear = nn.Linear(12, 20)", "torch.randn(4, 5, 12)", "x"),
    "a view that outlives the contraction": ("y = self.linear(x)\nt = y.view(-1)\nreturn F.gelu(y), t[:3]", "self.linear = nn.Linear(12, 20)", "torch.randn(6, 12)", "x"),
    "stored, then read again": ("h = self.linear(x)\nreturn torch.tanh(h), torch.logsumexp(h * 2.0, dim=1)", "self.linear = nn.Linear(12, 20)", "torch.randn(6, 12)", "x"),
    "captured at a batch of one": ("return torch.softmax(x * self.w, dim=1)", "self.w = nn.Parameter(torch.randn(20))", "torch.randn(1, 20)", "x"),
    "softmax over one column": ("return torch.softmax(x, dim=1) + x.logsumexp(dim=1, keepdim=True)", "", "torch.randn(6, 1)", "x"),
    "broadcast rows and columns": ("return torch.tanh(x + y) * z", "", "torch.randn(6, 20), torch.randn(6, 1), torch.randn(1, 20)", "x, y, z"),
    "operands read crosswise": ("return torch.softmax(x * self.w + self.b, dim=-1)", "self.w = nn.Parameter(torch.randn(4, 1, 6))\nself.b = nn.Parameter(torch.randn(5, 1))", "torch.randn(3, 4, 5, 6)", "x"),
    "sums over two dimensions": ("return torch.relu(x).sum(dim=(2, 3)) * 2.0", "", "torch.randn(3, 4, 5, 6)", "x"),
    "a scalar input": ("return torch.relu(x) * y", "", "torch.randn(6, 20), torch.tensor(2.5)", "x, y"),
    "a dictionary": ("y = torch.tanh(x)\nreturn {'a': y, 'b': [y * 2.0, 3]}", "", "torch.randn(6, 20)", "x"),
    "written in place": ("y = self.linear(x)\ny.relu_()\ny += 1.0\nreturn y * y", "self.linear = nn.Linear(12, 20)", "torch.randn(6, 12)", "x"),
    "a copy of a buffer that changes then": ("y = self.b.clone()\nself.b.add_(1.0)\nreturn torch.tanh(x * y)", "self.register_buffer('b', torch.ones(20))", "torch.randn(6, 20)", "x"),
    "a rotation by complex numbers": ("z = torch.view_as_complex(x.float().reshape(6, 4, 5, 2))\nreturn torch.view_as_real(z * self.turn.view(1, 4, 5)).flatten(2).type_as(x), (z * self.turn[0].conj()).abs()", "self.register_buffer('turn', torch.polar(torch.ones(4, 5), torch.rand(4, 5)))", "torch.randn(6, 4, 10)", "x"),
    "complex numbers flattened": ("z = torch.view_as_complex(x.reshape(6, 5, 2, 2)) * self.w\nreturn torch.view_as_real(z.flatten(1)) * 2.0, torch.view_as_real(z.squeeze(-1).unflatten(-2, (1, 5)).flatten())", "self.w = nn.Parameter(torch.randn(5, 2, dtype=torch.complex64))", "torch.randn(6, 20)", "x"),
    "attention over sequences that come first": ("b, s = x.shape[:2]\nq, k, v = F.linear(x.transpose(0, 1), self.w).chunk(3, -1)\nq, k, v = (y.reshape(s, b * 2, 8).transpose(0, 1).reshape(b, 2, s, 8) for y in (q, k, v))\nreturn F.scaled_dot_product_attention(q, k, v).permute(2, 0, 1, 3).reshape(s, b, 16).transpose(0, 1) + x", "self.w = nn.Parameter(torch.randn(48, 16) * 0.2)", "torch.randn(4, 5, 16)", "x"),
    "attention by hand, and with a diagonal and grouped queries": ("q, k, v = (t.transpose(1, 2) for t in x.view(2, 37, 3, 4, 20).unbind(2))\ns = (q @ k.mT * 0.3).tanh() * 5 - self.s * torch.arange(37).sub(3).abs()\ns = s.masked_fill(torch.arange(37)[:, None] == 2, -torch.inf).masked_fill(self.m, -torch.inf)\nreturn F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2), F.scaled_dot_product_attention(q, k, v, s) * 2 + 1", "self.s = nn.Parameter(torch.rand(4, 1, 1))\nself.register_buffer('m', torch.rand(37, 37) < 0.2)", "torch.randn(2, 37, 240)", "x"),
    "weights of attention over sequences that come first": ("b, s = x.shape[:2]\ny = F.linear(x.transpose(0, 1), self.w).unflatten(-1, (2, 16)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous()\nq, k = (t.view(s, b * 2, 8).transpose(0, 1) for t in (y[0], y[1]))\nreturn torch.bmm(q * 0.3, k.transpose(1, 2)).softmax(-1).view(b, 2, s, s).mean(1)", "self.w = nn.Parameter(torch.randn(32, 16) * 0.2)", "torch.randn(4, 5, 16)", "x"),
    "a sum over a stack": ("return torch.stack([x * y, x - y], -1).sum(-1)", "", "torch.randn(6, 20), torch.randn(6, 20)", "x, y"),
    "one flat vector": ("return torch.exp(x) + x.sum(dim=0)", "", "torch.randn(6)", "x"),
    "many maps": ("y = F.elu(x) + F.selu(x) + F.hardswish(x) + F.hardsigmoid(x) + F.logsigmoid(x) + F.softplus(x)\ny = y + F.leaky_relu(x) + F.mish(x) + F.relu6(x) + F.threshold(x, 0.1, 0.2) + F.gelu(x, approximate='tanh')\nreturn y + torch.maximum(x, y) - torch.minimum(x, y) + x.clamp(min=0.5) + 1.0 - (2.0 - x)", "", "torch.randn(6, 20)", "x"),
    "many functions": ("a = x.abs()\ny = torch.sin(x) + torch.cos(x) + torch.erf(x) + torch.log1p(a) + torch.expm1(x) + x.square() + torch.sqrt(a)\nreturn y + torch.rsqrt(a + 1) + (a + 1) ** 1.5 + torch.log(a + 1) + torch.reciprocal(a + 1) - torch.add(x, a, alpha=2)", "", "torch.randn(6, 20)", "x"),
}  # fmt: skip


#: Those whose operators and forms of plans other ones have, too.
RARELY_UNSEEN = {
    "layer norm over two dimensions", "log softmax of sequences", "two kinds of outputs", "maximum subtracted, sigmoid", "minimum, norm",
    "sort and cumsum", "contraction of batches", "broadcast rows and columns", "sums over two dimensions", "a scalar input", "a dictionary",
    "written in place", "complex numbers flattened", "weights of attention over sequences that come first", "a sum over a stack",
    "channels of images", "one flat vector", "many maps", "many functions",
}  # fmt: skip


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.exhaustive] if case in RARELY_UNSEEN else []) for case in UNSEEN])
def test_plans_of_an_unseen_model_are_right(case: str) -> None:
    forward, init, inputs, arguments = UNSEEN[case]
    loaded = made(source(forward, inputs, init, arguments))
    found = plainest(design(loaded))
    assert_right(loaded, [found[0], found[-2]], "eval", batches=() if fixed(loaded) else (13, 1))


#: With batch norm in train mode.
TRAINED = {
    "a scale called weight": ("return self.norm(x * self.weight)", "self.weight = nn.Parameter(torch.randn(20))\nself.norm = nn.BatchNorm1d(20)"),
    "input of batch norm returned": ("h = x * self.s\nreturn self.norm(h), h", "self.s = nn.Parameter(torch.randn(20))\nself.norm = nn.BatchNorm1d(20)"),
    "no running statistics": ("return torch.relu(self.norm(x))", "self.norm = nn.BatchNorm1d(20, track_running_stats=False)"),
    "no weights": ("return torch.relu(self.norm(x))", "self.norm = nn.BatchNorm1d(20, affine=False)"),
    "batch norm twice": ("return self.other(self.norm(x).relu())", "self.norm = nn.BatchNorm1d(20)\nself.other = nn.BatchNorm1d(20, momentum=0.5)"),
    "the same batch norm twice": ("return self.norm(self.norm(x).relu())", "self.norm = nn.BatchNorm1d(20)"),
    "a large mean": ("return self.norm(x + 1000.0)", "self.norm = nn.BatchNorm1d(20)"),
}  # fmt: skip


#: Those that another one has a part of: statistics without weights, or two norms.
RARELY_TRAINED = {"a scale called weight", "no weights", "batch norm twice"}


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.exhaustive] if case in RARELY_TRAINED else []) for case in TRAINED])
def test_plans_of_an_unseen_model_in_train_mode_are_right(case: str) -> None:
    forward, init = TRAINED[case]
    loaded = made(source(forward, "torch.randn(6, 20)", init), "train")
    found = plainest(design(loaded))
    assert_right(loaded, [*found[:2], found[-1]], "train", batches=(13, 2, 300))


#: Reductions behind a convolution.
BEHIND_CONVOLUTIONS = {
    "batch norm": ("return self.norm(self.conv(x).relu())", "self.norm = nn.BatchNorm2d(6)"),
    "group norm": ("return self.norm(torch.sigmoid(self.conv(x))) * 2.0", "self.norm = nn.GroupNorm(2, 6)"),
    "group norm of a channel": ("return self.norm(self.conv(x)).relu().mean((1, 2, 3))", "self.norm = nn.GroupNorm(6, 6)"),
    "a sum over all": ("return self.conv(x).tanh().sum((1, 2, 3), keepdim=True)", ""),
}  # fmt: skip


@pytest.mark.usefixtures("optimised_builds")
@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.exhaustive] if case == "group norm of a channel" else []) for case in BEHIND_CONVOLUTIONS])
def test_reductions_by_way_of_images_are_right(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "MOST_PLANS", 64)  # other plans are predicted to be faster
    forward, init = BEHIND_CONVOLUTIONS[case]
    loaded = made(source(forward, "torch.randn(4, 3, 7, 8)", f"self.conv = nn.Conv2d(3, 6, 3)\n{init}"), "train")
    of = design(loaded)
    found = [n for n, choice in enumerate(of.choices) if "reduce_images_first" in choice.plans[0][1].rewrites][:2]
    assert found
    assert_right(loaded, [of.candidate(Point(n, (0,) * len(of.options[n].kernels))) for n in found], "train", batches=(5, 1))


@pytest.mark.usefixtures("quick_builds")
def test_operands_in_channels_last_are_right() -> None:
    init = "self.conv = nn.Conv2d(3, 4, 3)\nself.norm = nn.BatchNorm2d(4)"
    loaded = made(source("return F.relu(self.norm(F.relu(self.conv(x))))", "torch.randn(2, 3, 6, 6)", init), "train")
    model = constructed(loaded, loaded.model_class, True)
    x = drawn(loaded)[0].to(memory_format=torch.channels_last)
    found = plainest(design(loaded))
    for file in built([*found[:3], found[-1]]):
        new = constructed(loaded, file.ModelNew, True)
        torch.testing.assert_close(copy.deepcopy(new)(x), copy.deepcopy(model)(x))


#: Outputs that eager stores in another order than that of their dimensions.
ORDERED = {
    "a map of a transpose": ("return torch.sigmoid(x.transpose(1, 2) * 2.0 + 1.0)", "torch.randn(3, 5, 4, 6)", ""),
    "a map that is reduced, too": ("y = torch.exp(x.transpose(1, 2))\nreturn y, y.sum(1)", "torch.randn(3, 5, 7)", ""),
    "a view that gives the order back": ("return F.relu(x.transpose(1, 2)).transpose(1, 2)", "torch.randn(3, 5, 7)", ""),
    "softmax of a transpose": ("return torch.softmax(x.transpose(1, 2), -1)", "torch.randn(3, 5, 7)", ""),
    "a convolution with channels last": (
        "return F.relu(self.c(x.to(memory_format=torch.channels_last)))", "torch.randn(2, 8, 7, 9)", "self.c = nn.Conv2d(8, 8, 3)"),
    "group norm and a pool of channels last": (
        "return F.group_norm(x, 2), F.max_pool2d(x, 2)", "torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last)", ""),
    "a product plus one, transposed": ("return (x.mT @ x).mT + 1.0", "torch.randn(3, 5, 7)", ""),
}  # fmt: skip


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("case", ORDERED)
def test_outputs_have_the_strides_of_eagers(case: str) -> None:
    forward, inputs, init = ORDERED[case]
    loaded = made(source(forward, inputs, init))
    batches = () if "memory_format" in inputs else (13,)  # of another batch, inputs are drawn in their own order
    assert_right(loaded, plainest(design(loaded), 3), "eval", batches)


# Numerics

INF, NAN = float("inf"), float("nan")


def rows_of_specials(columns: int = 21) -> torch.Tensor:
    """Rows with one special value, with two, of nothing else, of large and of tiny values."""
    torch.manual_seed(0)
    x = torch.randn(16, columns)
    x[0, 3] = NAN
    x[1, 3] = INF
    x[2, 3] = -INF
    x[3, 3], x[3, 4] = INF, -INF
    x[4, 3], x[4, 4] = INF, NAN
    x[5] = INF
    x[6] = -INF
    x[7] = NAN
    x[8] *= 1e30
    x[9] = 3e38
    x[10] = -3e38
    x[11] *= 1e-30
    x[12] = 0.0
    x[13, ::2] = -INF
    x[14] = 88.0
    x[15, -1] = 1e30
    return x


SPECIAL = {
    "softmax": "return torch.softmax(x, dim=1)",
    "log softmax": "return torch.log_softmax(x, dim=1)",
    "logsumexp": "return torch.logsumexp(x, dim=1)",
    "sum and mean": "return x.sum(dim=1), x.mean(dim=1)",
    "largest and smallest": "return x.amax(dim=1), x.amin(dim=1, keepdim=True)",
    "layer norm": "return F.layer_norm(x, (21,))",
    "bounds": "return x.clamp(-1.0, 1.0), x.clamp(min=0.5), x.clamp(max=0.5), F.relu6(x), F.relu(x), F.hardtanh(x)",
    "gelu of tanh": "return F.gelu(x, approximate='tanh')",
    "sigmoids": "return torch.sigmoid(x), F.silu(x), F.logsigmoid(x), torch.tanh(x), F.hardsigmoid(x), F.hardswish(x)",
    "softplus and mish": "return F.softplus(x), F.mish(x), F.elu(x), F.selu(x), F.leaky_relu(x)",
    "exponentials": "return torch.exp(x), torch.expm1(x), torch.log(x), torch.log1p(x), torch.sqrt(x), torch.rsqrt(x)",
    "pairs": "return torch.maximum(x, x.flip(1)), torch.minimum(x, x.flip(1)), x / x.flip(1), x * 2.0",
    "functions": "return torch.erf(x), torch.reciprocal(x), x.square(), -x, x.abs(), 1.0 - x, F.threshold(x, 0.1, 0.2)",
}


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize(
    ("case", "softmax"), [*((case, "online") for case in SPECIAL), *((case, "two_pass") for case in ("softmax", "log softmax", "logsumexp"))]
)
def test_nan_and_infinities_are_where_eager_has_them(case: str, softmax: str) -> None:
    loaded = made(source(SPECIAL[case], "torch.randn(16, 21)"))
    found = captured(loaded)
    plan = plans(found.graphs[0][1], CPU_TEMPLATES)[0]
    of = design(loaded)
    params = [p for p in of.options[0].kernels[0] if p.get("softmax", softmax) == softmax][0]
    lifted = {f"k{n}.{k}": v for n in range(len(plan.kernels)) for k, v in params.items()}
    (file,) = built([candidate(loaded, found, [plan], [lifted])])
    x = rows_of_specials()
    if case == "layer norm":
        x[9:11] = 1.0  # whose sums overflow: eager takes the mean step by step
    for want, got in zip(call(loaded.model(), [x]), call(file.ModelNew(), [x]), strict=True):
        assert torch.equal(want.isnan(), got.isnan()), (want.isnan() != got.isnan()).nonzero()
        assert torch.equal(want.isinf() * want.sign(), got.isinf() * got.sign())
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.usefixtures("quick_builds")
def test_exact_gelu_has_its_limits() -> None:
    loaded = made(source("return F.gelu(x)", "torch.randn(1, 4)"))
    (file,) = built(plainest(design(loaded), 1))
    (got,) = call(file.ModelNew(), [torch.tensor([[INF, NAN, -1e30, 1e30]])])
    torch.testing.assert_close(got, torch.tensor([[INF, NAN, -0.0, 1e30]]), equal_nan=True)


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("columns", [1, 2, 15, 16, 17, 255, 257, 2049])
def test_rows_of_any_length_are_right(columns: int) -> None:
    loaded = made(source("return torch.softmax(x * 2.0, dim=1), x.logsumexp(dim=1)", f"torch.randn(5, {columns})"))
    assert_right(loaded, plainest(design(loaded), 1), "eval")


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize(
    "forward", ["return torch.softmax(x * 2.0, dim=1)", "return torch.exp(x)", "return x.sum(dim=1)"]
)
def test_empty_batch_gives_an_empty_result(forward: str) -> None:
    loaded = made(source(forward))
    (file,) = built(plainest(design(loaded), 1))
    assert call(file.ModelNew(), [torch.zeros(0, 20)])[0].shape == call(loaded.model(), [torch.zeros(0, 20)])[0].shape


@pytest.mark.usefixtures("quick_builds")
def test_batch_norm_of_one_row_raises_as_the_module_does() -> None:
    loaded = made(source("return self.norm(x) * 2.0", init="self.norm = nn.BatchNorm1d(20)"), "train")
    for file in built(plainest(design(loaded))):
        new = constructed(loaded, file.ModelNew, True)
        with pytest.raises(ValueError, match="more than (1|one) value per channel"):
            new(torch.zeros(1, 20))


# The contract of ModelNew


@lru_cache(maxsize=None)
def chosen(name: str, mode: str, part: str) -> types.ModuleType:
    """The file of a reference problem's first plan whose name holds ``part``."""
    of = design(reference(name, mode))
    number = next(n for n, o in enumerate(of.options) if part in o.name)
    return built([of.candidate(Point(number, (0,) * len(of.options[number].kernels)))])[0]


def made_new(name: str, mode: str, part: str) -> tuple[LoadedProblem, Any, Any]:
    """A reference problem's model and a candidate's, from the same seed."""
    loaded = reference(name, mode)
    file = chosen(name, mode, part)
    training = mode == "train"
    return loaded, constructed(loaded, loaded.model_class, training), constructed(loaded, file.ModelNew, training)


FUSED = (NAMES[0], "eval", "inner_reduction[gelu, softmax]")
FOLDED = (NAMES[1], "eval", "fold_batchnorm_into_linear")
TRAIN = (NAMES[1], "train", "outer_reduction[")


@pytest.fixture(params=[FUSED, FOLDED, TRAIN], ids=["fused", "folded", "train"])
def trio(request: pytest.FixtureRequest) -> tuple[LoadedProblem, Any, Any]:
    return made_new(*request.param)


def assert_same_output(loaded: LoadedProblem, model: nn.Module, new: nn.Module) -> None:
    inputs = drawn(loaded)
    torch.testing.assert_close(call(copy.deepcopy(new), inputs), call(copy.deepcopy(model), inputs))


def test_same_seed_gives_the_same_weights(trio: tuple[LoadedProblem, Any, Any]) -> None:
    _, model, new = trio
    assert list(model.state_dict()) == list(new.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), new.state_dict().values()))


def test_state_dict_loads_both_ways(trio: tuple[LoadedProblem, Any, Any]) -> None:
    loaded, model, new = trio
    call(new, drawn(loaded))  # what is prepared from weights is not in the state dict
    for p in model.parameters():
        nn.init.normal_(p)
    new.load_state_dict(model.state_dict())
    assert_same_output(loaded, model, new)
    other = loaded.model().train(model.training)
    other.load_state_dict(new.state_dict())
    assert_same_output(loaded, other, new)


def test_copy_has_weights_of_its_own(trio: tuple[LoadedProblem, Any, Any]) -> None:
    loaded, model, new = trio
    call(copy.deepcopy(new), drawn(loaded))
    twin = copy.deepcopy(new)
    for p in twin.parameters():
        nn.init.zeros_(p)
    assert_same_output(loaded, model, new)


def test_pickled_module_comes_back(
    trio: tuple[LoadedProblem, Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, model, _ = trio
    of = design(loaded)
    path = tmp_path / "pickled_candidate.py"
    path.write_text(of.candidate(Point(0, (0,) * len(of.options[0].kernels))).source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    file = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, file)
    spec.loader.exec_module(file)
    new = constructed(loaded, file.ModelNew, model.training)
    call(copy.deepcopy(new), drawn(loaded))
    back = pickle.loads(pickle.dumps(new))
    assert_same_output(loaded, model, back)


def test_what_is_prepared_is_neither_pickled_nor_in_the_state_dict() -> None:
    loaded, model, new = made_new(*FOLDED)
    names = list(new.state_dict())
    before = len(_saved(new.state_dict()))
    call(new, drawn(loaded))
    assert new._prepared is not None and list(new.state_dict()) == names
    assert len(_saved(new.state_dict())) == before
    assert new.__getstate__()["_prepared"] is None and copy.deepcopy(new)._prepared is None


def _saved(state: dict[str, torch.Tensor]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("rows", [1, 2, 5, 64, 1000])
def test_any_batch_size_is_right(rows: int) -> None:
    _, model, new = made_new(*FUSED)
    assert_as_accurate_as_eager(model, new, [torch.randn(rows, 12)])


def strided(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same values laid out in other ways."""
    wide = torch.empty(x.shape[0], 2 * x.shape[1])
    wide[:, ::2] = x
    shifted = torch.empty(x.numel() + 1)[1:].view(x.shape)
    shifted.copy_(x)
    return {
        "transposed": x.t().contiguous().t(),
        "every second": wide[:, ::2],
        "off its alignment": shifted,
        "columns of a wider one": torch.cat([torch.zeros(x.shape[0], 3), x], dim=1)[:, 3:],
    }


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("layout", ["transposed", "every second", "off its alignment", "columns of a wider one"])
@pytest.mark.parametrize("forward", ["return torch.softmax(x * 2.0, dim=1)", "return torch.exp(x) + self.w"])
def test_inputs_of_any_layout_are_right(forward: str, layout: str) -> None:
    loaded = made(source(forward, init="self.w = nn.Parameter(torch.randn(20))"))
    file = built(plainest(design(loaded), 1))[0]
    model, new = (constructed(loaded, make, False) for make in (loaded.model_class, file.ModelNew))
    x = torch.randn(6, 20)
    given = strided(x)[layout]
    assert torch.equal(given, x)
    with torch.no_grad():
        torch.testing.assert_close(new(given), model(x))
    assert torch.equal(given, x)


def test_expanded_input_is_right() -> None:
    _, model, new = made_new(*FUSED)
    x = torch.randn(1, 12).expand(6, 12)
    with torch.no_grad():
        torch.testing.assert_close(new(x), model(x))


@pytest.mark.usefixtures("quick_builds")
def test_weights_of_any_layout_are_right() -> None:
    loaded = made(source("return torch.exp(x) + self.w", init="self.w = nn.Parameter(torch.randn(20))"))
    (file,) = built(plainest(design(loaded), 1))
    new = constructed(loaded, file.ModelNew, False)
    new.w.data = torch.randn(40)[::2]
    x = torch.randn(6, 20)
    with torch.no_grad():
        torch.testing.assert_close(new(x), torch.exp(x) + new.w)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(6, 12, dtype=torch.float64), TypeError, "x is torch.float64, not torch.float32"),
        (torch.zeros(6, 12, dtype=torch.int64), TypeError, "x is torch.int64"),
        (torch.zeros(6, 13), ValueError, r"x has shape \(6, 13\), not \(None, 12\)"),
        (torch.zeros(12), ValueError, r"x has shape \(12,\)"),
        (torch.zeros(6, 12, device="meta"), ValueError, "x is on meta: this file is for cpu"),
        ([[0.0] * 12], TypeError, "x is a list, not a tensor"),
    ],
    ids=["float64", "int64", "columns", "dimensions", "device", "list"],
)
def test_wrong_input_is_a_clear_error(x: Any, error: type[Exception], message: str) -> None:
    _, _, new = made_new(*FUSED)
    with pytest.raises(error, match=message):
        new(x)


@pytest.mark.usefixtures("quick_builds")
def test_second_input_of_another_batch_is_a_clear_error() -> None:
    loaded = made(source("return torch.exp(x) + y", "torch.randn(6, 20), torch.randn(6, 20)", arguments="x, y"))
    (file,) = built(plainest(design(loaded), 1))
    with pytest.raises(ValueError, match=r"y has shape \(5, 20\), not \(6, 20\)"):
        file.ModelNew()(torch.zeros(6, 20), torch.zeros(5, 20))


@pytest.mark.usefixtures("quick_builds")
def test_model_of_another_dtype_is_an_error() -> None:
    loaded = made(source("return torch.exp(x) + self.w", init="self.w = nn.Parameter(torch.randn(20))"))
    (file,) = built(plainest(design(loaded), 1))
    with torch.no_grad(), pytest.raises(TypeError, match="float64"):
        file.ModelNew().double()(torch.zeros(6, 20))


@pytest.mark.usefixtures("quick_builds")
def test_argument_that_the_problem_leaves_out_is_refused() -> None:
    loaded = made(source("return torch.exp(x) * 2.0 if mask is None else x", arguments="x, mask=None, scale=2.0"))
    (file,) = built(plainest(design(loaded), 1))
    new = file.ModelNew()
    assert new(torch.zeros(6, 20), mask=None, scale=2.0).shape == (6, 20)
    for wrong in ({"mask": torch.zeros(6, 20)}, {"scale": 3.0}):
        with pytest.raises(ValueError, match="this file was made for"):
            new(torch.zeros(6, 20), **wrong)


@pytest.mark.usefixtures("quick_builds")
def test_number_other_than_the_captured_one_is_refused() -> None:
    loaded = made(source("return torch.exp(x) * k", "torch.randn(6, 20), 3.0", arguments="x, k"))
    (file,) = built(plainest(design(loaded), 1))
    with pytest.raises(ValueError, match="this file was made for 3.0"):
        file.ModelNew()(torch.zeros(6, 20), 4.0)


@pytest.mark.parametrize(("given", "mode"), [(FOLDED, "eval"), (TRAIN, "train")])
def test_mode_that_the_file_is_not_for_is_refused(given: tuple[str, str, str], mode: str) -> None:
    loaded, _, new = made_new(*given)
    with pytest.raises(RuntimeError, match=f"right in {mode} mode only"):
        call(new.train(mode != "train"), drawn(loaded))


def test_file_for_a_problem_without_modes_is_right_in_both() -> None:
    loaded, model, new = made_new(*FUSED)
    assert_same_output(loaded, model, new.train())


def test_backward_through_the_output_raises(trio: tuple[LoadedProblem, Any, Any]) -> None:
    loaded, _, new = trio
    with pytest.raises(RuntimeError, match="forward only"):
        new(*drawn(loaded)).sum().backward()


@pytest.mark.usefixtures("quick_builds")
def test_backward_to_an_input_raises() -> None:
    loaded = made(source("return torch.exp(x)"))
    (file,) = built(plainest(design(loaded), 1))
    with pytest.raises(RuntimeError, match="forward only"):
        file.ModelNew()(torch.zeros(6, 20, requires_grad=True)).sum().backward()


@pytest.mark.usefixtures("quick_builds")
def test_backward_through_one_of_several_outputs_raises() -> None:
    loaded = made(
        source("y = self.linear(x).relu()\nreturn y, torch.sort(y)[1]", init="self.linear = nn.Linear(20, 20)")
    )
    (file,) = built(plainest(design(loaded), 1))
    with pytest.raises(RuntimeError, match="forward only"):
        file.ModelNew()(torch.zeros(6, 20))[0].sum().backward()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_output_is_the_same_in_any_gradient_mode(trio: tuple[LoadedProblem, Any, Any], context: Any) -> None:
    loaded, model, new = trio
    (want,) = call(copy.deepcopy(model), drawn(loaded))
    with context():
        first, second = copy.deepcopy(new), copy.deepcopy(new)
        torch.testing.assert_close(first(*drawn(loaded)).detach().clone(), want)
    with torch.inference_mode():
        second(*drawn(loaded))


def test_weights_prepared_in_inference_mode_serve_outside_of_it() -> None:
    loaded, model, new = made_new(*FOLDED)
    with torch.inference_mode():
        new(*drawn(loaded))
    torch.testing.assert_close(new(*drawn(loaded)).detach(), call(model, drawn(loaded))[0])


def test_model_made_in_inference_mode_works() -> None:
    for given in (FOLDED, TRAIN):
        loaded = reference(*given[:2])
        file = chosen(*given)
        with torch.inference_mode():
            model, new = (
                constructed(loaded, make, given[1] == "train") for make in (loaded.model_class, file.ModelNew)
            )
            inputs = drawn(loaded)
            torch.testing.assert_close(new(*inputs), model(*inputs))
            torch.testing.assert_close(list(new.buffers()), list(model.buffers()))


def test_works_inside_a_compiled_model(trio: tuple[LoadedProblem, Any, Any]) -> None:
    loaded, model, new = trio

    class Outer(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * 2.0) + 1.0

    seen: list[str] = []

    def compiler(captured: torch.fx.GraphModule, _: Any) -> torch.fx.GraphModule:
        seen.extend(node.name for node in captured.graph.nodes if node.op not in ("placeholder", "output"))
        return captured

    torch.compiler.reset()
    x = drawn(loaded)[0]
    with torch.no_grad():
        compiled = torch.compile(Outer(copy.deepcopy(new)), backend=compiler)
        torch.testing.assert_close(compiled(x), model(x * 2.0) + 1.0)
    assert seen == ["mul", "add"]


def test_method_is_hidden_from_compilers_once(trio: tuple[LoadedProblem, Any, Any]) -> None:
    """Each time would take longer than a small kernel. Where no compiler is at work, nothing is hidden."""
    loaded, _, new = trio
    made = type(new).forward.__globals__["untraced"]
    made.clear()
    torch.compiler.reset()
    with torch.no_grad():
        new(*drawn(loaded))
        assert not made
        compiled = torch.compile(nn.Sequential(copy.deepcopy(new), nn.Identity()), backend="eager")
        compiled(*drawn(loaded))
        first = dict(made)
        compiled(*drawn(loaded))
    assert first and all(made[method] is hidden for method, hidden in first.items())


# Weights that are prepared


def changed(model: Any, how: str) -> None:
    """Change what batch norm is folded from."""
    weight = model.linear.weight
    generator = torch.Generator().manual_seed(3)
    fresh = torch.randn(weight.shape, generator=generator)
    if how == "load_state_dict":
        model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
    elif how == "optimizer":
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    elif how == "in place":
        with torch.no_grad():
            weight.mul_(3.0)
    elif how == "new storage":
        weight.data = fresh
    elif how == "new parameter":
        model.linear.weight = nn.Parameter(fresh)
    elif how == "new layer":
        model.linear = nn.Linear(*weight.shape[::-1])
        model.linear.load_state_dict({"weight": fresh, "bias": fresh[:, 0]})
    elif how == "a weight that is computed":
        parametrize.register_parametrization(model.linear, "weight", nn.Tanh())
    elif how == "buffer":
        model.norm.running_mean.add_(1.0)
    elif how == "half of a row":
        with torch.no_grad():
            weight[0, :3] = 5.0


CHANGES = ("load_state_dict", "optimizer", "in place", "new storage", "new parameter", "new layer", "a weight that is computed", "half of a row")


@pytest.mark.parametrize(("given", "how"), [*((given, how) for given in (FUSED, FOLDED) for how in CHANGES), (FOLDED, "buffer")])
def test_change_of_a_weight_is_noticed(given: tuple[str, str, str], how: str) -> None:
    loaded, model, new = made_new(*given)
    call(new, drawn(loaded))
    changed(model, how)
    changed(new, how)
    torch.testing.assert_close(call(new, drawn(loaded)), call(model, drawn(loaded)))


def test_refresh_takes_up_what_no_counter_shows() -> None:
    loaded, model, new = made_new(*FOLDED)
    call(new, drawn(loaded))
    for m in (model, new):
        m.linear.weight.data.mul_(3.0)
    new.refresh()
    torch.testing.assert_close(call(new, drawn(loaded)), call(model, drawn(loaded)))


WEIGHTS_ELSEWHERE = {
    "every second element": ("self.w = nn.Parameter(torch.randn(40)[::2])", "self.w", lambda m, w: m.w.copy_(w)),
    "in a list": ("self.held = [torch.randn(20)]", "self.held[0]", lambda m, w: m.held.__setitem__(0, w)),
    "an attribute": ("self.held = torch.randn(20)", "self.held", lambda m, w: setattr(m, "held", w)),
}  # fmt: skip


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("case", WEIGHTS_ELSEWHERE)
def test_change_of_a_weight_of_another_kind_is_noticed(case: str) -> None:
    init, weight, change = WEIGHTS_ELSEWHERE[case]
    loaded = made(source(f"return torch.exp(x) + {weight} * 2.0", init=init))
    (file,) = built(plainest(design(loaded), 1))
    model, new = (constructed(loaded, make, False) for make in (loaded.model_class, file.ModelNew))
    x = torch.randn(6, 20)
    with torch.no_grad():
        for w in torch.randn(3, 20):
            torch.testing.assert_close(new(x), model(x))
            for m in (model, new):
                change(m, w)


def test_what_is_kept_goes_with_the_modules_memory() -> None:
    loaded, _, new = made_new(*FOLDED)
    call(new, drawn(loaded))
    new.to(torch.float64)
    assert new._prepared is None


def test_prepared_weights_are_kept_while_nothing_changes() -> None:
    loaded, _, new = made_new(*FOLDED)
    call(new, drawn(loaded))
    kept = new._prepared
    call(new, drawn(loaded))
    assert new._prepared is kept


# Both modes in one file


def both(name: str, *, train: str, evaluation: str) -> tuple[LoadedProblem, Any, Any]:
    """A file of two plans that are chosen by parts of their names."""
    loaded = reference(name, "both")
    of = design(loaded)
    picked = [
        next(p for p in plans(graph, CPU_TEMPLATES) if part in p.name)
        for (_, graph), part in zip(of.capture.graphs, (train, evaluation))
    ]
    params = []
    for mode, plan in zip(("train", "eval"), picked):
        spaces = of._choice(((mode, plan),)).spaces
        params.append({f"k{n}.{k}": v for n, s in enumerate(spaces) for k, v in next(s.allowed()).items()})
    (file,) = built([candidate(loaded, of.capture, picked, params)])
    return loaded, constructed(loaded, loaded.model_class, True), constructed(loaded, file.ModelNew, True)


BOTH = {
    "moments, folded": (NAMES[1], "outer_reduction[", "fold_batchnorm_into_linear"),
    "library, folded": (NAMES[1], "batch_norm(library)", "fold_batchnorm_into_linear"),
    "pulled, folded": (NAMES[3], "pull_scale_into_linear", "fold_batchnorm_into_linear"),
    "moments, affine": (NAMES[3], "outer_reduction[mul", "pointwise[affine]"),
}


@pytest.mark.usefixtures("quick_builds")
@pytest.mark.parametrize("case", BOTH)
def test_file_for_both_modes_follows_a_training(case: str) -> None:
    name, train, evaluation = BOTH[case]
    loaded, model, new = both(name, train=train, evaluation=evaluation)
    for round_ in range(3):
        for mode in (True, False):
            inputs = drawn(loaded, seed=round_)
            torch.testing.assert_close(call(new.train(mode), inputs), call(model.train(mode), inputs))
            torch.testing.assert_close(list(new.buffers()), list(model.buffers()))
