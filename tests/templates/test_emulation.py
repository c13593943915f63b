"""Whole candidates for sm_90a and sm_80, run on the emulated device, and the faults that it finds."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import emulate
import pytest
import torch
from emulated import Device, EmulationError, build, room
from models import design, made, source

from kgen.candidate import Candidate, Params
from kgen.codegen.render import translation_unit
from kgen.codegen.symbols import linked, written
from kgen.devices.hardware import for_arch
from kgen.problems.problem import LoadedProblem, Problem, load
from kgen.protocol import Accuracy
from kgen.tuning.design import Design
from kgen.tuning.search import Point

_RECURRENT = r"linear\(library\) \+ recurrence\[lstm, lstm\] \+ pointwise"
_W = "self.w = nn.Parameter(torch.randn(24, 1, 1))"
_LONG = "torch.randn(3, 40000)"

#: Problem: forward, __init__, inputs, parameters of forward; the plan's name; points of its first kernel.
CASES: dict[str, tuple[tuple[str, str, str, str], str, list[Params]]] = {
    "a linear layer": (
        ("return F.gelu(self.linear(x)) * x[:, :1]", "self.linear = nn.Linear(200, 132)", "torch.randn(300, 200)", "x"), "contraction", [
            {"variant": "sm90", "tile": "128x256", "multicast": 1}, {"variant": "sm90", "tile": "64x256", "cluster": 2},
            {"variant": "whole"}]),
    "long rows on the left": (
        ("return self.linear(x)", "self.linear = nn.Linear(5000, 133, bias=False)", "torch.randn(130, 5000)", "x"), "contraction", [
            {"variant": "sm90", "tile": "128x128", "promotion_interval": 128, "cluster": 4}, {"variant": "sm90", "tile": "64x256", "splits": 8},
            {"variant": "sm80", "tile": "64x64/4"}]),
    "very long rows of rounded terms": (
        ("return F.linear(x, self.w)", "self.w = nn.Parameter(torch.rand(66, 32768))", "torch.rand(66, 32768)", "x"), "contraction", [
            {"variant": "sm90", "term_bits": "9+9"}]),
    "tiles of w for two blocks": (
        ("return self.linear(x)", "self.linear = nn.Linear(100, 2900, bias=False)", "torch.randn(1500, 100)", "x"), "contraction", [
            {"variant": "sm90", "multicast": 2, "tile": "128x256"}, {"variant": "sm90", "multicast": 2, "tile": "128x128"}]),
    "tiles of x for two blocks": (
        ("return self.linear(x)", "self.linear = nn.Linear(100, 12800, bias=False)", "torch.randn(100, 100)", "x"), "contraction", [
            {"variant": "sm90", "multicast": 2, "tile": "128x256"}]),
    "a batch of transposed matrices": (
        ("return torch.bmm(x.mT, y).relu()", "", "torch.randn(3, 300, 77), torch.randn(3, 300, 133)", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "128x128"}, {"variant": "sm80"}]),
    "long sums of few": (
        ("return (x @ y.mT).relu()", "", "torch.randn(130, 4132), torch.randn(133, 4132)", "x, y"), "contraction", [
            {"variant": "slices", "multicast": 1}, {"variant": "slices", "multicast": 2}]),
    "long sums of few, with columns of w for rows": (
        ("return x @ y", "", "torch.randn(130, 16384), torch.randn(16384, 132)", "x, y"), "contraction", [
            {"variant": "slices", "multicast": 1}, {"variant": "slices", "multicast": 2}]),
    "columns in a cluster's registers": (
        ("return x.mT @ y", "", "torch.randn(1100, 70), torch.randn(1100, 133)", "x, y"), "contraction", [{"variant": "sm90"}]),
    "a tile to a warpgroup": (
        ("return (x @ y.mT).relu()", "", "torch.randn(200, 70), torch.randn(2801, 70)", "x, y"), "contraction", [{"variant": "sm90", "tile": "128x128+"}]),
    "three warpgroups in turns": (
        ("return (x @ y.mT).relu()", "", "torch.randn(300, 64), torch.randn(1401, 64)", "x, y"), "contraction", [{"variant": "sm90", "tile": "192x128"}]),
    "three warpgroups in turns, with a batch of matrices": (
        ("return torch.bmm(x, y.mT)", "", "torch.randn(3, 200, 9), torch.randn(3, 701, 9)", "x, y"), "contraction", [{"variant": "sm90", "tile": "192x128"}]),
    "small products of heads side by side": (
        ("return torch.einsum('blhn,bshn->bhls', x, y) * self.s + 1.0", "self.s = nn.Parameter(torch.randn(2, 37, 1))",
         "torch.randn(3, 37, 2, 20), torch.randn(3, 45, 2, 20)", "x, y"), "batched_product", [
            {"tile": "32x32", "chunk": 16, "own": "4x4"}, {"tile": "64x64", "own": "4x4", "matrices": 2}]),
    "bfloat16, small products whose sums lie apart": (
        ("return (x.permute(0, 2, 3, 1) @ y.transpose(1, 2)).transpose(1, 2)", "", "torch.randn(3, 24, 2, 12).bfloat16(), torch.randn(3, 24, 2, 6).bfloat16()", "x, y"),
        "batched_product", [{"tile": "16x8", "own": "2x2", "matrices": 4}]),
    "group norm of columns": (
        ("return self.n(F.silu(self.linear(x))).relu() + y", "self.linear, self.n = nn.Linear(200, 176), nn.GroupNorm(11, 176)",
         "torch.randn(150, 200), torch.randn(150, 176)", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "128x128", "cluster": 1}, {"variant": "sm90", "cluster": 2},
            {"variant": "sm80", "tile": "64x64/4"}, {"variant": "whole", "tile": "32x64"}]),
    "group norm of sums in memory": (
        ("return self.n(self.linear(x))", "self.linear, self.n = nn.Linear(5000, 192), nn.GroupNorm(3, 192, affine=False)", "torch.randn(130, 5000)", "x"),
        "contraction", [{"variant": "sm90", "splits": 8}]),
    "the least of each normalised group of columns": (
        ("return F.layer_norm(self.linear(x).view(-1, 11, 16), (16,)).amin(2)", "self.linear = nn.Linear(200, 176)", "torch.randn(150, 200)", "x"),
        "contraction", [
            {"variant": "sm90", "tile": "128x128", "cluster": 1}, {"variant": "sm80", "tile": "64x64/4"}, {"variant": "whole", "tile": "64x64"}]),
    "softmax of groups of columns": (
        ("return torch.softmax(self.linear(x).view(-1, 6, 32), 2)", "self.linear = nn.Linear(200, 192)", "torch.randn(150, 200)", "x"),
        "contraction", [{"variant": "sm90", "cluster": 1}, {"variant": "sm80"}]),
    "a sum and a maximum of groups of columns": (
        ("y = self.linear(x).view(-1, 44, 4)\nreturn y.sum(2) - y.amax(2) * 2", "self.linear = nn.Linear(200, 176)", "torch.randn(150, 200)", "x"),
        "contraction", [{"variant": "sm90", "cluster": 1}, {"variant": "whole"}]),
    "a rotation of pairs": (
        ("y, z = x[..., ::2], x[..., 1::2]\nreturn torch.stack([y * self.c - z * self.s, z * self.c + y * self.s], -1).flatten(-2)",
         "self.c, self.s = nn.Parameter(torch.randn(5, 12)), nn.Parameter(torch.randn(5, 12))", "torch.randn(6, 5, 24)", "x"), "pointwise", [
            {"vec": 4}, {"vec": 1, "items": 2}]),
    "triples of numbers": (
        ("y = x.unflatten(-1, (-1, 3))\nreturn torch.stack([y[..., 1], y[..., 2] * 2, y[..., 0] + 1], -1)", "", "torch.randn(6, 5, 24)", "x"), "pointwise", [
            {"vec": 4}, {"vec": 2}, {"vec": 1}]),
    "a rotation of halves": (
        ("y, z = x.chunk(2, -1)\nreturn x * self.c + torch.cat([-z, y], -1) * self.s",
         "self.c, self.s = nn.Parameter(torch.randn(5, 24)), nn.Parameter(torch.randn(5, 24))", "torch.randn(6, 5, 24)", "x"), "pointwise", [
            {"vec": 4, "index": "flat"}]),
    "rows of several operands": (
        ("return torch.softmax(torch.cat((x, y, x[:, 1:]), 1), -1)", "", "torch.randn(3, 3, 256), torch.randn(3, 5, 256)", "x, y"), "inner_reduction", [
            {"row_per": "block", "block": 128}, {"row_per": "warp", "vec": 1}]),
    "a stack of two operands": (
        ("return torch.logsumexp(torch.stack([x, y]), 0)", "", "torch.randn(600, 33), torch.randn(600, 33)", "x, y"), "inner_reduction", [
            {"row_per": "line", "rows": 2, "block": 128}]),
    "layer norm of a batch of matrices": (
        ("return F.layer_norm(torch.bmm(x, y).unflatten(2, (2, 64)), (64,))", "", "torch.randn(3, 100, 77), torch.randn(3, 77, 128)", "x, y"),
        "contraction", [{"variant": "sm90"}, {"variant": "sm80"}]),
    "causal attention of heads side by side": (
        ("q, k, v = (t.transpose(1, 2) for t in x.view(2, 150, 3, 2, 40).unbind(2))\n"
         "return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 150, 80)", "", "torch.randn(2, 150, 240)", "x"),
        "tiled_attention", [{"warpgroups": 2, "keys": 64}, {"warpgroups": 3, "keys": 64, "stages": 3}]),
    "attention of grouped queries under a mask": (
        ("y = x.unsqueeze(2).expand(2, 2, 3, 130, 64).reshape(2, 6, 130, 64)\n"
         "return F.scaled_dot_product_attention(q, y, y, m, scale=0.1) * 2", "", "torch.randn(2, 6, 70, 64), torch.randn(2, 2, 130, 64), torch.randn(6, 70, 130).where(torch.arange(70)[:, None] > 2, -torch.inf)", "q, x, m"),
        "tiled_attention", [{"warpgroups": 1, "keys": 96}]),
    "attention by hand with a soft cap in a window": (
        ("s = torch.einsum('bihd,bjhd->bhij', q[..., :70], x[..., :70]) * 0.2\ni = torch.arange(131)\nd = i[:100, None] - i\n"
         "s = torch.where((d >= 0) & (d < 40), (s.tanh() * 3 - d * self.slope), -torch.inf)\n"
         "return torch.einsum('bhij,bjhd->bihd', s.softmax(-1), y).flatten(2)", "self.slope = nn.Parameter(torch.rand(2, 1, 1))",
         "torch.randn(2, 100, 2, 72), torch.randn(2, 131, 2, 72), torch.randn(2, 131, 2, 30)", "q, x, y"),
        "tiled_attention", [{"keys": 64}]),
    "causal attention in blocks of several tiles": (
        ("return F.scaled_dot_product_attention(x, x, x, is_causal=True)", "", "torch.randn(27, 70, 12)", "x"),
        "tiled_attention", [{"warpgroups": 1, "keys": 48, "blocks": "resident"}]),
    "bfloat16, attention in blocks of several tiles": (
        ("return F.scaled_dot_product_attention(x, x, x, m)", "", "torch.randn(1, 27, 70, 8).bfloat16(), torch.randn(27, 70, 70).bfloat16()", "x, m"),
        "tiled_attention", [{"warpgroups": 1, "keys": 48, "blocks": "resident", "loads": "ahead"}]),
    "bfloat16, attention whose heads a linear layer reads side by side": (
        ("return self.linear(F.scaled_dot_product_attention(x, x, x).transpose(1, 2).flatten(2))", "self.linear = nn.Linear(16, 24).bfloat16()", "torch.randn(3, 2, 70, 8).bfloat16()", "x"),
        r"tiled_attention\[[^]]*copy\] \+ contraction", [{"keys": 64}]),
    "causal attention of wide heads": (
        ("return F.scaled_dot_product_attention(q, x, x, is_causal=True)", "", "torch.randn(2, 2, 100, 152), torch.randn(2, 2, 90, 152)", "q, x"),
        "wide_attention", [{"cluster": 2}, {"cluster": 1, "stages": 2}]),
    "attention of wide heads under a mask": (
        ("return F.scaled_dot_product_attention(q, x, y, m) + 1", "", "torch.randn(2, 70, 130) * 3, torch.randn(2, 150, 130), torch.randn(2, 150, 290) * 10.0 ** torch.linspace(-9, 3, 150)[:, None], torch.randn(70, 150)", "q, x, y, m"),
        "wide_attention", [{"cluster": 2}]),
    "attention of wide heads with ragged tiles of keys": (
        ("return F.scaled_dot_product_attention(q, x, y, m)", "", "torch.randn(1, 200, 132), torch.randn(1, 300, 132), torch.randn(1, 300, 20), torch.randn(200, 300)", "q, x, y, m"),
        "wide_attention", [{"cluster": cluster, "stages": stages} for cluster in (1, 2, 4) for stages in (3, 2, 4)]),
    "bfloat16, attention of wide rows": (
        ("return F.scaled_dot_product_attention(x, y, y, is_causal=True)", "", "torch.randn(2, 2, 100, 144).bfloat16(), torch.randn(2, 2, 70, 144).bfloat16()", "x, y"),
        "tiled_attention", [{"keys": 64}]),
    "group norm beside what it is of": (
        ("y = self.linear(x)\nreturn self.n(y.exp() * y) - y", "self.linear, self.n = nn.Linear(200, 192), nn.GroupNorm(6, 192)", "torch.randn(150, 200)", "x"),
        "contraction", [{"variant": "sm90", "cluster": 1}, {"variant": "sm80"}]),
    "bfloat16, group norm of columns": (
        ("return self.n(self.linear(x)).relu()", "self.linear, self.n = nn.Linear(200, 192).bfloat16(), nn.GroupNorm(24, 192).bfloat16()", "torch.randn(150, 200).bfloat16()", "x"),
        "contraction", [
            {"variant": "sm90", "tile": "128x128", "cluster": 1}, {"variant": "mma", "tile": "32x64"}]),
    "bfloat16": (
        ("return F.gelu(self.linear(x))", "self.linear = nn.Linear(200, 136).bfloat16()", "torch.randn(150, 200).bfloat16()", "x"), "contraction", [
            {"variant": "sm90", "tile": "128x128", "cluster": 1}, {"variant": "sm90", "cluster": 2}, {"variant": "mma", "tile": "32x64"}]),
    "bfloat16, with a residual": (
        ("return self.linear(x).relu() + y", "self.linear = nn.Linear(512, 136).bfloat16()",
         "torch.randn(77, 512).bfloat16(), torch.randn(77, 136).bfloat16()", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "64x256", "cluster": 1}, {"variant": "sm90", "cluster": 4}]),
    "bfloat16, tiles of 192 columns": (
        ("return self.linear(x).relu() + y", "self.linear = nn.Linear(200, 264).bfloat16()",
         "torch.randn(300, 200).bfloat16(), torch.randn(300, 264).bfloat16()", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "128x192"}]),
    "bfloat16, two blocks of a multiprocessor": (
        ("return self.linear(x).relu()", "self.linear = nn.Linear(72, 1024).bfloat16()", "torch.randn(300, 72).bfloat16()", "x"), "contraction", [
            {"variant": "sm90", "tile": "2x128x128"}]),
    "bfloat16, with columns of both for rows": (
        ("return x.mT @ y", "", "torch.randn(200, 152).bfloat16(), torch.randn(200, 264).bfloat16()", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "128x256", "cluster": 1}, {"variant": "sm90", "tile": "128x128", "cluster": 2},
            {"variant": "sm90", "tile": "64x256", "cluster": 1}, {"variant": "mma", "tile": "32x64"}]),
    "bfloat16, tiles of 192 columns, with columns of both for rows": (
        ("return x.mT @ y", "", "torch.randn(200, 312).bfloat16(), torch.randn(200, 264).bfloat16()", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "128x192"}]),
    "float16, a batch with columns of w for rows": (
        ("return torch.bmm(x, y)", "", "torch.randn(3, 136, 72).half(), torch.randn(3, 72, 200).half()", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "128x128", "cluster": 1}, {"variant": "sm90", "tile": "64x256", "cluster": 1}]),
    "float16, a batch with columns of x for rows": (
        ("return torch.bmm(x.mT, y.mT)", "", "torch.randn(3, 72, 136).half(), torch.randn(3, 200, 72).half()", "x, y"), "contraction", [
            {"variant": "sm90", "tile": "128x128", "cluster": 1}, {"variant": "sm90", "tile": "64x256", "cluster": 1}]),
    "bfloat16, tiles of columns for two blocks": (
        ("return x @ y", "", "torch.randn(1504, 72).bfloat16(), torch.randn(72, 2904).bfloat16()", "x, y"), "contraction", [
            {"variant": "sm90", "multicast": 2, "tile": "128x256"}, {"variant": "sm90", "multicast": 2, "tile": "128x128"}]),
    "bfloat16, tiles of rows for two blocks": (
        ("return x.mT @ y", "", "torch.randn(72, 104).bfloat16(), torch.randn(72, 12800).bfloat16()", "x, y"), "contraction", [
            {"variant": "sm90", "multicast": 2, "tile": "128x256"}]),
    "one product of a convolution": (
        ("return self.conv(x).relu() * self.w", f"self.conv = nn.Conv2d(64, 24, 3, padding=1)\n{_W}", "torch.randn(2, 64, 13, 11)", "x"), "implicit_gemm", [
            {"variant": "im2col", "products": 1, "tile": "64x256"}, {"variant": "im2col", "products": 1, "block_k": 32}]),
    "a convolution with a stride and a dilation": (
        ("return self.conv(x)", "self.conv = nn.Conv3d(16, 24, 3, stride=2, padding=2, dilation=2)", "torch.randn(2, 16, 9, 10, 11)", "x"), "implicit_gemm", [
            {"variant": "im2col", "products": 3}, {"variant": "gather", "products": 1}]),
    "a warpgroup to a block": (
        ("return self.conv(x).relu()", "self.conv = nn.Conv2d(32, 136, 3, padding=1)", "torch.randn(2, 32, 13, 12)", "x"), "implicit_gemm", [
            {"variant": "im2col", "products": 1, "tile": "128x128/4"}, {"variant": "im2col", "products": 1, "tile": "64x256/4"}]),
    "a mean of equal pixels": (
        ("return self.conv(x).mean((2, 3))", "self.conv = nn.Conv2d(16, 40, 3, padding=1)", "torch.zeros(2, 16, 32, 32)", "x"), "implicit_gemm", [
            {"variant": "im2col", "products": 3, "tile": "64x256"}]),
    "products whose parts leave the range of float32": (
        ("return torch.cumprod(x, 1)", "", "torch.tensor([1e-30, 1e25, 1e25, 1e-20]).repeat(5, 4000)", "x"), "scan", [
            {"row_per": "block", "splits": 8}, {"row_per": "warp", "splits": 1}]),
    "a gated scan of rows, and of what lies side by side": (
        ("h, o = y, []\nfor t in range(140):\n    h = x[:, t].sigmoid() * h + x[:, t]\n    o.append(h)\nreturn torch.stack(o, 1)", "",
         "torch.randn(3, 140), torch.randn(3)", "x, y"), "scan", [{"row_per": "block", "block": 128}, {"row_per": "warp"}]),
    "running sums of rows that begin anywhere": (
        ("return torch.cumsum(x.flip(1), 1).flip(1)", "", "torch.randn(5, 1901)", "x"), "scan", [
            {"row_per": "block", "own": 4, "block": 128, "items": 1}, {"row_per": "warp", "own": 4, "items": 2}]),
    "sums of rows that begin anywhere": (("return x.sum(1)", "", "torch.randn(140, 33, 61)", "x"), "inner_reduction", [
        {"row_per": "line", "rows": 2}]),
    "a softmax of rows that begin anywhere": (("return torch.softmax(x, 1)", "", "torch.randn(140, 33, 61)", "x"), "inner_reduction", [
        {"row_per": "line", "rows": 2, "row": "registers"}]),
    "places in rows that begin anywhere": (("return torch.argmin(x, 1)", "", "torch.randn(140, 33, 61).round()", "x"), "inner_reduction", [
        {"row_per": "line", "rows": 2}, {"row_per": "line", "rows": 1}]),
    "bfloat16, sums of pairs of rows that begin anywhere": (
        ("return (x * y).sum(1)", "", "torch.randn(140, 34, 123).bfloat16(), torch.randn(140, 34, 123).bfloat16()", "x, y"), "inner_reduction", [
            {"row_per": "line", "rows": 4}, {"row_per": "line", "rows": 2}]),
    "float16, places in pairs of rows that begin anywhere": (("return torch.argmin(x, 1)", "", "torch.randn(136, 62, 127).half().round()", "x"), "inner_reduction", [
        {"row_per": "line", "rows": 4}, {"row_per": "line", "rows": 2}]),
    "a window around one pixel": (
        ("return self.conv(x.relu())", "self.conv = nn.Conv2d(6, 6, 3, groups=6, stride=2, padding=1)", "torch.randn(3, 6, 1, 1)", "x"), "window", [{}]),
    "a row for a cluster": (("return torch.softmax(x, 1)", "", _LONG, "x"), "inner_reduction", [
        {"merge": "cluster"}, {"merge": "team", "blocks": 44}]),
    "windows far apart": (
        ("return F.max_pool2d(x.exp(), 3, 6, 1, dilation=4)", "", "torch.randn(2, 3, 33, 1028)", "x"), "window", [{"line": "shared"}, {"line": "own"}]),
    "windows of channels side by side": (
        ("x = self.conv(x.permute(0, 3, 1, 2))\nreturn x.permute(0, 2, 3, 1) * self.s + y", "self.conv, self.s = nn.Conv2d(40, 40, (5, 3), stride=(1, 2), padding=2, dilation=(2, 1), groups=40), nn.Parameter(torch.randn(40))",
         "torch.randn(3, 9, 13, 40), torch.randn(3, 5, 8, 40)", "x, y"), "strip_window", [{"y": 2}, {"y": 1, "vec": 2, "block": 128}]),
    "bfloat16, windows of channels side by side": (
        ("return self.conv((x * self.s).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).contiguous()", "self.conv, self.s = nn.Conv2d(320, 320, 7, padding=3, groups=320).bfloat16(), nn.Parameter(torch.randn(320).bfloat16())",
         "torch.randn(1, 7, 9, 320).bfloat16()", "x"), "strip_window", [{"vec": 8, "y": 2}, {"vec": 4}]),
    "pools of channels side by side": (
        ("x = F.avg_pool2d(x.permute(0, 3, 1, 2).exp(), 3, 2, 1, count_include_pad=False)\nreturn x.permute(0, 2, 3, 1).reshape(2, -1) + y",
         "", "torch.randn(2, 5, 6, 12), torch.randn(2, 108)", "x, y"), "strip_window", [{}]),
    "bfloat16, a sum of features": (
        ("return self.linear(x).mul(2.0).mean(1, keepdim=True)", "self.linear = nn.Linear(520, 264).bfloat16()", "torch.randn(70, 520).bfloat16()", "x"),
        "inner_reduction", [{}]),
    "sums at places": (
        ("return self.z.index_add(0, (x[:, 0].abs() * 3).long() % 6, x)", "self.register_buffer('z', torch.rand(6, 36))", "torch.randn(70, 36)", "x"),
        "scattering", [{"vec": 4}, {"vec": 1, "block": 128}]),
    "sums of many at places, in float64": (
        ("return self.z.index_put(((x[:, 0].abs() * 3).long() % 6,), x, accumulate=True)", "self.register_buffer('z', torch.rand(6, 36))", "torch.randn(70, 36)", "x"),
        "scattering", [{"sums": "float64", "vec": 4}]),
    "extremes and products at places": (
        ("a = (x[:, 0].abs() * 3).long() % 6\nb = self.z.index_reduce(0, a, x, 'amin')\nreturn torch.cat([self.z.index_reduce(0, a, x, 'amax'), b, self.z.index_reduce(0, a, x, 'prod')])",
         "self.register_buffer('z', torch.randn(6, 36))", "torch.randn(70, 36)", "x"), r"scattering\[[^]]*\] \+ pointwise", [{"vec": 4}]),
    "values and counts at places of rows": (
        ("a = (x * 3).long().clamp(0, 4)\nz = torch.zeros(70, 5, dtype=x.dtype)\nreturn torch.cat([self.z.expand(70, 5).scatter_add(1, a, x), z.scatter_add(1, a, torch.full_like(x, 0.5))], 1)",
         "self.z = nn.Parameter(torch.rand(5))", "torch.rand(70, 36)", "x"), r"row_scattering\[[^]]*\] \+ pointwise", [{"vec": 4, "block": 128}]),
    "elements written to places of rows": (
        ("return self.z.expand(140, 12).scatter(1, self.at.expand(140, 8), x.exp())", "self.z = nn.Parameter(torch.rand(1, 12))\nself.register_buffer('at', torch.randperm(12)[None, :8])",
         "torch.randn(140, 8)", "x"), "row_scattering", [{"rows": 1, "vec": 1}]),
    "extremes of rows of matrices": (
        ("return y.scatter_reduce(1, self.a.expand(x.shape[0], 9, 4), x.abs(), 'amax')", "self.register_buffer('a', torch.randint(0, 6, (9, 1)))", "torch.randn(70, 9, 4), torch.randn(70, 6, 4)", "x, y"),
        "row_scattering", [{"vec": 4}]),
    "pairs of rows of a table": (
        ("e = self.w[(x * 30).long()]\nreturn torch.cat([x, (torch.bmm(e, e.mT) * 0.5)[:, self.i, self.j]], 1)", "self.w = nn.Parameter(torch.randn(30, 10))\ni = torch.tril_indices(19, 19, -1)\nself.register_buffer('i', i[0])\nself.register_buffer('j', i[1])",
         "torch.rand(70, 19)", "x"), "small_product", [{"warps": 1, "matrices": 4}, {"warps": 2, "matrices": 2}]),
    "sums of small products of a map": (("return torch.bmm(x.exp(), y)", "", "torch.randn(66, 5, 36), torch.randn(66, 36, 34)", "x, y"), "small_product", [{"warps": 1}]),
    "small products of maps that lie the other way": (
        ("return (x.exp().mT @ y)[:, self.i] + 1.0", "self.register_buffer('i', torch.tensor([3, 3, 0, 19, 8]))", "torch.randn(66, 36, 20), torch.randn(66, 36, 34)", "x, y"), "small_product", [{"warps": 2}]),
    "sums over the states of a scan": (
        ("h, o = x.new_zeros(3, 40, 4), []\nfor t in range(9):\n    h = torch.exp(x[:, t, :, None] * y) * h + b[:, t, None, :4]\n    o.append((h * b[:, t, None, 4:]).sum(-1))\nreturn torch.stack(o, 1) * x",
         "", "torch.rand(3, 9, 40), -torch.rand(40, 4), torch.rand(3, 9, 8)", "x, y, b"), "scan", [{"items": 4}, {"items": 1}]),
    "a wave of recurrent layers": (
        ("return torch.cat([*self.lstm(x, (y, y))[1]], 2)", "self.lstm = nn.LSTM(6, 40, 3)", "torch.randn(4, 5, 6), torch.randn(3, 5, 40)", "x, y"), _RECURRENT, [
            {"units": 14, "slice": 5, "terms": 0}, {"units": 40, "slice": 2, "together": 1}, {"slice": 5, "terms": 2}, {"units": 16, "slice": 2, "terms": 1}]),
    "a recurrent layer in both directions": (
        ("return self.gru(x)[0]", "self.gru = nn.GRU(6, 136, bidirectional=True, batch_first=True, bias=False)", "torch.randn(7, 3, 6)", "x"), r"linear\(library\) \+ recurrence", [
            {"slice": 7, "terms": 0}, {"slice": 4, "terms": 0}, {"slice": 4, "terms": 2}, {"slice": 7, "terms": 1}]),
    "bfloat16, a wave of recurrent layers": (
        ("return torch.cat([*self.lstm(x, (y, y))[1]], 2)", "self.lstm = nn.LSTM(8, 40, 3).bfloat16()", "torch.randn(4, 5, 8).bfloat16(), torch.randn(3, 5, 40).bfloat16()", "x, y"), _RECURRENT, [
            {"units": 16, "slice": 5, "warps": 8}, {"units": 16, "slice": 2, "warps": 4}]),
    "float16, a recurrent layer in both directions": (
        ("return self.gru(x)[0]", "self.gru = nn.GRU(8, 136, bidirectional=True, batch_first=True, bias=False).half()", "torch.randn(19, 3, 8).half()", "x"), r"linear\(library\) \+ recurrence", [
            {"slice": 19}]),
    "sums along the rows that they are of": (("y = x.sum(1, keepdim=True)\nreturn torch.cat([x - y, y.expand(70, 36) * 2.0], 1)", "", "torch.randn(70, 36)", "x"),
                                             r"inner_reduction\[sum, sub, mul\] \+ pointwise", [{"row_per": "warp"}]),
}  # fmt: skip


#: Of the device that cases are made for, where fewer than an H200's let a block have several tiles at small sizes.
_MULTIPROCESSORS = {
    "tiles of x for two blocks": 66, "long sums of few": 20, "a tile to a warpgroup": 10, "three warpgroups in turns": 10,
    "three warpgroups in turns, with a batch of matrices": 10, "bfloat16, two blocks of a multiprocessor": 10, "bfloat16, tiles of 192 columns": 4,
    "bfloat16, tiles of 192 columns, with columns of both for rows": 4, "bfloat16, tiles of rows for two blocks": 66,
    "a wave of recurrent layers": 9, "a recurrent layer in both directions": 10,
    "bfloat16, a wave of recurrent layers": 9, "float16, a recurrent layer in both directions": 10,
}  # fmt: skip


@lru_cache(maxsize=None)
def designed(problem: Problem, multiprocessors: int | None = None) -> Design:
    """The problem's candidates for sm_90, worked out once for all points."""
    hardware = for_arch("sm_90")
    return design(load(problem), replace(hardware, multiprocessors=multiprocessors or hardware.multiprocessors), Accuracy.PYTORCH)


