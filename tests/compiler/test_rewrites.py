"""Rewrites: each keeps the value of the graph, and leaves alone what it must not touch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from models import NAMES, graph, made, reference, source

from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import Many, X, aten, written
from kgen.compiler.loops.evaluation import evaluate
from kgen.compiler.lower.lowering import lower
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.cleanup import decompose
from kgen.compiler.rewrites.rewrite import Offer
from kgen.compiler.rewrites.table import REWRITES, variants

LINEAR = "self.linear = nn.Linear(12, 20)"
SCALE = "self.s = nn.Parameter(torch.randn(20))"
NORM = "self.norm = nn.BatchNorm1d(20)"
IN = "torch.randn(6, 12)"


def captured(forward: str, init: str = "", inputs: str = "torch.randn(6, 20)", mode: str = "eval") -> OpGraph:
    return graph(made(source(forward, inputs, init), mode))


def ops(of: OpGraph) -> list[str]:
    return [n.op for n in of.nodes]


# A tiny interpreter


@pytest.fixture(autouse=True)
def cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's calls, which PyTorch has on a GPU alone, as what they compute."""
    monkeypatch.setattr(torch, "cudnn_convolution_relu", lambda *of: torch.conv2d(*of).relu())
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", lambda x, w, z, alpha, *of: (torch.conv2d(x, w, *of) + alpha * z).relu())


def random_values(of: OpGraph) -> dict[str, torch.Tensor]:
    """Inputs and weights of the graph at random, in float64; what may be a variance is positive."""
    generator = torch.Generator().manual_seed(0)
    values = {}
    for v in (*of.inputs, *of.weights):
        drawn = torch.randn(v.type.shape, dtype=torch.float64, generator=generator)
        integer = v.type.dtype == "int64"
        values[v.name] = (
            torch.zeros(v.type.shape, dtype=torch.int64) if integer else drawn.abs() + 0.5 if "var" in v.name else drawn
        )
    return values