def candidate(loaded: LoadedProblem, plan: str, wanted: Params, multiprocessors: int | None = None) -> Candidate:
    """The candidate of the first plan of that name, at the first point of its first kernel with the wanted values."""
    of = designed(loaded.problem, multiprocessors)
    number = next(n for n, o in enumerate(of.options) if re.fullmatch(rf"{plan}\[[^]]*\]", o.name.split(" after ")[0]))
    kernel, *others = of.options[number].kernels
    return of.candidate(Point(number, (next(n for n in range(len(kernel)) if wanted.items() <= kernel[n].items()), *(0 for _ in others))))


def outputs(device: Device, loaded: LoadedProblem, of: Candidate) -> tuple[torch.Tensor, torch.Tensor]:
    """What float64 gives, and what the candidate gives."""
    torch.manual_seed(0)
    model, inputs = loaded.model(), loaded.inputs()
    new = device.module(of).ModelNew().eval()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        exact = model.eval().double()(*[x.double() for x in inputs])
    return exact, device.run(new, inputs)


def error(exact: torch.Tensor, found: torch.Tensor) -> float:
    exact = exact.double()  # of places, too
    return float((found.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


#: Cases that take longest; each has the variant of another one that always runs.
_LONG_CASES = {
    "long sums of few, with columns of w for rows", "tiles of w for two blocks", "bfloat16, tiles of columns for two blocks",
    "three warpgroups in turns, with a batch of matrices", "softmax of groups of columns", "layer norm of a batch of matrices",
    "group norm beside what it is of", "tiles of x for two blocks", "causal attention in blocks of several tiles",
    "bfloat16, attention whose heads a linear layer reads side by side",
}  # fmt: skip
#: The product of rows on the left in the variant that "a batch of transposed matrices" has, too.
_LONG_POINTS = {("long rows on the left", 2)}
#: Groups of columns: one variant, beside those of the test of rows that are not finite.
_GROUPS = {"group norm of columns", "the least of each normalised group of columns", "a sum and a maximum of groups of columns"}
#: What a point must have new among those of its plan, to run always: how its kernel divides the work.
_STRATEGIES = {"variant", "row_per", "merge", "line", "matrices"}


def _parameters() -> Iterator[Any]:
    """Each case with each point; a further point of a case whose strategies the case has had is exhaustive, and so are long cases."""
    for case, (_, _, points) in CASES.items():
        had: set[tuple[str, object]] = set()
        for number, point in enumerate(points):
            strategies = {item for item in point.items() if item[0] in _STRATEGIES}
            again, had = number > 0 and strategies <= had, had | strategies
            rare = again or case in _LONG_CASES or (case, number) in _LONG_POINTS or (case in _GROUPS and number > 0)
            yield pytest.param(case, number, marks=[pytest.mark.exhaustive] if rare else [])


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize(("case", "number"), [*_parameters()])
def test_a_candidate_is_right_on_the_emulated_device(device: Device, case: str, number: int) -> None:
    (forward, init, inputs, arguments), plan, points = CASES[case]
    loaded = made(source(forward, inputs, init, arguments))
    roundings = {"bfloat16": 4e-3, "float16": 3e-4, "a mean of equal pixels": 1e-7}  # those of exponentials count in attention
    usual = 6e-7 if plan in ("tiled_attention", "wide_attention") else 3e-7
    rounding = roundings.get(case.split(",")[0], 5e-4 if 1 in (points[number].get("products"), points[number].get("terms")) else usual)
    assert error(*outputs(device, loaded, candidate(loaded, plan, points[number], _MULTIPROCESSORS.get(case)))) < rounding


def test_temporaries_of_a_run_lie_side_by_side(whole_device: Device) -> None:
    """Each begins at a multiple of 256 bytes of one allocation; any number of rows has places of its own."""
    loaded = made(source("return torch.softmax(x, 1) + torch.cumsum(x, 1) + x.sum(1, keepdim=True)", "torch.randn(37, 200)"))
    of = candidate(loaded, r"inner_reduction\[softmax, sum\] \+ scan", {})
    assert "sum_1 = (800 * batch_size + 511) & -256\n" in of.source and of.source.count("new_empty(") == 2
    assert error(*outputs(whole_device, loaded, of)) < 3e-7


def test_moments_of_images_of_half_types_come_from_the_products_kernel(device: Device) -> None:
    init = "self.c, self.n = nn.Conv2d(16, 24, 3).bfloat16(), nn.BatchNorm2d(24, track_running_stats=False).bfloat16()"
    loaded = made(source("return self.n(self.c(x))", "torch.randn(3, 16, 20, 18).bfloat16()", init, "x"))
    of = designed(loaded.problem)
    number = next(n for n, o in enumerate(of.options) if o.name.startswith("implicit_gemm[conv2d, mean, variance] + "))
    assert error(*outputs(device, loaded, of.candidate(Point(number, (0,) * len(of.options[number].kernels))))) < 6e-3


def test_small_elements_of_a_triangle_keep_their_bits(device: Device) -> None:
    """The last rows have the last of k alone, and columns of w have far larger elements."""
    w = "torch.triu(torch.randn(200, 200)) * 10.0 ** torch.linspace(3, -7, 200)[:, None]"
    loaded = made(source("return torch.triu(x @ y)", f"torch.triu(torch.randn(200, 200)), {w}", "", "x, y"))
    exact, found = outputs(device, loaded, candidate(loaded, "contraction", {"variant": "sm90"}))
    assert all(error(exact[row], found[row]) < 1e-6 for row in range(200))


@pytest.mark.parametrize("rows", [1, 300, 700])
def test_a_result_that_has_the_batch_last_is_right_for_any_batch(device: Device, rows: int) -> None:
    loaded = made(source("return x + self.b", "torch.randn(300, 1)", "self.b = nn.Parameter(torch.randn(1, 21, 1, 1))"))
    model, x = loaded.model(), torch.randn(rows, 1)
    new = device.module(candidate(loaded, "pointwise", {"block": 128, "items": 2})).ModelNew()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert device.run(new, [x]).equal(model(x))


def test_rows_that_are_not_finite_spoil_no_other_least_of_a_group(device: Device) -> None:
    forward = "return F.layer_norm(self.linear(x).view(-1, 12, 16), (16,)).amin(2)"
    loaded = made(source(forward, "torch.randn(40, 96)", "self.linear = nn.Linear(96, 192)"))
    torch.manual_seed(0)
    model, (x,) = loaded.model(), loaded.inputs()
    x[5, 3], x[19, 7] = float("inf"), float("nan")
    x[20] *= 1e12
    for variant in ("sm80", "whole"):
        new = device.module(candidate(loaded, "contraction", {"variant": variant})).ModelNew()
        new.load_state_dict(model.state_dict())
        with torch.no_grad():
            torch.testing.assert_close(device.run(new, [x]), model(x), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("terms, smallest, rounding", [(2, 1e-12, 1e-6), (1, 1e-5, 1e-3)])
def test_states_that_are_not_finite_spoil_no_row_that_tensor_cores_multiply(device: Device, terms: int, smallest: float, rounding: float) -> None:
    """An infinity gives gates of 0 and 1, as in PyTorch; other rows differ in size by far more than float16 tells apart."""
    init = "self.lstm = nn.LSTM(6, 40, bias=False)"
    loaded = made(source("return self.lstm(x, (y, z))[0]", "torch.randn(3, 5, 6), torch.randn(1, 5, 40), torch.zeros(1, 5, 40)", init, "x, y, z"))
    torch.manual_seed(0)
    model, (x, y, z) = loaded.model(), loaded.inputs()
    y[0, 1, 3], y[0, 2, 7] = float("inf"), float("nan")
    y[0, 3], y[0, 4], x[:, 4] = y[0, 3] * 1e6, y[0, 4] * smallest, 0.0
    new = device.module(candidate(loaded, r"linear\(library\) \+ recurrence", {"terms": terms}, 9)).ModelNew().eval()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        found, expected = device.run(new, [x, y, z]), model(x, y, z)
    assert found.isnan().equal(expected.isnan()) and found[:, 1].isfinite().all()
    assert all(error(expected[:, row], found[:, row]) < rounding for row in (0, 1, 3, 4))


@pytest.mark.parametrize("special", [float("inf"), float("nan")])
@pytest.mark.parametrize(("name", "sign"), [("argmin", 1.0), ("argmax", -1.0)])
def test_the_first_place_is_found_where_no_value_is_below_infinity(device: Device, name: str, sign: float, special: float) -> None:
    loaded = made(source(f"return torch.{name}(x, 1)", "torch.empty(3, 40, 61)"))
    x = torch.full((3, 40, 61), sign * float("inf"))
    x[:, 7:9] = sign * special
    model = device.module(candidate(loaded, "inner_reduction", {"row_per": "line"})).ModelNew()
    assert device.run(model, [x]).equal(getattr(torch, name)(x, 1))


#: A fault in a kernel's text: the case and point, the text and what replaces it, and the message, or that values are wrong.
FAULTS: dict[str, tuple[str, int, str, str, str]] = {
    "no wait for TMA": ("a linear layer", 0, "barrier_wait(full + 8 * p.slot, p.phase);", "", "more arrivals"),
    "no wait for wgmma": ("a linear layer", 0, "wgmma_wait<0>();", "", "wrong"),
    "a slot that is freed too early": ("one product of a convolution", 0, "wgmma_wait<1>();\n            if (step > 0) release();", "release();", "wrong"),
    "a slot that is not freed": ("a linear layer", 0, "release(x_place);", "", "deadlock: .*mbarrier"),
    "too few bytes expected": ("a linear layer", 0, "barrier_expect(barrier, SLOT_BYTES);", "barrier_expect(barrier, SLOT_BYTES / 2);", "on their way"),
    "a read beyond the weights": ("long rows on the left", 2, "__half* high = terms + row * LD;", "__half* high = terms + (row + 1) * LD;", "out of bounds"),
    "no wait for the kernel in front": ("a linear layer", 0, "griddepcontrol.wait;", "", "wrong"),
    "a missing barrier": ("a row for a cluster", 0, "cluster_sync();", "", "shared memory ends|has ended|wrong"),
    "an operand that is not turned": ("bfloat16, with columns of both for rows", 0, "wgmma_wide_bfloat16<1, 1>", "wgmma_wide_bfloat16<1, 0>", "wrong|shared memory"),
    "boxes of columns at another distance": (
        "bfloat16, with columns of both for rows", 0, "(512ull << 16) | (64ull << 32)", "(64ull << 16) | (512ull << 32)", "wrong|shared memory"),
    "no fence between threads and TMA": ("long sums of few", 0, "fence_shared();\n        __syncwarp();", "__syncwarp();", "no fence.proxy.async since"),
    "more registers than a block has": (
        "causal attention of wide heads", 0, "setmaxnreg.inc.sync.aligned.u32 216;", "setmaxnreg.inc.sync.aligned.u32 224;", "deadlock: .*setmaxnreg"),
    "a barrier at two places": (
        "attention of wide heads with ragged tiles of keys", 0, "bar.arrive 2, 352;", "bar.sync 2, 352;", "threads wait for each other at two places"),
    "no wait for cp.async": ("a linear layer", 2, "cp.async.wait_group %0;", "", "on its way"),
}  # fmt: skip


@pytest.mark.parametrize("n", [132, 133])
def test_rows_that_are_not_finite_are_stored_where_they_belong(device: Device, n: int) -> None:
    loaded = made(source("return self.linear(x)", "torch.randn(40, 96)", f"self.linear = nn.Linear(96, {n})"))
    torch.manual_seed(0)
    model, (x,) = loaded.model(), loaded.inputs()
    x[5, 3], x[19, 7] = float("inf"), float("nan")
    x[20] *= 1e30
    new = device.module(candidate(loaded, "contraction", {"variant": "sm80", "tile": "64x128/2"})).ModelNew()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        found, expected = device.run(new, [x]), model(x)
    for values in (found, expected):
        values[20] /= 1e30
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(device: Device, fault: str) -> None:
    case, number, text, other, found = FAULTS[fault]
    (forward, init, inputs, arguments), plan, points = CASES[case]
    loaded = made(source(forward, inputs, init, arguments))
    of = candidate(loaded, plan, points[number], _MULTIPROCESSORS.get(case))
    assert text in of.source
    try:
        exact, value = outputs(device, loaded, replace(of, source=of.source.replace(text, other)))
    except EmulationError as raised:
        assert re.search(found, str(raised)), raised
    else:
        assert "wrong" in found and not error(exact, value) < 1e-2


@pytest.mark.parametrize("special", [float("inf"), float("nan")])
@pytest.mark.parametrize("combine", ["atomics", "last_block"])
def test_moments_of_a_column_that_is_not_finite_are_nan(device: Device, combine: str, special: float) -> None:
    loaded = made(source("return self.norm(x)", "torch.randn(72, 13)", "self.norm = nn.BatchNorm1d(13)"), "train")
    of = design(loaded, for_arch("sm_90"), Accuracy.PYTORCH)
    number = next(n for n, o in enumerate(of.options) if o.name.startswith("outer_reduction[moments] + pointwise"))
    moments, _ = of.options[number].kernels
    at = next(n for n in range(len(moments)) if moments[n]["combine"] == combine)
    (x,), model = loaded.inputs(), device.module(of.candidate(Point(number, (at, 0)))).ModelNew()
    x[5, 3] = special
    special_columns = torch.arange(13) == 3
    assert torch.equal(device.run(model, [x]).isnan(), special_columns.expand(72, 13))
    assert torch.equal(model.norm.running_var.isnan(), special_columns)


#: 64 rows of a by 128 rows of b over 64 of k. Rows of a go from swizzled lines to registers, as do those that TMA brings.
_ROWS_IN_REGISTERS = """
constexpr int TURNED = 0;  // whether rows of b are columns in memory

__global__ void __launch_bounds__(128, 1) product_kernel(const __half* a, const __half* b, float* y) {
    __shared__ alignas(1024) __half a_lines[64 * 64];
    __shared__ alignas(1024) __half b_lines[128 * 64];
    const auto put = [&](__half* lines, const int line, const int i, const __half value) {
        lines[line * 64 + ((i / 8 ^ line % 8) * 8 + i % 8)] = value;
    };
    for (int i = threadIdx.x; i < 64 * 64; i += 128) put(a_lines, i / 64, i % 64, a[i]);
    for (int i = threadIdx.x; i < 128 * 64; i += 128) {
        if constexpr (TURNED) put(b_lines, i % 128 / 64 * 64 + i / 128, i % 64, b[i]);
        else put(b_lines, i / 64, i % 64, b[i]);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    const uint32_t from = shared_address(a_lines) + row * 128 + ((lane / 16 ^ row % 8) << 4);
    uint32_t rows[4][4];
    for (int k = 0; k < 4; ++k) load_matrices(rows[k], from ^ (k * 32));
    const uint64_t b_rows = TURNED ? turned_descriptor(shared_address(b_lines)) : operand_descriptor(shared_address(b_lines));
    float sums[64];
    wgmma_fence();
    for (int k = 0; k < 4; ++k) wgmma_from_registers<TURNED>(sums, rows[k], b_rows + k * (TURNED ? 128 : 2), k == 0);
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 64; ++i) {
        y[(threadIdx.x / 32 * 16 + lane / 4 + i % 4 / 2 * 8) * 128 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
    }
}

extern "C" int product(const __half* a, const __half* b, float* y) {
    product_kernel<<<1, 128, 0, nullptr>>>(a, b, y);
    return cudaGetLastError();
}
"""


def product_of_rows_in_registers(device: Device, turned: int, text: str = _ROWS_IN_REGISTERS) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernel must give, and what it gives. Its numbers are small, so that no order of sums changes a bit."""
    torch.manual_seed(0)
    a, b, y = room((64, 64), torch.half), room((64, 128) if turned else (128, 64), torch.half), room((64, 128), torch.float)
    for operand in (a, b):
        operand.copy_(torch.randint(-9, 10, operand.shape))
    text, symbols = linked(written(text.replace("TURNED = 0", f"TURNED = {turned}")))
    unit = translation_unit([text], symbols, "cuda")
    library = ctypes.CDLL(str(build(device.folder, unit, ["-gencode=arch=compute_90a,code=sm_90a"])))
    assert library.product(*(ctypes.c_void_p(x.data_ptr()) for x in (a, b, y))) == 0 and not device._message()
    return a.float() @ (b if turned else b.T).float(), y


@pytest.mark.parametrize("turned", [0, 1])
def test_rows_in_registers_are_multiplied(device: Device, turned: int) -> None:
    exact, found = product_of_rows_in_registers(device, turned)
    assert found.equal(exact)


def test_rows_in_registers_belong_to_the_products_until_they_end(device: Device) -> None:
    early = "wgmma_commit();\n    load_matrices(rows[3], from);"
    exact, found = product_of_rows_in_registers(device, 0, _ROWS_IN_REGISTERS.replace("wgmma_commit();", early))
    assert not found.equal(exact)


_SIZES = """
import torch
import torch.nn as nn
rows, columns = 7, 32768
width = features = 64 * 512
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 3)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.rand(rows, columns)]
def get_init_inputs():
    return [width]
"""


@pytest.mark.parametrize(("odd", "size"), [(False, 8192), (True, 8191)])
def test_sizes_that_must_be_alike_are_halved_together(odd: bool, size: int) -> None:
    """Also those in tuples, those that are computed, and those with several names."""
    problem = emulate.small(made(_SIZES).problem, (), most_flops=1e9, most_elements=1e5, odd=odd)
    assert [*emulate._integers(problem.source).values()] == [7, size, size]


def test_few_points_have_many_values() -> None:
    space = [{"block": b, "vec": v, "launch": launch} for b in (128, 256, 512) for v in (1, 2, 4) for launch in ("early", "plain")]
    chosen = [space[n] for n in emulate.covering(space, 4)]  # type: ignore[arg-type]
    assert len(chosen) == 4 and {(name, point[name]) for point in chosen[:3] for name in point} == {
        (name, point[name]) for point in space for name in point}


def test_candidates_for_a_whole_problem_run_on_a_small_batch(device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text("rows = 1 << 20\n" + source("return x.relu() + 1", "torch.randn(rows, 20)"))
    arguments = [str(problem), "--batch", "rows=3", "--plans", "1", "--points", "1", "--cases", "1", "--builds", str(device.folder)]
    assert emulate.main(arguments) == 0
    assert "{'rows': 3}" in (printed := capsys.readouterr().out) and "1 of 1 candidates right" in printed