def run(of: OpGraph, values: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """What the graph returns; buffers in ``values`` are changed as the graph says."""
    values = dict(values)
    names = {"torch": torch, "F": F, "batch_size": of.batch}
    for d in of.folded:
        # Folded weights are rounded to float32 at their end: here they are not.
        spelled = written(d.call, lambda number: f"values['{d.sources[number]}']", "torch.device('cpu')").replace(".float()", "")
        values[d.name] = eval(spelled, {**names, "values": values})
    for n in of.nodes:
        if n.op == "batch_moments":
            values[n.name] = moments(n, values)
        elif n.call is None:
            values[n.name] = evaluate(lower(of, [n.name], [n.name]), values)[n.name].reshape(n.type.shape)
        else:
            values[n.name] = eval(written(n.call, lambda number: f"values['{n.values[number]}']", "torch.device('cpu')"), {**names, "values": values})
    return [values[r] for r in of.returns]


def moments(n: Node, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """The node ``batch_moments``: the mean and weight / deviation; it updates the running statistics."""
    given = {role: values[v] for role, v in zip(n["roles"], n.inputs)}
    variance, mean = torch.var_mean(given["input"], dim=0, correction=0)
    if "running_mean" in given:
        rows = given["input"].shape[0]
        given["running_mean"].lerp_(mean, n["momentum"])
        given["running_var"].lerp_(variance * rows / (rows - 1), n["momentum"])
    if "counter" in given:
        given["counter"] += 1
    return torch.stack([mean, given.get("weight", torch.ones_like(mean)) / (variance + n["eps"]).sqrt()])


def assert_same_value(before: OpGraph, after: OpGraph) -> None:
    given = random_values(before)
    first = {k: v.clone() for k, v in given.items()}
    second = {k: v.clone() for k, v in given.items()}
    for a, b in zip(run(before, first), run(after, second), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-10, atol=1e-10)


#: forward, __init__, inputs, mode, rewrites before, the rewrite, and the operators that it comes to.
LAST_IN_TF32 = "the last convolution is in TF32"
APPLIES = {
    "few channels in float32": ("return self.b(self.a(x))", "self.a, self.b = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 4, 3)", "torch.randn(2, 3, 8, 8)", "eval", (), "few_channels_by_threads", ["conv2d_by_threads", "conv2d"]),
    "few channels whose statistics are exact": ("y = self.n(self.a(x))\nreturn self.b(y)", "self.a, self.n, self.b = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)", "torch.randn(2, 3, 8, 8)", "train", (LAST_IN_TF32,), "exact_statistics", ["conv2d_by_threads", "aten.add_.Tensor", "batch_norm", "conv2d"]),
    "an einsum of which one part is read": ("return torch.einsum('bzc,bcn->bzn', x, x.mT)[:, -1]", "", "torch.randn(3, 5, 4)", "eval", (), "parts_of_einsums", ["permute", "select", "aten.einsum.default"]),
    "an einsum of which a slice is read": ("return torch.einsum('bzc,bcn->bzn', x, x.mT)[:, 1:4:2]", "", "torch.randn(3, 5, 4)", "eval", (), "parts_of_einsums", ["permute", "slice", "aten.einsum.default"]),
    "an einsum of a concatenation that begins with zeros": (
        "return torch.einsum('bzc,bcn->bzn', x, torch.cat([torch.zeros_like(x[:, :1]), x[:, 1:]], 1))", "", "torch.randn(3, 4, 4)", "eval", (), "parts_of_einsums", ["slice", "slice", "aten.einsum.default"]),
    "an einsum of a concatenation that ends with zeros": (
        "return torch.einsum('bzc,bcn->bn', x, torch.cat([x[:, :1], x[:, 1:3], torch.zeros_like(x[:, 3:5])], 1))", "", "torch.randn(3, 6, 5)", "eval", (), "parts_of_einsums", ["slice", "slice", "cat", "slice", "aten.einsum.default"]),
    "windows side by side are rows": ("return self.c(x)", "self.c = nn.Conv2d(3, 5, 8, stride=8)", "torch.randn(2, 3, 16, 24)", "eval", (), "patches_as_rows", ["view", "permute", "copy", "view", "linear", "permute", "view"]),
    "an image of one pixel is a row": ("return self.c(x.mean((2, 3), keepdim=True))", "self.c = nn.Conv2d(3, 5, 1)", "torch.randn(2, 3, 4, 4)", "eval", (), "patches_as_rows", ["mean", "view", "linear", "view"]),
    "an image that is one window is a row": ("return self.c(x)", "self.c = nn.Conv2d(3, 5, (4, 2))", "torch.randn(2, 3, 4, 2)", "eval", (), "patches_as_rows", ["view", "linear", "view"]),
    "windows of a sequence are rows": ("return self.c(x)", "self.c = nn.Conv1d(2, 5, 64, stride=64, bias=False)", "torch.randn(2, 2, 128)", "eval", (), "patches_as_rows", ["view", "permute", "copy", "view", "linear", "permute", "view"]),
    "dropout goes in eval mode": ("return F.relu(F.dropout(x, 0.5, self.training))", "", None, "eval", (), "drop_identity", ["relu"]),
    "dropout that drops nothing goes in train mode": ("return F.relu(F.dropout(x, 0.0, True))", "", None, "train", (), "drop_identity", ["relu"]),
    "identities after one another go": ("return F.relu(self.a(self.b(x)).detach())", "self.a, self.b = nn.Dropout(0.0), nn.Dropout(0.0)", None, "train", (), "drop_identity", ["relu"]),
    "a module that does nothing goes": ("return F.relu(nn.Identity()(x))", "", None, "eval", (), "drop_identity", ["relu"]),
    "a copy of a copy goes": ("return F.relu(x.clone().clone())", "", None, "eval", (), "drop_identity", ["relu"]),
    "a factor of one goes": ("return F.relu(x * 1.0)", "", None, "eval", (), "drop_identity", ["relu"]),
    "a division by one goes": ("return F.relu(x / 1.0)", "", None, "eval", (), "drop_identity", ["relu"]),
    "a view to the same shape goes": ("return F.relu(x.view(6, 20))", "", None, "eval", (), "drop_identity", ["relu"]),
    "a conversion to the same dtype goes": ("return F.relu(x.long().long().float())", "", None, "eval", (), "drop_identity", ["cast", "cast", "relu"]),
    "a returned identity is its operand": ("return F.dropout(F.relu(x), 0.5, self.training)", "", None, "eval", (), "drop_identity", ["relu"]),
    "a contraction with a transpose is a linear layer": ("return x @ self.w.t()", "self.w = nn.Parameter(torch.randn(30, 20))", None, "eval", (), "matmul_to_linear", ["linear"]),
    "a contraction with a transpose and a bias is a linear layer": ("return torch.addmm(self.b, x, self.w.transpose(0, 1))", "self.w, self.b = nn.Parameter(torch.randn(30, 20)), nn.Parameter(torch.randn(30))", None, "eval", (), "matmul_to_linear", ["linear"]),
    "a product of rows that views flatten is a linear layer of the rows": ("return F.gelu(torch.addmm(self.b, x.view(-1, 20), self.w).view(2, 3, 30))", "self.w, self.b = nn.Parameter(torch.randn(20, 30)), nn.Parameter(torch.randn(30))", "torch.randn(2, 3, 20)", "eval", (), "product_of_viewed_rows", ["permute", "linear", "gelu"]),
    "a linear layer between views is one of the rows": ("return F.gelu(self.linear(x.view(-1, 20)).view(2, 3, 5))", "self.linear = nn.Linear(20, 5)", "torch.randn(2, 3, 20)", "eval", (), "product_of_viewed_rows", ["linear", "gelu"]),
    "bags of one size are rows and a sum": ("return self.bag(x)", "self.bag = nn.EmbeddingBag(9, 4, mode='sum')", "torch.randint(0, 9, (5, 3))", "eval", (), "bags_to_sums", ["view", "view", "embedding", "sum"]),
    "angles of positions are kept": ("return x * torch.cos(torch.arange(20) * self.s)", SCALE, None, "eval", (), "keep_tables", ["mul"]),
    "rows of a weight at positions are kept": ("return x + self.e(torch.arange(6).flip(0))", "self.e = nn.Embedding(6, 20)", "torch.randn(2, 6, 20)", "eval", (), "keep_tables", ["add"]),
    "a mask of positions is kept for the library": ("return F.scaled_dot_product_attention(x * self.s, x, x, torch.arange(6) <= torch.arange(6)[:, None])", SCALE, "torch.randn(2, 6, 20)", "eval", (), "keep_tables", ["mul", "aten.scaled_dot_product_attention.default"]),
    "positions that a table and others read are made for these": ("at = torch.arange(20)\nreturn x * torch.cos(at * self.s), x.long() + at", SCALE, None, "eval", (), "keep_tables", ["arange", "mul", "cast", "add"]),
    "a weight that is cast for a product is kept so": ("return F.linear(x.bfloat16(), self.w.bfloat16()), self.w.bfloat16() * 2", "self.w = nn.Parameter(torch.randn(30, 20))", None, "eval", (), "fold_casts", ["cast", "linear", "cast", "mul"]),
    "a weight that forward computes is kept": ("return F.linear(x, self.w / self.w.norm() * 2), x @ self.w.exp().t()", "self.w = nn.Parameter(torch.randn(30, 20))", None, "eval", (), "prepare_weights", ["linear", "permute", "matmul"]),
    "a bias that is looked up for a product is kept": ("return torch.addmm(self.table[self.at], x, self.w)", "self.table, self.w = nn.Parameter(torch.randn(9)), nn.Parameter(torch.randn(20, 5))\nself.register_buffer('at', torch.zeros(5, dtype=torch.int64))", None, "eval", (), "prepare_weights", ["addmm"]),
    "a softmax over few channels is left to threads": ("return x.softmax(1)", "", "torch.randn(2, 5, 30)", "eval", (), "reduce_few_by_threads", ["softmax"]),
    "weighted bags are weighted rows and a sum": ("return F.embedding_bag(x, self.w, per_sample_weights=self.v[x], mode='sum')", "self.w, self.v = nn.Parameter(torch.randn(9, 4)), nn.Parameter(torch.randn(9))", "torch.randint(0, 9, (5, 3))", "eval", (), "bags_to_sums", ["index", "view", "view", "view", "embedding", "view", "mul", "sum"]),
    "a layer of few features is sums": ("return self.linear(x)", "self.linear = nn.Linear(3, 5)", "torch.randn(4, 6, 3)", "eval", (), "tiny_product_to_sums", ["view", "mul", "sum", "add"]),
    "sums of a bag are left to threads": ("return F.embedding(x, self.w).sum(1)", "self.w = nn.Parameter(torch.randn(9, 40))", "torch.randint(0, 9, (60, 20))", "eval", (), "reduce_few_by_threads", ["embedding", "sum"]),
    "sums at the one place are a sum": ("return self.zero.index_add(0, self.at, x)", "self.register_buffer('zero', torch.zeros(1, 20))\nself.register_buffer('at', torch.zeros(6, dtype=torch.int64))", None, "eval", (), "scatter_to_sum", ["sum", "add"]),
    "a value times tanh of its softplus is mish": ("return torch.tanh(F.softplus(x)) * x", "", None, "eval", (), "softplus_to_mish", ["mish"]),
    "a value on the left of tanh of its softplus is mish": ("return x * torch.tanh(F.softplus(x))", "", None, "eval", (), "softplus_to_mish", ["mish"]),
    "what is left of a whole quotient is a remainder": ("y, n = x.long(), self.n + 7\nreturn y - torch.div(y, n, rounding_mode='floor') * n", "self.register_buffer('n', torch.tensor(0))", None, "eval", (), "quotient_to_remainder", ["cast", "add", "remainder_of_integers"]),
    "what is left of a quotient by a number is a remainder": ("y = x.long()\nreturn y - 3 * (y // 3)", "", None, "eval", (), "quotient_to_remainder", ["cast", "remainder_of_integers"]),
    "a linear layer of sequences that come first takes rows as they lie": ("return self.linear(x.transpose(0, 1)).relu().transpose(0, 1)", LINEAR, "torch.randn(4, 5, 12)", "eval", (), "permute_behind", ["linear", "relu", "permute", "permute"]),
    "norms and maps of sequences that come first take rows as they lie": ("y = x.transpose(0, 1)\nreturn (F.layer_norm(y, (12,)).relu() * self.w + y).transpose(0, 1)", "self.w = nn.Parameter(torch.randn(12))", "torch.randn(4, 5, 12)", "eval", (), "permute_behind", ["layer_norm", "relu", "mul", "add", "permute", "permute"]),
    "rows out of order lie in order": ("y = self.linear(x.permute(2, 0, 1, 3).reshape(20, 12)).view(5, 4, 20).transpose(0, 1)\nreturn y.relu()", LINEAR, "torch.randn(4, 2, 5, 6)", "eval", (), "rows_in_order", ["permute", "view", "linear", "relu"]),
    "each element at its own place is a view": ("return x[torch.arange(6)[:, None, None], torch.arange(20) + 0].relu()", "", None, "eval", (), "places_in_order", ["view", "relu"]),
    "rows out of order are permuted behind a linear layer": ("return self.linear(x.permute(2, 0, 1, 3).reshape(20, 12)).relu()", LINEAR, "torch.randn(4, 2, 5, 6)", "eval", (), "rows_in_order", ["permute", "view", "linear", "permute", "view", "relu"]),
    "heads are one view of a linear layer": ("y = self.linear(x).transpose(0, 1)[..., :16].reshape(5, 8, 8).transpose(0, 1).view(4, 2, 5, 8)\nreturn torch.topk(y, 2)[0]", LINEAR, "torch.randn(4, 5, 12)", "eval", (), "views_in_one", ["linear", "aten.as_strided.default", "aten.topk.default", "_operator.getitem"]),
    "windows of a rolled image are stored as a product reads them": ("a = torch.roll(x, (1, 1), (1, 2)).view(2, 2, 3, 2, 3, 5).transpose(2, 3).reshape(8, 9, 5)\nreturn a @ a.mT", "", "torch.randn(2, 6, 6, 5)", "eval", (), "store_as_read", ["roll", "view", "permute", "view", "copy", "permute", "matmul"]),
    "a map of a transpose is stored as the operand lies": ("return x.transpose(1, 2).relu()", "", "torch.randn(4, 5, 12)", "eval", (), "order_outputs", ["permute", "relu", "permute", "copy", "permute"]),
    "a map of images with channels last keeps them so": ("return x.relu(), x", "", "torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)", "eval", (), "order_outputs", ["relu", "permute", "copy", "permute"]),
    "a view of a map of a transpose is a dense tensor": ("return x.transpose(1, 2).relu().transpose(1, 2)", "", "torch.randn(4, 5, 12)", "eval", (), "order_outputs", ["permute", "relu", "permute", "copy"]),
    "what the library made of a transpose is copied by the library": ("return torch.sort(x.transpose(1, 2), 1)[0].transpose(1, 2)", "", "torch.randn(4, 5, 12)", "eval", (), "order_outputs", ["permute", "aten.sort.default", "_operator.getitem", "permute", "aten.contiguous.default"]),
    "a mean of a stack is a map": ("return torch.stack([x, x.relu(), -x]).mean(0)", "", None, "eval", (), "stack_to_maps", ["relu", "neg", "add", "add", "div"]),
    "a maximum of a stack keeps a dimension": ("return torch.stack([x, -x], -1).amax(-1, keepdim=True)", "", None, "eval", (), "stack_to_maps", ["neg", "maximum", "view"]),
    "a product of columns side by side is a map": ("return torch.cat([x[:, :1].relu(), x[:, 1:2].exp()], 1).prod(1)", "", None, "eval", (), "stack_to_maps", ["slice", "relu", "slice", "exp", "mul", "view"]),
    "factors become one": ("return F.relu(x * 2.0 * 3.0)", "", None, "eval", (), "merge_scalar_factors", ["mul", "relu"]),
    "x + x is a factor of two": ("y = x * 1.5\nreturn F.relu(y + y)", "", None, "eval", (), "merge_scalar_factors", ["mul", "relu"]),
    "a sign is a factor": ("return F.relu(-(x * 3.0))", "", None, "eval", (), "merge_scalar_factors", ["mul", "relu"]),
    "a power of two divides exactly": ("return F.relu(x / 4.0 * 3.0)", "", None, "eval", (), "merge_scalar_factors", ["mul", "relu"]),
    "batch norm in eval mode is affine": ("return self.norm(x)", NORM, None, "eval", (), "batchnorm_to_affine", ["lerp_affine"]),
    "batch norm without weights is affine": ("return self.norm(x)", "self.norm = nn.BatchNorm1d(20, affine=False)", None, "eval", (), "batchnorm_to_affine", ["lerp_affine"]),
    "batch norm of images is affine": ("return self.norm(x)", "self.norm = nn.BatchNorm2d(4)", "torch.randn(2, 4, 3, 5)", "eval", (), "batchnorm_to_affine", ["lerp_affine"]),
    "batch norm of sequences is affine": ("return self.norm(x)", "self.norm = nn.BatchNorm1d(4)", "torch.randn(2, 4, 3)", "eval", (), "batchnorm_to_affine", ["lerp_affine"]),
    "batch norm in train mode is split": ("return self.norm(x)", NORM, None, "train", (), "split_batchnorm", ["batch_moments", "select", "select", "normalise_affine"]),
    "batch norm of images is split": ("return self.norm(x)", "self.norm = nn.BatchNorm2d(4)", "torch.randn(2, 4, 3, 5)", "train", (), "split_batchnorm", ["aten.add_.Tensor", "moments_mean", "unbiased_variance", "moving_average", "moving_average", "variance", "scaled_inverse_deviation", "view", "view", "view", "normalise_affine"]),
    "group norm behind a convolution is moments of channels first": ("return self.n(F.relu(self.c(x)))", "self.c, self.n = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4, affine=False)", "torch.randn(2, 3, 7, 8)", "train", (), "reduce_images_first", ["conv2d", "relu", "view", "moments_mean", "variance", "view", "view", "moments_mean", "variance", "corrected_mean", "add", "inverse_deviation", "normalise", "view"]),
    "batch norm behind a convolution is moments of images first": ("return self.n(self.c(x))", "self.c, self.n = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False, affine=False)", "torch.randn(2, 3, 7, 8)", "train", (), "reduce_images_first", ["conv2d", "moments_mean", "variance", "moments_mean", "variance", "corrected_mean", "add", "inverse_deviation", "view", "view", "normalise"]),
    "a sum over images behind a convolution is one of pixels first": ("return self.c(x).sigmoid().sum((0, 2, 3))", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)", "train", (), "reduce_images_first", ["conv2d", "sigmoid", "sum", "sum"]),
    "the least of a row behind group norm of a product is that of each group first": ("return self.n(self.l(x)).relu().amin(1)", "self.l, self.n = nn.Linear(12, 20), nn.GroupNorm(5, 20)", "torch.randn(6, 12)", "eval", (), "reduce_groups_first", ["linear", "group_norm", "relu", "view", "amin", "amin"]),
    "a mean behind group norm of a product is one of means": ("return self.n(self.l(x)).mean(1, keepdim=True)", "self.l, self.n = nn.Linear(12, 20), nn.GroupNorm(5, 20)", "torch.randn(6, 12)", "eval", (), "reduce_groups_first", ["linear", "group_norm", "view", "mean", "mean"]),
    "group norm is moments of groups": ("return self.norm(x)", "self.norm = nn.GroupNorm(2, 4)", "torch.randn(2, 4, 3, 5)", "train", (), "group_norm_to_moments", ["view", "moments_mean", "variance", "inverse_deviation", "normalise", "view", "view", "view", "lerp_affine"]),
    "layer norm of long rows is split": ("return F.layer_norm(x, (20000,), self.w, self.b)", "self.w, self.b = nn.Parameter(torch.randn(20000)), nn.Parameter(torch.randn(20000))", "torch.randn(2, 20000)", "eval", (), "split_norms", ["moments_mean", "variance", "inverse_deviation", "normalise", "lerp_affine"]),
    "softmax of long rows is split": ("return torch.softmax(x, 1)", "", "torch.randn(2, 20000)", "eval", (), "split_norms", ["softmax_max", "softmax_sum", "apply_softmax"]),
    "batch norm without weights is split": ("return self.norm(x)", "self.norm = nn.BatchNorm1d(20, affine=False)", None, "train", (), "split_batchnorm", ["batch_moments", "select", "select", "normalise"]),
    "batch norm without running statistics is split": ("return self.norm(x)", "self.norm = nn.BatchNorm1d(20, track_running_stats=False)", None, "eval", (), "split_batchnorm", ["batch_moments", "select", "select", "normalise_affine"]),
    "a scale behind batch norm is merged": ("return F.relu(self.norm(x) * self.s)", f"{NORM}\n{SCALE}", None, "eval", ("batchnorm_to_affine",), "merge_affine", ["lerp_affine", "relu"]),
    "a factor behind batch norm is merged": ("return F.relu(self.norm(x) * 3.0)", NORM, None, "eval", ("batchnorm_to_affine",), "merge_affine", ["lerp_affine", "relu"]),
    "a scale before batch norm is merged": ("return self.norm(F.relu(x) * self.s)", f"{NORM}\n{SCALE}", None, "eval", ("batchnorm_to_affine",), "merge_affine", ["relu", "lerp_affine"]),
    "two batch norms are merged": ("return self.other(self.norm(x))", f"{NORM}\nself.other = nn.BatchNorm1d(20)", None, "eval", ("batchnorm_to_affine",), "merge_affine", ["lerp_affine"]),
    "two scales are merged": ("return F.relu(x) * self.s * self.t", f"{SCALE}\nself.t = nn.Parameter(torch.randn(1))", None, "eval", (), "merge_affine", ["relu", "mul"]),
    "a loss picks an element of each row first": ("return F.log_softmax(x, 1).gather(1, self.t)", "self.register_buffer('t', torch.zeros(6, 1, dtype=torch.int64))", None, "eval", (), "split_norms", ["softmax_max", "softmax_sum", "gather", "apply_log_softmax"]),
    "batch norm goes into the linear layer": ("return self.norm(self.linear(x))", f"{LINEAR}\n{NORM}", IN, "eval", ("batchnorm_to_affine",), "fold_batchnorm_into_linear", ["linear"]),
    "batch norm goes into a linear layer without bias": ("return self.norm(self.linear(x))", f"self.linear = nn.Linear(12, 20, bias=False)\n{NORM}", IN, "eval", ("batchnorm_to_affine",), "fold_batchnorm_into_linear", ["linear"]),
    "batch norm goes into a linear layer of one feature": ("return self.norm(self.linear(x))", "self.linear = nn.Linear(12, 1)\nself.norm = nn.BatchNorm1d(1)", IN, "eval", ("batchnorm_to_affine",), "fold_batchnorm_into_linear", ["linear"]),
    "a scale for each feature goes into the linear layer": ("return self.linear(x) * self.s", f"{LINEAR}\n{SCALE}", IN, "eval", (), "pull_scale_into_linear", ["linear"]),
    "a scale on the left goes into the linear layer": ("return self.s * self.linear(x)", f"{LINEAR}\n{SCALE}", IN, "eval", (), "pull_scale_into_linear", ["linear"]),
    "a scale for all features goes into the linear layer": ("return self.linear(x) * self.s", f"{LINEAR}\nself.s = nn.Parameter(torch.randn(1))", IN, "eval", (), "pull_scale_into_linear", ["linear"]),
    "a scalar weight goes into the linear layer": ("return self.linear(x) * self.s", f"{LINEAR}\nself.s = nn.Parameter(torch.randn(()))", IN, "eval", (), "pull_scale_into_linear", ["linear"]),
    "a scale goes into a linear layer over sequences": ("return self.linear(x) * self.s", f"{LINEAR}\n{SCALE}", "torch.randn(2, 3, 12)", "eval", (), "pull_scale_into_linear", ["linear"]),
    "a scale goes into a linear layer without bias": ("return self.linear(x) * self.s", f"self.linear = nn.Linear(12, 20, bias=False)\n{SCALE}", IN, "train", (), "pull_scale_into_linear", ["linear"]),
    "a mean of a convolution is a product": ("return self.c(x).mean((2, 3))", "self.c = nn.Conv2d(3, 4, (3, 2), padding=1, dilation=(2, 1))", "torch.randn(2, 3, 7, 8)", "eval", (), "mean_into_convolution", ["sum", "cat", "view", "slice", "sum", *["select"] * 6, *["add"] * 10, "cat", "view", "linear"]),
    "a mean of a scaled transposed convolution is a product": ("return (self.c(x) * 0.5 / 3.0).mean((2, 3), keepdim=True)", "self.c = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)", "torch.randn(2, 3, 7, 8)", "eval", (), "mean_into_convolution", [*["slice", "sum", "select", "add", "add", "cat", "view"] * 2, "linear", "view", "mul", "div"]),
    "a mean over depth is a flat convolution": ("return self.c(x).mean(2, keepdim=True)", "self.c = nn.ConvTranspose3d(3, 4, 3, stride=(1, 2, 1), padding=1, output_padding=(0, 1, 0), bias=False)", "torch.randn(2, 3, 5, 4, 6)", "eval", (), "mean_into_convolution", ["slice", "sum", "select", "select", *["add"] * 4, "cat", "view", "conv_transpose2d", "view"]),
    "a mean over a width is a convolution along the height": ("return self.c(x).mean(3)", "self.c = nn.Conv2d(3, 4, 3, stride=(2, 1))", "torch.randn(2, 3, 7, 8)", "eval", (), "mean_into_convolution", ["slice", "sum", *["select"] * 4, *["add"] * 6, "cat", "view", "conv1d"]),
    "batch norm goes into a convolution": ("return self.n(self.c(x))", "self.c, self.n = nn.Conv2d(3, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4)", "torch.randn(2, 3, 7, 8)", "eval", ("batchnorm_to_affine",), "affine_into_convolution", ["conv2d"]),
    "batch norm goes into a transposed convolution with a bias": ("return self.n(self.c(x))", "self.c, self.n = nn.ConvTranspose1d(3, 4, 3, stride=2), nn.BatchNorm1d(4)", "torch.randn(2, 3, 7)", "eval", ("batchnorm_to_affine",), "affine_into_convolution", ["conv_transpose1d"]),
    "an average pool of a convolution is a convolution of averages": ("return F.avg_pool2d(self.c(x) * 2.0, (2, 3), stride=(2, 1))", "self.c = nn.Conv2d(3, 4, (3, 2), padding=1, dilation=(2, 1))", "torch.randn(2, 3, 9, 11)", "eval", (), "average_into_convolution", ["avg_pool2d", "conv2d", "mul"]),
    "an average pool of a transposed convolution is a convolution": ("return F.avg_pool3d(self.c(x) * self.s, 2)", "self.s = nn.Parameter(torch.randn(4, 1, 1, 1))\nself.c = nn.ConvTranspose3d(3, 4, 3, stride=2, padding=1)", "torch.randn(2, 3, 4, 5, 6)", "eval", (), "average_into_convolution", ["cat", "conv3d", "mul"]),
    "a minimum over depth behind a convolution is a pool": ("return self.c(x).sigmoid().amin(2)", "self.c = nn.Conv3d(3, 4, 3)", "torch.randn(2, 3, 7, 8, 6)", "train", (), "extreme_into_pool", ["conv3d", "sigmoid", "neg", "max_pool3d", "neg", "view"]),
    "a maximum over a width behind a convolution is a pool": ("return self.c(x).amax(3, keepdim=True)", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)", "train", (), "extreme_into_pool", ["conv2d", "max_pool2d"]),
    "a convolution of images has channels last": ("return F.relu(self.c(x))", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)", "train", (), "convolutions_channels_last", ["conv2d_channels_last", "permute", "relu"]),
    "images of many channels are moved by a transpose": ("return F.relu(self.c(x))", "self.c = nn.Conv2d(16, 4, 3)", "torch.randn(2, 16, 7, 8)", "train", (), "convolutions_channels_last", ["permute", "copy", "conv2d_channels_last", "permute", "relu"]),
    "images of a convolution are not moved again": ("return F.relu(self.d(self.c(x)))", "self.c, self.d = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 5, 3)", "torch.randn(2, 3, 9, 9)", "train", (), "convolutions_channels_last", ["conv2d_channels_last", "conv2d_channels_last", "permute", "relu"]),
    "a convolution that is returned is copied": ("return self.c(x)", "self.c = nn.ConvTranspose3d(3, 4, 3)", "torch.randn(2, 3, 4, 5, 6)", "train", (), "convolutions_channels_last", ["conv_transpose3d_channels_last", "permute", "copy"]),
    "a sum and a ReLU are part of cuDNN's convolution": ("return F.relu(self.d(F.relu(self.c(x))) + self.e(x))", "self.c, self.d, self.e = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(8, 16, 1)", "torch.randn(2, 8, 7, 8)", "eval", (), "convolutions_in_cudnn", ["conv2d_relu_channels_last", "conv2d_channels_last", "conv2d_add_relu_channels_last", "permute", "copy"]),
    "images that cuDNN reads twice are moved once": ("y = F.max_pool2d(x, 2)\nreturn F.relu(self.c(y)), F.relu(self.d(y))", "self.c, self.d = nn.Conv2d(16, 4, 3, bias=False), nn.Conv2d(16, 4, 1)", "torch.randn(2, 16, 8, 8)", "eval", (), "convolutions_in_cudnn", ["max_pool2d", "permute", "copy", *["conv2d_relu_channels_last", "permute", "copy"] * 2]),
    "batch norm goes into cuDNN's convolution": ("return F.relu(self.n(self.c(x)) + x)", "self.c, self.n = nn.Conv2d(16, 16, 1, bias=False), nn.BatchNorm2d(16)", "torch.randn(2, 16, 7, 8)", "eval", ("batchnorm_to_affine",), "convolutions_in_cudnn", ["permute", "copy", "conv2d_add_relu_channels_last", "permute", "copy"]),
    "a pool behind cuDNN's convolution is a maximum of slices": ("return F.max_pool2d(F.relu(self.c(x)), (2, 3), stride=2, padding=1, ceil_mode=True)", "self.c = nn.Conv2d(8, 4, 3)", "torch.randn(2, 8, 9, 10)", "eval", (), "convolutions_in_cudnn", ["conv2d_relu_channels_last", "pad", *["slice"] * 8, *["maximum"] * 5, "permute", "copy"]),
    "a window of images with channels last is one of a copy": ("return self.c(x.permute(0, 3, 1, 2))", "self.c = nn.Conv2d(16, 16, 3, groups=16)", "torch.randn(2, 6, 18, 16)", "eval", (), "images_in_order", ["permute", "copy", "depthwise_conv2d"]),
    "a window between layers of channels reads and stores them side by side": ("return torch.softmax(self.c(x.permute(0, 3, 1, 2) + self.b).permute(0, 2, 3, 1), 3)", "self.c, self.b = nn.Conv2d(16, 16, 3, groups=16), nn.Parameter(torch.randn(16, 1, 1))", "torch.randn(2, 6, 18, 16)", "eval", (), "windows_channels_last", ["permute", "add", "permute", "copy", "permute", "depthwise_conv2d", "permute", "copy", "softmax"]),
    "samples of many channels are those of copies with channels last": ("return F.grid_sample(x, x.permute(0, 2, 3, 1)[..., :2])", "", "torch.randn(2, 16, 4, 5)", "eval", (), "sample_channels_last", ["permute", "slice", "permute", "copy", "grid_sample", "permute", "copy"]),
    "a norm over channels is one of a copy": ("return self.n(x.permute(0, 2, 3, 1))", "self.n = nn.LayerNorm(16)", "torch.randn(2, 16, 3, 18)", "eval", (), "images_in_order", ["permute", "copy", "layer_norm"]),
    "a sum over features is a product with the sum of rows": ("return self.linear(x).sum(1, keepdim=True)", LINEAR, IN, "eval", (), "sum_into_linear", ["distributed_product", "sum", "add"]),
    "a mean over features without a bias": ("return self.linear(x).mean(-1)", "self.linear = nn.Linear(12, 20, bias=False)", IN, "eval", (), "sum_into_linear", ["distributed_product", "sum"]),
    "a mean of features that are scaled and shifted": ("return ((self.linear(x) - self.s) * 3.0 / self.s + 1.0).mean(2)", f"{LINEAR}\n{SCALE}", "torch.randn(2, 3, 12)", "eval", (), "sum_into_linear", ["distributed_product", "sum", "add"]),
    "an average pool of features is a layer of averages": ("return F.avg_pool1d(self.linear(x).unsqueeze(1), 5).squeeze(1)", LINEAR, IN, "eval", (), "average_into_linear", ["linear", "view", "sum", "add", "view"]),
    "an average pool of sequences without a bias": ("return F.avg_pool1d(self.linear(x), 4, ceil_mode=True)", "self.linear = nn.Linear(12, 20, bias=False)", "torch.randn(2, 3, 12)", "eval", (), "average_into_linear", ["linear", "view", "sum"]),
    "attention is two products and a softmax": ("return F.scaled_dot_product_attention(x, x, x)", "", "torch.randn(2, 3, 5)", "eval", (), "attention_apart",
                                                ["permute", "matmul", "mul", "softmax", "matmul", "view"]),
    "a mask of two calls of attention is one bias": ("y, m = x.bfloat16(), x[:, :, :3] > 0\ny = F.scaled_dot_product_attention(y, y, y, m)\nreturn F.scaled_dot_product_attention(y, y, y, m).float()", "", "torch.randn(2, 3, 5)", "eval", (), "masks_as_biases",
                                                    ["cast", "slice", "gt", "where", "aten.scaled_dot_product_attention.default", "aten.scaled_dot_product_attention.default", "cast"]),
    "queries that a map makes lie with their heads side by side": ("q = x.transpose(1, 2) * 2.0\nreturn F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)", "", "torch.randn(2, 3, 4, 5)", "eval", (), "queries_as_rows",
                                                                   ["permute", "mul", "permute", "copy", "permute", "aten.scaled_dot_product_attention.default", "permute", "view"]),
    "heads that a product makes are stored side by side": ("return self.linear((x @ x.mT @ x).transpose(1, 2).flatten(2))", LINEAR, "torch.randn(2, 3, 5, 4)", "eval", (), "store_as_read",
                                                           ["permute", "matmul", "matmul", "permute", "view", "copy", "linear"]),
    "running sums behind a zero are those of what is behind a zero": ("return torch.cat((torch.zeros_like(x[:, :1]), x.cumsum(1)[:, :-1]), 1)", "", None, "eval", (), "shift_in_front_of_scan", ["full", "slice", "cat", "cumsum"]),
    "running products from the end that are padded": ("y = x.flip(1).cumprod(1).flip(1)\nreturn torch.constant_pad_nd(y, (-2, 2), 1.0)", "", None, "eval", (), "shift_in_front_of_scan", ["pad", "flip", "cumprod", "flip"]),
    "a loop of averages is a scan": ("h, o = x[:, 0], []\nfor t in range(1, 12):\n    h = 0.9 * h + x[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)", "", "torch.randn(3, 12, 4)", "eval", (), "unrolled_to_scan", ["select", "slice", "linear_recurrence"]),
    "layers of one direction are a wave": ("s = x[:, :2, :5].transpose(0, 1)\nreturn self.lstm(x, (s, s + 1))[1]", "self.lstm = nn.LSTM(12, 5, 2, batch_first=True)", "torch.randn(3, 4, 12)", "eval", (), "layers_as_wave", ["slice", "slice", "permute", "add", "linear", "lstm", "lstm"]),
    "each layer of two directions is a product and its steps": ("return self.gru(x, x[:1, :, :5].expand(4, 4, 5))", "self.gru = nn.GRU(12, 5, 2, bidirectional=True, bias=False)", "torch.randn(3, 4, 12)", "eval", (), "layers_apart",
                                                               ["aten.slice.Tensor", "slice", "expand", "linear", "gru", "gru", "linear", "gru", "gru", "cat"]),
    "linear layers of one value are one": ("return F.silu(self.linear(x)) * F.linear(x, self.w, self.s)", LINEAR + "\nself.w = nn.Parameter(torch.randn(20, 12))\n" + SCALE, IN, "eval", (), "siblings_in_one", ["linear", "slice", "silu", "slice", "mul"]),
    "convolutions of one window that read one value are one": ("return self.b(self.a(x)), self.c(x), self.d(x)", "self.a, self.b, self.c, self.d = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 3), nn.Conv2d(3, 5, 1), nn.Conv2d(3, 2, 3)", "torch.randn(2, 3, 6, 6)", "eval", (), "siblings_in_one", ["conv2d", "slice", "conv2d", "slice", "conv2d"]),
    "a max pool of features is the largest of parts": ("return F.max_pool1d(self.linear(x).relu().unsqueeze(1), 2)", LINEAR, IN, "eval", (), "pool_to_reduction", ["linear", "relu", "view", "view", "amax"]),
    "a linear layer of one feature is a sum": ("return self.linear(x)", "self.linear = nn.Linear(20, 1)", None, "eval", (), "product_to_sum", ["mul", "sum", "add"]),
    "a product with a vector is a sum": ("return x @ self.v", "self.v = nn.Parameter(torch.randn(20))", None, "eval", (), "product_to_sum", ["mul", "sum"]),
    "a product with a column is a sum": ("return x @ self.v", "self.v = nn.Parameter(torch.randn(20, 1))", None, "eval", (), "product_to_sum", ["view", "mul", "sum"]),
    "a diagonal matrix scales rows": ("return torch.diag(self.v) @ x.t()", "self.v = nn.Parameter(torch.randn(20))", None, "eval", (), "diagonal_to_scale", ["permute", "view", "mul"]),
    "a diagonal matrix scales columns": ("return x @ torch.diag(self.v)", "self.v = nn.Parameter(torch.randn(20))", None, "eval", (), "diagonal_to_scale", ["mul"]),
}  # fmt: skip

#: The same, for graphs that the rewrite must not change.
LEAVES_ALONE = {
    "few channels in TF32": ("return self.a(x)", "self.a = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 8, 8)", "eval", (LAST_IN_TF32,), "few_channels_by_threads"),
    "few channels whose statistics are not kept": ("y = self.n(self.a(x))\nreturn self.b(y)", "self.a, self.n, self.b = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)", "torch.randn(2, 3, 8, 8)", "eval", (LAST_IN_TF32,), "exact_statistics"),
    "windows that leave a column out": ("return self.c(x)", "self.c = nn.Conv2d(3, 5, 8, stride=8)", "torch.randn(2, 3, 16, 25)", "eval", (), "patches_as_rows"),
    "an einsum of which two parts are read": ("y = torch.einsum('bzc,bcn->bzn', x, x.mT)\nreturn y[:, 0], y[:, 1]", "", "torch.randn(3, 5, 4)", "eval", (), "parts_of_einsums"),
    "an einsum of zeros that are not summed over": ("return torch.einsum('bc,bcn->bcn', x[:, :, 0], torch.cat([x[:, :1] * 0, x[:, 1:]], 1))", "", "torch.randn(3, 5, 4)", "eval", (), "parts_of_einsums"),
    "a bag with a word that does not count": ("return F.embedding_bag(x, self.w, mode='sum', padding_idx=0)", "self.w = nn.Parameter(torch.randn(9, 4))", "torch.randint(0, 9, (5, 3))", "eval", (), "bags_to_sums"),
    "a small map of a weight that maps read": ("return x * self.s.exp() + torch.arange(20)", SCALE, None, "eval", (), "prepare_weights"),
    "a map of a weight that is returned": ("return x, (self.w * 2).t()", "self.w = nn.Parameter(torch.randn(100, 100))", None, "eval", (), "prepare_weights"),
    "a map of a buffer that changes": ("self.w.mul_(2)\nreturn F.linear(x, self.w + 1)", "self.register_buffer('w', torch.randn(30, 20))", None, "eval", (), "prepare_weights"),
    "a random mask of a weight": ("return F.linear(x, F.dropout(self.w, 0.5, True))", "self.w = nn.Parameter(torch.randn(30, 20))", None, "train", (), "prepare_weights"),
    "a reduction of many": ("return x.softmax(1), x.sum((0, 1))", "", "torch.randn(6, 17, 30)", "eval", (), "reduce_few_by_threads"),
    "a reduction that has few results": ("return x.sum(1)", "", "torch.randn(6, 12)", "eval", (), "reduce_few_by_threads"),
    "sums at two places": ("return torch.zeros(2, 20, dtype=x.dtype).index_add(0, torch.zeros(6, dtype=torch.int64), x)", "", None, "eval", (), "scatter_to_sum"),
    "a returned conversion to the same dtype": ("return x.to(torch.float32, copy=True)", "", None, "eval", (), "drop_identity"),
    "a copy of a buffer that changes then": ("y = self.b.clone()\nself.b.add_(1)\nreturn x * y", "self.register_buffer('b', torch.ones(20))", None, "eval", (), "drop_identity"),
    "dropout in train mode": ("return F.dropout(x, 0.5, self.training)", "", None, "train", (), "drop_identity"),
    "a copy that is returned": ("y = F.relu(x)\nreturn y, y.clone()", "", None, "eval", (), "drop_identity"),
    "a view to another shape": ("return F.relu(x.view(-1))", "", None, "eval", (), "drop_identity"),
    "a weight that is cast for a map": ("return x.bfloat16() * self.w.bfloat16()", "self.w = nn.Parameter(torch.randn(20))", None, "eval", (), "fold_casts"),
    "a contraction with no transpose": ("return x @ self.w", "self.w = nn.Parameter(torch.randn(20, 30))", None, "eval", (), "matmul_to_linear"),
    "contractions with the transposes of a batch": ("return x @ x.mT", "", "torch.randn(2, 3, 12)", "eval", (), "matmul_to_linear"),
    "a transpose with a bias for each element": ("return torch.addmm(x, x, self.w.t())", "self.w = nn.Parameter(torch.randn(20, 20))", None, "eval", (), "matmul_to_linear"),
    "a product of flattened rows that is read flat": ("return F.gelu(x.view(-1, 20) @ self.w)", "self.w = nn.Parameter(torch.randn(20, 30))", "torch.randn(2, 3, 20)", "eval", (), "product_of_viewed_rows"),
    "a product of rows of which a view splits features": ("return F.gelu((x.view(-1, 10) @ self.w).view(2, 3, 2, 30))", "self.w = nn.Parameter(torch.randn(10, 30))", "torch.randn(2, 3, 20)", "eval", (), "product_of_viewed_rows"),
    "tanh of a steeper softplus": ("return torch.tanh(F.softplus(x, beta=2)) * x", "", None, "eval", (), "softplus_to_mish"),
    "tanh of the softplus of another value": ("return torch.tanh(F.softplus(x)) * (x + 1)", "", None, "eval", (), "softplus_to_mish"),
    "tanh of a softplus that is used twice": ("y = F.softplus(x)\nreturn torch.tanh(y) * x, F.relu(y)", "", None, "eval", (), "softplus_to_mish"),
    "a layer of many features": ("return self.linear(x)", "self.linear = nn.Linear(9, 5)", "torch.randn(4, 6, 9)", "eval", (), "tiny_product_to_sums"),
    "a layer of many columns": ("return self.linear(x)", "self.linear = nn.Linear(3, 17)", "torch.randn(4, 6, 3)", "eval", (), "tiny_product_to_sums"),
    "a quotient by another number": ("y = x.long()\nreturn y - y // 3 * 4", "", None, "eval", (), "quotient_to_remainder"),
    "a quotient that is used twice": ("y = x.long()\nz = y // 3\nreturn y - z * 3, z", "", None, "eval", (), "quotient_to_remainder"),
    "a map of permuted rows and others": ("return (x.transpose(0, 1) + torch.topk(x, 12)[0].flip(0).reshape(5, 4, 12)).transpose(0, 1)", "", "torch.randn(4, 5, 12)", "eval", (), "permute_behind"),
    "rows in order": ("return self.linear(x.transpose(1, 2).reshape(20, 12)).relu()", LINEAR, "torch.randn(4, 2, 5, 6)", "eval", (), "rows_in_order"),
    "rows of features out of order": ("return self.linear(x.permute(2, 0, 3, 1).reshape(20, 12)).relu()", LINEAR, "torch.randn(4, 2, 5, 6)", "eval", (), "rows_in_order"),
    "rows that repeat": ("return self.linear(x.expand(5, 4, 12).transpose(0, 1)).relu()", LINEAR, "torch.randn(4, 12)", "eval", (), "rows_in_order"),
    "a linear layer of permuted features": ("return self.linear(x.transpose(1, 2))", LINEAR, "torch.randn(4, 12, 5)", "eval", (), "permute_behind"),
    "a linear layer of permuted rows that is returned": ("return self.linear(x.transpose(0, 1))", LINEAR, "torch.randn(4, 5, 12)", "eval", (), "permute_behind"),
    "elements at places of their transpose": ("return x[torch.arange(6), torch.arange(20)[:, None]].relu()", "", None, "eval", (), "places_in_order"),
    "views that no copy is between": ("return torch.topk(self.linear(x).view(4, 5, 2, 10).transpose(1, 2), 2)[0]", LINEAR, "torch.randn(4, 5, 12)", "eval", (), "views_in_one"),
    "views that kernels read through": ("return self.linear(x).transpose(0, 1)[..., :16].reshape(5, 8, 8).relu()", LINEAR, "torch.randn(4, 5, 12)", "eval", (), "views_in_one"),
    "windows of an input": ("a = x.view(2, 2, 3, 2, 3, 5).transpose(2, 3).reshape(8, 9, 5)\nreturn a @ a.mT", "", "torch.randn(2, 6, 6, 5)", "eval", (), "store_as_read"),
    "a view of a map": ("return x.relu().transpose(1, 2)", "", "torch.randn(4, 5, 12)", "eval", (), "order_outputs"),
    "a view of an input": ("return x.transpose(1, 2)", "", "torch.randn(4, 5, 12)", "eval", (), "order_outputs"),
    "a product of a transpose": ("return x.transpose(1, 2) @ x", "", "torch.randn(4, 5, 12)", "eval", (), "order_outputs"),
    "a map that is expanded": ("return x.relu().expand(3, 5, 12)", "", "torch.randn(5, 12)", "eval", (), "order_outputs"),
    "a sum of a concatenation": ("return torch.cat([x, x.relu()], 1).sum(1)", "", None, "eval", (), "stack_to_maps"),
    "a sum of a stack over another dimension": ("return torch.stack([x, x.relu()], 1).sum(2)", "", None, "eval", (), "stack_to_maps"),
    "a sum of a stack that is returned": ("y = torch.stack([x, x.relu()], 1)\nreturn y.sum(1), y", "", None, "eval", (), "stack_to_maps"),
    "a sum of a stack of seventeen": ("return torch.stack([x * i for i in range(17)], 1).sum(1)", "", None, "eval", (), "stack_to_maps"),
    "an average pool of mapped features": ("return F.avg_pool1d(self.linear(x).relu(), 4)", LINEAR, "torch.randn(2, 3, 12)", "eval", (), "average_into_linear"),
    "an average pool of features that overlap": ("return F.avg_pool1d(self.linear(x), 4, stride=2)", LINEAR, "torch.randn(2, 3, 12)", "eval", (), "average_into_linear"),
    "an average pool along sequences": ("return F.avg_pool1d(self.linear(x).transpose(1, 2), 4)", LINEAR, "torch.randn(2, 12, 12)", "eval", (), "average_into_linear"),
    "an average pool of a product of inputs": ("return F.avg_pool1d(F.linear(x, self.w * x.mean()).unsqueeze(1), 5)", "self.w = nn.Parameter(torch.randn(20, 20))", None, "eval", (), "average_into_linear"),
    "a loop whose gates read the state": ("h, o = x[:, 0], []\nfor t in range(1, 12):\n    h = h.sigmoid() * h + x[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)", "", "torch.randn(3, 12, 4)", "eval", (), "unrolled_to_scan"),
    "running sums that are cut in front": ("return x.cumsum(1)[:, 2:]", "", None, "eval", (), "shift_in_front_of_scan"),
    "running sums behind a one": ("return torch.cat((torch.ones_like(x[:, :1]), x.cumsum(1)), 1)", "", None, "eval", (), "shift_in_front_of_scan"),
    "running sums that others read": ("y = x.cumsum(1)\nreturn y[:, :9], y.relu()", "", None, "eval", (), "shift_in_front_of_scan"),
    "one layer as a wave": ("return self.rnn(x)", "self.rnn = nn.RNN(12, 5)", "torch.randn(3, 4, 12)", "eval", (), "layers_as_wave"),
    "layers of two directions as a wave": ("return self.rnn(x)", "self.rnn = nn.RNN(12, 5, 2, bidirectional=True)", "torch.randn(3, 4, 12)", "eval", (), "layers_as_wave"),
    "dropout between layers": ("return self.lstm(x)[0]", "self.lstm = nn.LSTM(12, 5, 2, dropout=0.5)", "torch.randn(3, 4, 12)", "train", (), "layers_apart"),
    "a projection": ("return self.lstm(x)[0]", "self.lstm = nn.LSTM(12, 5, proj_size=3)", "torch.randn(3, 4, 12)", "eval", (), "layers_apart"),
    "attention of broadcast heads": ("return F.scaled_dot_product_attention(x, x[:1], x[:1])", "", "torch.randn(2, 3, 5)", "eval", (), "attention_apart"),
    "attention with dropout": ("return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)", "", "torch.randn(2, 3, 5)", "eval", (), "attention_apart"),
    "a bias of attention": ("return F.scaled_dot_product_attention(x, x, x, x[:, :, :3])", "", "torch.randn(2, 3, 5)", "eval", (), "masks_as_biases"),
    "queries that lie with their heads side by side": ("q = x.transpose(1, 2)\nreturn F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(2)", "", "torch.randn(2, 3, 4, 5)", "eval", (), "queries_as_rows"),
    "heads of the library's attention": ("return self.linear(F.scaled_dot_product_attention(x, x, x).transpose(1, 2).flatten(2))", LINEAR, "torch.randn(2, 3, 5, 4)", "eval", (), "store_as_read"),
    "linear layers of two values": ("return self.linear(x), F.linear(x + 1, self.linear.weight)", LINEAR, IN, "eval", (), "siblings_in_one"),
    "convolutions of groups": ("return self.a(x) + self.b(x)", "self.a, self.b = nn.Conv1d(4, 4, 1, groups=2), nn.Conv1d(4, 4, 1, groups=2)", "torch.randn(2, 4, 6)", "eval", (), "siblings_in_one"),
    "a max pool with padding": ("return F.max_pool1d(self.linear(x), 2, padding=1)", LINEAR, "torch.randn(2, 3, 12)", "eval", (), "pool_to_reduction"),
    "a max pool that leaves features out": ("return F.max_pool1d(self.linear(x), 3)", LINEAR, "torch.randn(2, 3, 12)", "eval", (), "pool_to_reduction"),
    "an average pool for the largest": ("return F.avg_pool1d(self.linear(x), 4)", LINEAR, "torch.randn(2, 3, 12)", "eval", (), "pool_to_reduction"),
    "a max pool of an input": ("return F.max_pool1d(x.unsqueeze(1), 2)", "", None, "eval", (), "pool_to_reduction"),
    "a factor that is used twice": ("y = x * 2.0\nreturn y * 3.0, F.relu(y)", "", None, "eval", (), "merge_scalar_factors"),
    "a factor that is returned": ("y = x * 2.0\nreturn y * 3.0, y", "", None, "eval", (), "merge_scalar_factors"),
    "a divisor that is no power of two": ("return F.relu(x) / 3.0 * 3.0", "", None, "eval", (), "merge_scalar_factors"),
    "a division by zero": ("return F.relu(x) / 0.0 * 3.0", "", None, "eval", (), "merge_scalar_factors"),
    "a sum of two values": ("return F.relu(x) + torch.tanh(x)", "", None, "eval", (), "merge_scalar_factors"),
    "integers": ("return torch.sort(x)[1] * 2 * 3", "", None, "eval", (), "merge_scalar_factors"),
    "batch norm in train mode for the affine form": ("return self.norm(x)", NORM, None, "train", (), "batchnorm_to_affine"),
    "batch norm with statistics of the batch for the affine form": ("return self.norm(x)", "self.norm = nn.BatchNorm1d(20, track_running_stats=False)", None, "eval", (), "batchnorm_to_affine"),
    "batch norm in eval mode for the split": ("return self.norm(x)", NORM, None, "eval", (), "split_batchnorm"),
    "a sum of pixels alone behind a convolution": ("return self.c(x).sum((2, 3))", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)", "train", (), "reduce_images_first"),
    "the least of a row behind group norm of an input": ("return self.n(x).amin(1)", "self.n = nn.GroupNorm(5, 20)", None, "eval", (), "reduce_groups_first"),
    "a maximum over all pixels": ("return self.c(x).amax((2, 3))", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)", "train", (), "extreme_into_pool"),
    "batch norm of an input": ("return self.n(x)", "self.n = nn.BatchNorm2d(3)", "torch.randn(2, 3, 7, 8)", "train", (), "reduce_images_first"),
    "batch norm of a wide batch for the group form": ("return self.norm(x)", NORM, None, "train", (), "group_norm_to_moments"),
    "softmax of short rows": ("return torch.softmax(x, 1)", "", None, "eval", (), "split_norms"),
    "batch norm over another dimension than the batch": ("return self.norm(x.t())", "self.norm = nn.BatchNorm1d(6, affine=False, track_running_stats=False)", None, "train", (), "split_batchnorm"),
    "an affine value that is used twice": ("y = self.norm(x)\nreturn y * self.s, F.relu(y)", f"{NORM}\n{SCALE}", None, "eval", ("batchnorm_to_affine",), "merge_affine"),
    "an affine value that is returned": ("y = self.norm(x)\nreturn y * self.s, y", f"{NORM}\n{SCALE}", None, "eval", ("batchnorm_to_affine",), "merge_affine"),
    "a map between the affine values": ("return F.relu(self.norm(x)) * self.s", f"{NORM}\n{SCALE}", None, "eval", ("batchnorm_to_affine",), "merge_affine"),
    "a scale that is computed from the input": ("return self.norm(x) * F.relu(x)", NORM, None, "eval", ("batchnorm_to_affine",), "merge_affine"),
    "a scale that widens the value": ("return F.relu(x) * self.a * self.s", "self.a = nn.Parameter(torch.randn(1))\nself.s = nn.Parameter(torch.randn(5, 1, 20))", None, "eval", (), "merge_affine"),
    "a linear layer that is used twice": ("y = self.linear(x)\nreturn self.norm(y), F.relu(y)", f"{LINEAR}\n{NORM}", IN, "eval", ("batchnorm_to_affine",), "fold_batchnorm_into_linear"),
    "a linear layer that is returned": ("y = self.linear(x)\nreturn y * self.s, y", f"{LINEAR}\n{SCALE}", IN, "eval", (), "pull_scale_into_linear"),
    "a linear layer times itself": ("y = self.linear(x)\nreturn y * y", LINEAR, IN, "eval", (), "pull_scale_into_linear"),
    "a scale for each row": ("return self.linear(x) * self.s", f"{LINEAR}\nself.s = nn.Parameter(torch.randn(6, 1))", IN, "eval", (), "pull_scale_into_linear"),
    "positions that kernels make where they read them": ("return x * torch.arange(20)", SCALE, None, "eval", (), "keep_tables"),
    "angles of positions that are returned": ("y = torch.cos(torch.arange(20) * self.s)\nreturn x * y, y.view(4, 5)", SCALE, None, "eval", (), "keep_tables"),
    "angles of a buffer that changes": ("self.s.add_(1.0)\nreturn x * torch.cos(torch.arange(20) * self.s)", "self.register_buffer('s', torch.randn(20))", None, "eval", (), "keep_tables"),
    "a scale that widens the contraction": ("return self.linear(x) * self.s", "self.linear = nn.Linear(12, 1)\nself.s = nn.Parameter(torch.randn(20))", IN, "eval", (), "pull_scale_into_linear"),
    "a scale that the forward itself changes": ("self.s.add_(1.0)\nreturn self.linear(x) * self.s", f"{LINEAR}\nself.register_buffer('s', torch.randn(20))", IN, "eval", (), "pull_scale_into_linear"),
    "a scale behind another contraction than a linear layer": ("return F.relu(x) * self.s", SCALE, None, "eval", (), "pull_scale_into_linear"),
    "sequences whose steps are the channels": ("return self.norm(self.linear(x))", f"{LINEAR}\nself.norm = nn.BatchNorm1d(3)", "torch.randn(2, 3, 12)", "eval", ("batchnorm_to_affine",), "fold_batchnorm_into_linear"),
    "a mean over the channels of a convolution": ("return self.c(x).mean((1, 2))", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)", "eval", (), "mean_into_convolution"),
    "a mean of a convolution that steps over inputs": ("return self.c(x).mean(2)", "self.c = nn.Conv1d(3, 4, 3, stride=4)", "torch.randn(2, 3, 40)", "eval", (), "mean_into_convolution"),
    "a convolution that is used twice": ("y = self.c(x)\nreturn self.n(y), F.relu(y)", "self.c, self.n = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)", "torch.randn(2, 3, 7, 8)", "eval", ("batchnorm_to_affine",), "affine_into_convolution"),
    "an average pool of a convolution that steps over inputs": ("return F.avg_pool2d(self.c(x), 2)", "self.c = nn.Conv2d(3, 4, 3, stride=2)", "torch.randn(2, 3, 9, 9)", "eval", (), "average_into_convolution"),
    "an average pool with padding": ("return F.avg_pool2d(self.c(x), 2, padding=1)", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 9, 9)", "eval", (), "average_into_convolution"),
    "a sum over rows of a linear layer": ("return self.linear(x).sum(0)", LINEAR, IN, "eval", (), "sum_into_linear"),
    "a sum of what is not affine": ("return F.relu(self.linear(x)).sum(1)", LINEAR, IN, "eval", (), "sum_into_linear"),
    "a sum of features that are used twice": ("y = self.linear(x)\nreturn y.sum(1), F.relu(y)", LINEAR, IN, "eval", (), "sum_into_linear"),
    "a sum of features scaled by row": ("return (self.linear(x) * self.s).sum(1)", f"{LINEAR}\nself.s = nn.Parameter(torch.randn(6, 1))", IN, "eval", (), "sum_into_linear"),
    "a convolution without a ReLU behind it": ("return self.c(x)", "self.c = nn.Conv2d(16, 4, 3)", "torch.randn(2, 16, 7, 8)", "eval", (), "convolutions_in_cudnn"),
    "a convolution of few channels": ("return F.relu(self.c(x))", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)", "eval", (), "convolutions_in_cudnn"),
    "a window that nothing reads with channels last": ("return self.c(x + 1)", "self.c = nn.Conv2d(16, 16, 3, groups=16)", "torch.randn(2, 16, 6, 18)", "eval", (), "windows_channels_last"),
    "samples of few channels": ("return F.grid_sample(x, x.permute(0, 2, 3, 1)[..., :2])", "", "torch.randn(2, 15, 4, 5)", "eval", (), "sample_channels_last"),
    "a norm over channels of few pixels": ("return self.n(x.permute(0, 2, 3, 1))", "self.n = nn.LayerNorm(16)", "torch.randn(2, 16, 3, 5)", "eval", (), "images_in_order"),
    "a convolution of sequences": ("return self.c(x)", "self.c = nn.Conv1d(3, 4, 3)", "torch.randn(2, 3, 40)", "eval", (), "convolutions_channels_last"),
    "a product with two columns": ("return x @ self.v", "self.v = nn.Parameter(torch.randn(20, 2))", None, "eval", (), "product_to_sum"),
    "a diagonal that is another than the main one": ("return x @ torch.diag(self.v, 1)", "self.v = nn.Parameter(torch.randn(19))", None, "eval", (), "diagonal_to_scale"),
}  # fmt: skip


def prepared(forward: str, init: str, inputs: str | None, mode: str, before: tuple[str, ...]) -> OpGraph:
    found = captured(forward, init, inputs or "torch.randn(6, 20)", mode)
    for name in before:
        found = last_in_tf32(found) if name == LAST_IN_TF32 else REWRITES[name].run(found).pruned()
    return found


def last_in_tf32(of: OpGraph) -> OpGraph:
    """The graph as on a GPU, where PyTorch multiplies its last convolution in TF32."""
    *_, last = [n for n in of.nodes if n.op == "conv2d"]
    return of.with_node(replace(last, tf32=True, products=1))


@pytest.mark.parametrize("case", APPLIES)
def test_rewrite_keeps_the_value(case: str) -> None:
    forward, init, inputs, mode, before, rewrite, _ = APPLIES[case]
    found = prepared(forward, init, inputs, mode, before)
    assert_same_value(found, REWRITES[rewrite].run(found).pruned())


@pytest.mark.parametrize("case", APPLIES)
def test_rewrite_comes_to(case: str) -> None:
    forward, init, inputs, mode, before, rewrite, expected = APPLIES[case]
    assert ops(REWRITES[rewrite].run(prepared(forward, init, inputs, mode, before)).pruned()) == expected


def test_pairs_of_an_einsum_lie_as_what_they_are_multiplied_with() -> None:
    of = decompose(captured("return torch.einsum('bln,bsn,bls,bsp->blp', x, x, x @ x.mT, x)", "", "torch.randn(3, 6, 4)"))
    assert [node.op for node in of.nodes if node.name.startswith("einsum") and node.op != "view"] == ["permute", "bmm", "mul", "bmm"]


@pytest.mark.parametrize("case", [case for case, of in APPLIES.items() if of[5] == "parts_of_einsums"])
def test_einsums_that_a_rewrite_makes_have_products_of_pairs(case: str) -> None:
    found = prepared(*APPLIES[case][:5])
    parts = decompose(REWRITES["parts_of_einsums"].run(found))
    assert "aten.einsum.default" not in ops(parts)
    assert_same_value(found, parts)


@pytest.mark.parametrize("case", LEAVES_ALONE)
def test_rewrite_leaves_alone(case: str) -> None:
    forward, init, inputs, mode, before, rewrite = LEAVES_ALONE[case]
    found = prepared(forward, init, inputs, mode, before)
    assert REWRITES[rewrite].run(found) == found


#: Operators whose sums a rewrite moves: an infinity meets weights of both signs, or of one. Small, as each input is tried.
SUMS = {
    "features": ("self.linear(x).sum(1)", "self.linear = nn.Linear(40, 2)", "torch.randn(1, 40)", "sum_into_linear"),
    "scaled features": ("(self.linear(x) * self.s).mean(1)", "self.linear, self.s = nn.Linear(40, 2), nn.Parameter(torch.randn(2))", "torch.randn(1, 40)", "sum_into_linear"),
    "parts of features": ("F.avg_pool1d(self.linear(x), 2)", "self.linear = nn.Linear(40, 8)", "torch.randn(1, 40)", "average_into_linear"),
    "all pixels": ("self.c(x).mean((2, 3))", "self.c = nn.Conv2d(1, 8, 3, padding=1)", "torch.randn(1, 1, 5, 6)", "mean_into_convolution"),
    "all pixels of a transposed convolution": ("self.c(x).mean((2, 3))", "self.c = nn.ConvTranspose2d(1, 8, 3, stride=2, padding=1)", "torch.randn(1, 1, 5, 6)", "mean_into_convolution"),
    "windows": ("F.avg_pool2d(self.c(x), 2)", "self.c = nn.Conv2d(1, 8, 3, padding=1)", "torch.randn(1, 1, 5, 6)", "average_into_convolution"),
    "windows of a transposed convolution": ("F.avg_pool2d(self.c(x), 2)", "self.c = nn.ConvTranspose2d(1, 8, 3, stride=2, padding=1)", "torch.randn(1, 1, 5, 6)", "average_into_convolution"),
}  # fmt: skip


@pytest.mark.parametrize("case", SUMS)
def test_rewritten_sums_of_infinities_are_as_before(case: str) -> None:
    forward, init, inputs, rewrite = SUMS[case]
    found = captured(f"return {forward}", init, inputs)
    changed = REWRITES[rewrite].run(found).pruned()
    assert changed != found
    values = random_values(found)
    (x,) = (v.name for v in found.inputs)
    for number in range(values[x].numel()):
        other = values[x].clone()
        other.view(-1)[number] = -torch.inf
        torch.testing.assert_close(run(changed, values | {x: other}), run(found, values | {x: other}), equal_nan=True)


def test_every_rewrite_has_a_case_of_each_kind() -> None:
    assert (
        {c[5] for c in APPLIES.values()}
        == {c[5] for c in LEAVES_ALONE.values()} | {"fold_batchnorm_into_linear"}
        == set(REWRITES)
    )


# Variants


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_every_variant_of_the_reference_problems_keeps_the_value(name: str, mode: str) -> None:
    found = graph(reference(name, mode))
    for variant in variants(found):
        assert_same_value(found, variant.graph)


def test_plainest_variant_has_no_rewrite() -> None:
    assert variants(graph(reference(NAMES[1], "eval")))[0].rewrites == ()


def test_variants_differ_from_each_other() -> None:
    graphs = [v.graph for v in variants(graph(reference(NAMES[3], "eval")))]
    assert all(a != b for i, a in enumerate(graphs) for b in graphs[:i])


def test_variants_name_their_rewrites() -> None:
    (*_, last) = variants(graph(reference(NAMES[3], "eval")))
    assert last.rewrites == ("batchnorm_to_affine", "merge_affine", "fold_batchnorm_into_linear")


@pytest.mark.parametrize(("channels", "moved"), [(3, False), (16, True)])
def test_channels_of_half_types_are_last_in_eights(channels: int, moved: bool) -> None:
    found = captured("return F.relu(self.c(x))", f"self.c = nn.Conv2d({channels}, 4, 3).bfloat16()", f"torch.randn(2, {channels}, 7, 8).bfloat16()")
    assert ("conv2d_channels_last" in ops(REWRITES["convolutions_channels_last"].run(found))) is moved


def test_channels_are_last_where_schedules_run_along_them() -> None:
    found = captured("return F.relu(self.c(x))", "self.c = nn.Conv2d(3, 4, 3)", "torch.randn(2, 3, 7, 8)")
    assert len(variants(found)) == 1
    assert variants(found, offers={Offer.CHANNELS_LAST})[-1].rewrites == ("convolutions_channels_last",)


def test_cudnn_takes_batch_norm_of_half_types_along() -> None:
    init = "self.c, self.n = nn.Conv2d(16, 8, 3, bias=False).bfloat16(), nn.BatchNorm2d(8).bfloat16()"
    found = captured("return F.relu(self.n(self.c(x)))", init, "torch.randn(2, 16, 7, 8).bfloat16()")
    last = variants(found, offers={Offer.CUDNN})[-1]
    assert "conv2d_relu_channels_last" in ops(last.graph) and {f.type.dtype for f in last.graph.folded if f.type.numel > 8} == {"bfloat16"}


def test_graph_without_anything_to_rewrite_has_one_variant() -> None:
    assert len(variants(captured("return F.gelu(x)"))) == 1


@pytest.mark.parametrize("name", ["view", "_unsafe_view"])
def test_view_behind_a_dropped_copy_takes_any_strides(name: str) -> None:
    assert str(aten(f"{name}.default", X, Many((4, 5)))) == "torch.reshape({0}, [4, 5])"


# Complex numbers

_TURN = "self.register_buffer('turn', torch.polar(torch.ones(20), torch.rand(20)))"


@pytest.mark.parametrize(
    ("forward", "kept"),
    [
        ("return torch.view_as_real(torch.view_as_complex(x) * self.turn.conj()).flatten(1)", ["view_as_real"]),
        ("return torch.complex(x[..., 0], x[..., 1]).mul(self.turn * 2.0).abs()", ["view_as_real"]),
        ("return (torch.exp(1j * x[..., 0]) + 0.5 - self.turn / 3.0).imag", ["view_as_real"]),
        ("return torch.fft.irfft(torch.fft.rfft(x[..., 0]) * self.turn[:11], n=20)", ["fft_rfft", "view_as_real", "view_as_real", "view_as_complex", "fft_irfft"]),
    ],
)  # fmt: skip
def test_complex_numbers_become_pairs_of_real_ones(forward: str, kept: list[str]) -> None:
    found = variants(captured(forward, _TURN, "torch.randn(6, 20, 2)"))[-1].graph
    assert [op.split(".")[1] for op in ops(found) if op not in OPS] == kept


def test_complex_numbers_of_a_buffer_that_changes_stay_as_they_are() -> None:
    found = captured("y = x * self.turn\nself.turn.mul_(0.5)\nreturn y + self.turn", _TURN, "torch.randn(6, 20, dtype=torch.complex64)")
    assert [v.graph for v in variants(found)] == [found]


def test_a_prepared_weight_is_written_without_needless_parentheses() -> None:
    found = REWRITES["sum_into_linear"].run(captured("return (self.linear(x) * 2.0 - 1.0).mean(1)", LINEAR, IN))
    sums, *_, shift = (written(d.call, lambda number, d=d: d.sources[number], "device") for d in found.folded)
    terms = "torch.stack((rows, rows.sign(), torch.ones_like(rows))).sum(1)"
    factor = "(torch.ones(20, dtype=torch.float64, device=device) * 2.0)"
    parts = f"(f[:, None].mul(w) for f, w in zip({factor}.split(256), linear_weight.split(256)))"
    assert sums == f"(sum({terms} for rows in {parts}) / 20).float()"
    bias = "torch.zeros(20, dtype=torch.float64, device=device) + linear_bias.double().reshape(-1) * 2.0 - 1.0"
    assert shift == f"(({bias}).sum(0, keepdim=True) / 20).float()"
