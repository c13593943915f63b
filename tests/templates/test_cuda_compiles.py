"""Every CUDA template compiles without a warning over a covering set of its space, for two architectures. Needs no GPU.

Cases that are much like another one are in the exhaustive set alone.
The covering set has each program once, and each value of each parameter of each schedule. The first program of a
schedule has its plainest parameters, and the others those that compile fastest: in the exhaustive set, all the plainest.
For the second architecture it has each schedule once, and values that the first does not compile. The exhaustive set
has each value of each variant.
Kernels are renamed, and many share a file: starting nvcc takes longer than compiling most of them.
Kernels whose registers do not run out are compiled with less optimisation, but not in the exhaustive set.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from models import NAMES, design, made, plainest, reference, source

from kgen.codegen.registry import template_for, templates
from kgen.codegen.render import kernel_text, translation_unit
from kgen.codegen.template import Task
from kgen.devices.hardware import for_arch
from kgen.evaluator.candidates.build import read_extension
from kgen.protocol import Accuracy
from kgen.tuning.design import Design

pytestmark = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="no nvcc on PATH: CUDA templates are not compiled here"
)

ARCHITECTURES = ("sm_90a", "sm_80")
#: Bytes of registers that products of warps may spill: 26 of them, once a tile, beside 128 of sums.
MOST_SPILLED = 104
#: The same of a block that reduces groups of columns and shares its multiprocessor: once a tile, behind its loop. With them it took
#: 9% less of linear, SiLU and group norm in bfloat16 than a block alone, which spills none (H200).
MOST_SPILLED_BESIDE = 256
#: Kernels to a file: two compilers run beside each other.
TO_A_FILE = 40
#: Schedules whose threads hold a few elements at a time.
OF_FEW_REGISTERS = {"pointwise", "transpose", "scattering", "row_scattering", "window", "scan"}
#: Tiles of products of warpgroups with the most sums to a thread.
LARGEST = ("'tile': '128x256'", "'tile': '128x128+'", "'tile': '192x128'")
#: nvcc's way to a third of its time; the front end's warnings stay.
QUICK = "--Ofast-compile=max"

#: Unseen chains: forward, __init__, inputs, mode.
UNSEEN = {
    "gather": ("return torch.softmax(x * self.w + self.b, dim=-1)", "self.w = nn.Parameter(torch.randn(4, 1, 6))\nself.b = nn.Parameter(torch.randn(5, 1))", "torch.randn(3, 4, 5, 6)", "eval"),
    "channels": ("return torch.sigmoid(x + self.b) * self.s", "self.b = nn.Parameter(torch.randn(4, 1, 1))\nself.s = nn.Parameter(torch.randn(1, 4, 1, 1))", "torch.randn(2, 4, 3, 3)", "eval"),
    "cols_1000": ("return F.layer_norm(x, (1000,)).softmax(dim=1)", "", "torch.randn(64, 1000)", "eval"),
    "cols_999": ("return F.gelu(x).log_softmax(dim=1), x.amax(dim=1), x.amin(dim=1)", "", "torch.randn(64, 999)", "eval"),
    "statistics_999": ("return self.norm(x * self.s).relu()", "self.s = nn.Parameter(torch.randn(999))\nself.norm = nn.BatchNorm1d(999)", "torch.randn(512, 999)", "train"),
    "statistics_plain": ("return self.norm(x).relu()", "self.norm = nn.BatchNorm1d(8, affine=False, track_running_stats=False)", "torch.randn(512, 8)", "train"),
    "one_column": ("return torch.softmax(x, dim=1)", "", "torch.randn(64, 1)", "eval"),
    "transpose": ("return x.permute(0, 2, 1).relu() * self.w", "self.w = nn.Parameter(torch.randn(999, 70))", "torch.randn(3, 70, 999)", "eval"),
    "batched_product": ("return torch.einsum('blhn,bshn->bhls', x, x[:, :45]) * self.s + 1.0", "self.s = nn.Parameter(torch.randn(2, 77, 1))", "torch.randn(3, 77, 2, 20)", "eval"),
    "contraction": ("return F.gelu(self.linear(x))", "self.linear = nn.Linear(8192, 8192)", "torch.randn(2048, 8192)", "eval"),
    "contraction_tails": ("h = torch.matmul(x, self.w) + self.b\nreturn h * self.s.sigmoid(), h", "self.w = nn.Parameter(torch.randn(1111, 999))\nself.b = nn.Parameter(torch.randn(999))\nself.s = nn.Parameter(torch.randn(1))", "torch.randn(100, 1111)", "eval"),
    "contraction_group_norm": ("return self.norm(F.silu(self.linear(x)))", "self.linear, self.norm = nn.Linear(1024, 4096), nn.GroupNorm(64, 4096)", "torch.empty(32768, 1024)", "eval"),
    "contraction_least_of_groups": ("return self.norm(self.linear(x)).amin(1)", "self.linear, self.norm = nn.Linear(8192, 8192), nn.GroupNorm(512, 8192)", "torch.empty(1024, 8192)", "eval"),
    "batch_last": ("return x + self.b", "self.b = nn.Parameter(torch.randn(1, 8192, 1, 1))", "torch.randn(1024, 1)", "eval"),
    "contraction_tf32": ("return self.linear(x).relu()", "self.linear = nn.Linear(1111, 999)", "torch.randn(1000, 1111)", "eval"),
    "short_sums": ("return F.gelu(self.linear(x))", "self.linear = nn.Linear(50, 5000)", "torch.empty(5000, 50)", "eval"),
    "rather_short_sums": ("return self.linear(x)", "self.linear = nn.Linear(512, 5000)", "torch.empty(5000, 512)", "eval"),
    "contraction_moments": ("return self.norm(self.linear(x) * self.s)", "self.linear, self.norm = nn.Linear(1111, 4999), nn.BatchNorm1d(4999)\nself.s = nn.Parameter(torch.randn(4999))", "torch.randn(1000, 1111)", "train"),
    "small_contraction": ("return self.norm(self.linear(x) * self.s)", "self.linear, self.norm = nn.Linear(500, 510), nn.BatchNorm1d(510)\nself.s = nn.Parameter(torch.randn(510))", "torch.randn(520, 500)", "train"),
    "batch_of_contractions": ("return torch.bmm(x, x.mT).relu()", "", "torch.randn(3, 101, 8192)", "eval"),
    "turned_contraction": ("return (x.t() @ x[:, :1000]).relu()", "", "torch.randn(2000, 1500)", "eval"),
    "turned_batch_of_contractions": ("return x.mT @ x", "", "torch.randn(3, 777, 101)", "eval"),
    "contraction_of_a_long_row": ("return self.linear(x)", "self.linear = nn.Linear(40000, 100, bias=False)", "torch.randn(4, 5, 40000)", "eval"),
    "window": ("return self.pool(x)", "self.pool = nn.MaxPool2d(4, 1, 1)", "torch.randn(2, 3, 512, 512)", "eval"),
    "window_counted": ("return self.pool(x.relu()) * 2.0", "self.pool = nn.AvgPool3d(3, 2, 1, ceil_mode=True, count_include_pad=False)", "torch.randn(2, 3, 20, 21, 64)", "eval"),
    "depthwise": ("return self.conv(x).relu()", "self.conv = nn.Conv2d(16, 16, (3, 7), groups=16)", "torch.randn(2, 16, 64, 258)", "eval"),
    "depthwise_across": ("return self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1) + x", "self.conv = nn.Conv2d(16, 16, 3, padding=1, groups=16).bfloat16()", "torch.empty(4, 56, 56, 16).bfloat16()", "eval"),
    "depthwise_line": ("return self.conv(x)", "self.conv = nn.Conv1d(16, 16, 4, groups=16, stride=3)", "torch.randn(2, 16, 2051)", "eval"),
    "scan": ("return torch.cumsum(x * x, 1) * x", "", "torch.randn(64, 8192)", "eval"),
    "scan_back": ("return torch.cumprod(x.flip(1), 1).flip(1)", "", "torch.randn(64, 999)", "eval"),
    "scan_behind_a_zero": ("return torch.cat((torch.zeros_like(x[:, :1]), x), 1).cumsum(1)", "", "torch.randn(64, 8192)", "eval"),
    "scan_in_parts": ("return torch.cumsum(x, 1)", "", "torch.randn(4, 1000000)", "eval"),
    "scan_side_by_side": ("return torch.cumsum(x, 1)", "", "torch.randn(4, 100, 33)", "eval"),
    "recurrent_wave": ("return self.lstm(x)[0]", "self.lstm = nn.LSTM(128, 256, 6, batch_first=True)", "torch.randn(10, 512, 128)", "eval"),
    "recurrent_directions": ("return self.gru(x)[0]", "self.gru = nn.GRU(128, 200, bidirectional=True, bias=False)", "torch.randn(512, 10, 128)", "eval"),
    "recurrent_states_tf32": ("return self.lstm(x, (self.h, self.h))[0]", "self.lstm, self.h = nn.LSTM(128, 256, 2), nn.Parameter(torch.randn(2, 10, 256))", "torch.randn(512, 10, 128)", "eval"),
    "half_recurrent_layer": ("return self.lstm(x)[0]", "self.lstm = nn.LSTM(64, 256).bfloat16()", "torch.randn(512, 10, 64).bfloat16()", "eval"),
    "convolution_tf32": ("return torch.relu(self.conv(x)) * self.s + x", "self.conv = nn.Conv2d(64, 64, 3, padding=1)\nself.s = nn.Parameter(torch.randn(64, 1, 1))", "torch.randn(4, 64, 30, 30)", "eval"),
    "convolution_of_three_channels": ("return torch.tanh(self.conv(x))", "self.conv = nn.Conv3d(3, 24, 3, stride=2, bias=False)", "torch.randn(4, 3, 9, 17, 17)", "eval"),
    "transposed_convolution_tf32": ("return self.conv(x) + 1", "self.conv = nn.ConvTranspose1d(64, 96, 3, stride=2, groups=2)", "torch.randn(4, 64, 170)", "eval"),
    "staged_maps_tf32": ("return self.conv(x.relu() * self.s + self.t).sigmoid()", "self.conv = nn.Conv2d(64, 64, 3, padding=1)\nself.s, self.t = nn.Parameter(torch.randn(64, 1, 1)), nn.Parameter(torch.randn(4, 1, 1, 1))", "torch.randn(4, 64, 30, 30)", "eval"),
    "staged_map_alone": ("return self.conv(x.exp())", "self.conv = nn.Conv2d(64, 64, 3, padding=1)", "torch.randn(4, 64, 31, 31)", "eval"),
    "convolution_moments_tf32": ("y = self.conv(x).relu() * self.s\nreturn y, y.mean((2, 3)) * self.s[:, 0, 0], y.var((2, 3), correction=0)", "self.conv = nn.Conv2d(64, 64, 3, padding=1)\nself.s = nn.Parameter(torch.randn(64, 1, 1))", "torch.randn(4, 64, 31, 31)", "eval"),
    "convolution_sum_tf32": ("return (self.conv(x).sigmoid() + x).logsumexp((2, 3)) * 2.0", "self.conv = nn.Conv2d(64, 64, 3, padding=1)", "torch.randn(4, 64, 30, 30)", "eval"),
    "residues_together_tf32": ("return self.conv(x).sigmoid() * self.s", "self.conv = nn.ConvTranspose2d(32, 64, 3, stride=5, padding=1, dilation=2)\nself.s = nn.Parameter(torch.randn(64, 1, 1))", "torch.randn(4, 32, 20, 31)", "eval"),
    "residues_apart_tf32": ("return self.conv(x)", "self.conv = nn.ConvTranspose1d(4096, 64, 1, stride=2)", "torch.empty(1, 4096, 100)", "eval"),
    "transposed_convolution_maximum": ("y = self.conv(x)\nreturn y.amax((2, 3)), y.sum((2, 3))", "self.conv = nn.ConvTranspose2d(16, 24, 3, stride=2)", "torch.randn(4, 16, 17, 17)", "eval"),
    "convolution_channels_tf32": ("y = self.conv(x) * self.s + x\nreturn (y.amin(1) * self.p).tanh(), y.amax(1)", "self.conv = nn.Conv2d(64, 64, 3, padding=1)\nself.s, self.p = nn.Parameter(torch.randn(64, 1, 1)), nn.Parameter(torch.randn(30))", "torch.randn(4, 64, 30, 30)", "eval"),
    "transposed_convolution_channels": ("return self.conv(x).logsumexp(1, keepdim=True).relu()", "self.conv = nn.ConvTranspose2d(16, 20, 3, stride=2, padding=1)", "torch.randn(4, 16, 17, 17)", "eval"),
    "softmax_of_channels_tf32": ("return torch.softmax(self.conv(x), 1) * self.s", "self.conv = nn.Conv2d(64, 72, 3, padding=1)\nself.s = nn.Parameter(torch.randn(72, 1, 1))", "torch.randn(4, 64, 30, 30)", "eval"),
    "pixels_alone_tf32": ("return torch.relu(self.conv(x))", "self.conv = nn.Conv2d(70, 96, 1)", "torch.randn(4, 70, 30, 30)", "eval"),
    "pooled_convolution_tf32": ("return F.max_pool2d((self.conv(x) * self.s).relu(), 2)", "self.conv = nn.Conv2d(64, 64, 3, padding=1)\nself.s = nn.Parameter(torch.randn(64, 1, 1))", "torch.randn(4, 64, 31, 31)", "eval"),
    "pooled_transposed_convolution": ("return F.max_pool2d(F.leaky_relu(self.conv(x)), 2).mean((2, 3))", "self.conv = nn.ConvTranspose2d(16, 24, 3, stride=2)", "torch.randn(4, 16, 17, 17)", "eval"),
    "scattered_convolution_channels": ("return self.conv(x).sum(1)", "self.conv = nn.ConvTranspose1d(16, 24, 3, stride=3)", "torch.randn(4, 16, 170)", "eval"),
    "scattered_convolution_moments": ("y = self.conv(x)\nreturn y, y.var(2)", "self.conv = nn.ConvTranspose1d(16, 24, 3, stride=3)", "torch.randn(4, 16, 170)", "eval"),
    "scatters": ("at = (x[:, 0] * 3.0).long() % 8\nreturn self.z.index_add(0, at, x), self.z.index_reduce(0, at, x, 'amax'), self.z.index_reduce(0, at, x, 'prod')", "self.register_buffer('z', torch.randn(8, 96))", "torch.randn(640, 96)", "eval"),
    "scatters_of_rows": ("at = (x * 3.0).long().clamp(0, 95)\nz = torch.zeros(640, 96)\nreturn self.z.expand(640, 96).scatter(1, self.at.expand(640, 64), x), z.scatter_add(1, at, torch.ones_like(x)), z.scatter_add(1, at, x)",
                         "self.register_buffer('z', torch.randn(1, 96))\nself.register_buffer('at', torch.randperm(96)[None, :64])", "torch.randn(640, 64)", "eval"),
    "small_product": ("e = x.exp()\nreturn torch.bmm(e, e.mT)[:, self.i, self.j], (x.mT @ e)[:, self.i]", "i = torch.tril_indices(27, 27, -1)\nself.register_buffer('i', i[0])\nself.register_buffer('j', i[1])", "torch.rand(640, 27, 36)", "eval"),
    "parts": ("a = F.pad(x, (4, 1), value=1.5)\nreturn torch.cat([a[:, :8], x.exp(), x.flip(1)], dim=1) * 2.0, x > 0.0, torch.roll(x, 3, 1) + 1.0", "", "torch.randn(64, 1024)", "eval"),
    "gathers": ("at = (x[:, :8] * 3.0).long()\nreturn self.table(at) * 2.0, x.gather(1, at.clamp(0, 99)), x.max(1)", "self.table = nn.Embedding(512, 256)", "torch.randn(64, 1024)", "eval"),
    "conversions": ("return (x.int() + 1).bool(), x.to(torch.uint8), x.long() * 3, (x != x).float().sum(1), torch.triu(x).int()", "", "torch.randn(1024, 1024)", "eval"),
    "cross_entropy": ("return F.cross_entropy(x, (x[:, 0].abs() * 8.0).long(), reduction='none')", "", "torch.randn(64, 1024)", "eval"),
    "more_functions": ("y = x.tan() + x.asin() + x.acos() + x.atan() + x.sinh() + x.cosh() + x.asinh() + x.acosh() + x.atanh() + x.erfc()\nz = x.exp2() + x.log2() + x.log10() + x.lgamma() + x.floor() + x.ceil() + x.trunc() + x.round() + x.fmod(2.0) + x.remainder(3.0)\nreturn y + z + torch.atan2(x, y) + torch.hypot(x, y) + torch.copysign(x, y) + torch.fmax(x, y) + torch.fmin(x, y) + x // 3.0", "", "torch.randn(64, 1000)", "eval"),
    "full_sum": ("return torch.mean((x - self.b) ** 2)", "self.b = nn.Parameter(torch.randn(4096))", "torch.randn(4096, 4096)", "eval"),
    "moments_of_channels": ("return self.norm(x).relu()", "self.norm = nn.BatchNorm2d(16)", "torch.randn(8, 16, 64, 64)", "train"),
    "long_softmax": ("return torch.softmax(x, 1)", "", "torch.empty(16, 400000)", "eval"),
    "long_rows_of_two": ("return torch.softmax(x + x.flip(0), 1)", "", "torch.empty(16, 100000)", "eval"),
    "triangle": ("return torch.triu(x @ x)", "", "torch.empty(999, 999)", "eval"),
    "attention": ("return F.scaled_dot_product_attention(x, x, x, self.m)", "self.m = nn.Parameter(torch.randn(300, 300))", "torch.randn(2, 4, 300, 64)", "eval"),
    "wide_attention": ("return F.scaled_dot_product_attention(x, x, x, is_causal=True)", "", "torch.randn(2, 4, 512, 320)", "eval"),
    "long_sums_of_few": ("return x.t() @ x", "", "torch.empty(100000, 70)", "eval"),
    "long_sums_of_few_inputs": ("return x @ x[:200].exp().t()", "", "torch.empty(256, 100000)", "eval"),
    "group_norm": ("return self.norm(x)", "self.norm = nn.GroupNorm(4, 64)", "torch.empty(4, 64, 128, 128)", "eval"),
    "places_of_channels": ("return x.argmax(1), x.amax(1)", "", "torch.randn(4, 64, 33, 36)", "eval"),
    "place_of_all": ("return x.argmin(0)", "", "torch.randn(70000, 32)", "eval"),
    "norm_of_channels": ("return x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt()", "", "torch.randn(8, 64, 32, 32)", "eval"),
    "functions": ("a = x.abs()\ny = torch.sin(x) + torch.cos(x) + torch.erf(x) + torch.log1p(a) + torch.expm1(x) + F.softplus(x) + F.mish(x)\nreturn y + (a + 1) ** 1.5 + torch.tanh(x) + F.silu(x) + F.elu(x) + F.logsigmoid(x) + F.hardswish(x) + F.gelu(x, approximate='tanh')", "", "torch.randn(64, 1000)", "eval"),
    "half_pointwise": ("return F.gelu(x) * self.s + 1.5, F.pad(x, (8, 0), value=0.5).exp(), x.long()", "self.s = nn.Parameter(torch.randn(8192))", "torch.randn(64, 8192).bfloat16()", "eval"),
    "half_softmax": ("return torch.softmax(F.layer_norm(x, (8192,), self.s), 1)", "self.s = nn.Parameter(torch.randn(8192).half())", "torch.randn(512, 8192).half()", "eval"),
    "half_columns": ("return x.sum(1), x.argmax(1)", "", "torch.randn(8, 64, 4096).bfloat16()", "eval"),
    "half_moments": ("return self.norm(x).relu()", "self.norm = nn.BatchNorm1d(1024).bfloat16()", "torch.randn(512, 1024).bfloat16()", "train"),
    "half_window": ("return self.pool(x)", "self.pool = nn.MaxPool2d(3, 2, 1)", "torch.randn(2, 8, 64, 64).half()", "eval"),
    "half_scan": ("return x.cumsum(1)", "", "torch.randn(512, 8192).bfloat16()", "eval"),
    "half_contraction": ("return F.gelu(self.linear(x)) * x[:, :999]", "self.linear = nn.Linear(1024, 999).bfloat16()", "torch.randn(1000, 1024).bfloat16()", "eval"),
    "half_contraction_group_norm": ("return self.norm(F.silu(self.linear(x)))", "self.linear, self.norm = nn.Linear(1024, 4096).bfloat16(), nn.GroupNorm(64, 4096).bfloat16()", "torch.empty(32768, 1024).bfloat16()", "eval"),
    "half_contraction_moments": ("return self.norm(self.linear(x))", "self.linear, self.norm = nn.Linear(512, 1024).half(), nn.BatchNorm1d(1024).half()", "torch.randn(1000, 512).half()", "train"),
    "half_turned_contraction": ("return x.mT @ x", "", "torch.randn(512, 3000).bfloat16()", "eval"),
    "half_batch_of_contractions": ("return torch.bmm(x, x).relu()", "", "torch.randn(3, 1000, 1000).half()", "eval"),
    "half_transpose": ("return x.permute(0, 2, 1).relu() * 2", "", "torch.randn(3, 128, 256).half()", "eval"),
    "rows_share_more_than_the_cache_holds": ("return torch.sigmoid(x) * self.w", "self.w = nn.Parameter(torch.empty(4194304))", "torch.empty(4, 4194304)", "eval"),
    "pointwise_behind_a_library_call": ("return F.relu(torch.linalg.matrix_exp(x))", "", "torch.empty(1024, 128, 128)", "eval"),
}  # fmt: skip

_CASES = [f"{name}-{mode}" for name in NAMES for mode in ("train", "eval")] + list(UNSEEN)

#: Cases whose schedule, with the same kinds of operands and results, another case has, which is named beside it.
_ALIKE = {
    "linear_gelu_softmax-train": "linear_gelu_softmax-eval",
    "linear_scale_residual_clamp_logsumexp_mish-train": "linear_scale_residual_clamp_logsumexp_mish-eval",
    "linear_batchnorm_scale_softmax-eval": "linear_gelu_softmax-eval",
    "linear_scale_batchnorm-eval": "linear_gelu_softmax-eval",
    "linear_scale_batchnorm-train": "contraction_moments",
    "linear_batchnorm_scale_softmax-train": "contraction_moments",
    "small_contraction": "contraction_moments",
    "statistics_plain": "statistics_999",
    "long_rows_of_two": "long_softmax",
    "channels": "gather",
    "cols_1000": "cols_999",
    "contraction": "linear_gelu_softmax-eval",
    "contraction_group_norm": "contraction_least_of_groups",
    "short_sums": "rather_short_sums",
    "batch_of_contractions": "turned_batch_of_contractions",
    "turned_contraction": "turned_batch_of_contractions",
    "depthwise_line": "depthwise",
    "scan": "scan_back",
    "staged_map_alone": "staged_maps_tf32",
    "convolution_sum_tf32": "convolution_moments_tf32",
    "transposed_convolution_maximum": "scattered_convolution_moments",
    "transposed_convolution_channels": "convolution_channels_tf32",
    "pooled_transposed_convolution": "pooled_convolution_tf32",
    "scattered_convolution_channels": "scattered_convolution_moments",
    "long_sums_of_few": "long_sums_of_few_inputs",
    "norm_of_channels": "moments_of_channels",
    "half_contraction_moments": "half_contraction_group_norm",
    "half_batch_of_contractions": "half_turned_contraction",
    "half_transpose": "transpose",
    "pointwise_behind_a_library_call": "half_pointwise",
}


@dataclass(frozen=True)
class Text:
    """One kernel's text under a name of its own, with what it was rendered from."""

    body: str
    name: str
    origin: str
    plainest: bool
    symbols: tuple[str, ...]
    schedule: str

    @property
    def product_of_warpgroups(self) -> bool:
        """Whether it is a product that runs in the background, in registers which must not be spilled at any parameters."""
        return "'variant': 'sm90'" in self.origin or "'variant': 'slices'" in self.origin

    @property
    def optimised(self) -> bool:
        """Whether it is compiled with all optimisation, since its registers may run out.

        They may at the plainest parameters of most schedules, and in the largest tiles of warpgroups.
        """
        return self.plainest and self.schedule not in OF_FEW_REGISTERS or self.product_of_warpgroups and any(tile in self.origin for tile in LARGEST)


@dataclass(frozen=True)
class Variant:
    """One kernel of a case's plan at one point of its space."""

    case: str
    task: Task
    params: dict[str, Any]
    plainest: bool

    def scope(self, exhaustive: bool) -> tuple[object, ...]:
        """The schedule; in the exhaustive set with the parameter that tells equal values of the others apart."""
        apart = self.params.get("variant") or self.params.get("row_per")
        return (self.task.kernel.schedule, apart) if exhaustive else (self.task.kernel.schedule,)

    def values(self, exhaustive: bool) -> set[tuple[object, ...]]:
        """The values of its parameters."""
        scope = self.scope(exhaustive)
        return {(*scope, axis, value) for axis, value in self.params.items()}

    @property
    def cost(self) -> float:
        """How long it compiles, roughly: sums of a tile are registers, and instructions for each."""
        sides = re.findall(r"\d+", str(self.params.get("tile", "")).split("/")[0])[-2:]
        return 1.0 + math.prod(map(int, sides)) / 4096


def designed(case: str, arch: str) -> Design:
    if case in UNSEEN:
        forward, init, inputs, mode = UNSEEN[case]
        accuracy = Accuracy.TF32 if case.endswith("_tf32") else Accuracy.FP32
        return design(made(source(forward, inputs, init), mode), for_arch(arch), accuracy)
    name, mode = case.split("-")
    return design(reference(name, mode, batch_size="1024", out_features="8192"), for_arch(arch))


def _variants(case: str, arch: str) -> Iterator[list[Variant]]:
    """Each kernel of the case's most fused plan over a covering set of its own space, the plainest first."""
    of = designed(case, arch)
    ((_, graph),) = of.capture.graphs
    plan = of._plans(graph)[0]  # `choices` would work out the spaces of all plans
    for kernel in plan.kernels:
        task = Task(plan, kernel, of.hardware, of.accuracy)
        points = enumerate(template_for(task).space(task).covering_set())
        yield [Variant(case, task, dict(params), number == 0) for number, params in points]


@lru_cache(maxsize=None)
def covering_set(arch: str, exhaustive: bool) -> tuple[Variant, ...]:
    """The variants that are compiled for an architecture: one of each kernel, and values that no earlier one compiles."""
    before = ARCHITECTURES[: ARCHITECTURES.index(arch)]
    earlier = [v for one in before for v in covering_set(one, exhaustive)]
    scopes: set[object] = set()
    chosen, others = [], []
    cases = [case for case in _CASES if exhaustive or case not in _ALIKE]
    for plain, *more in (variants for case in cases for variants in _variants(case, arch)):
        scope = plain.scope(exhaustive)
        if not earlier or scope not in scopes:
            is_known = scope in scopes and not exhaustive
            chosen.append(min([plain, *more], key=lambda v: v.cost) if is_known else plain)
            scopes.add(scope)
        others += [(variant, variant.values(exhaustive)) for variant in (plain, *more)]
    seen = set[object]().union(*(v.values(exhaustive) for v in [*earlier, *chosen]))
    while others := [one for one in others if one[1] - seen]:  # the most values for each second of the compiler
        best, values = max(others, key=lambda one: len(one[1] - seen) / one[0].cost)
        chosen.append(best)
        seen |= values
    return tuple(chosen)


@lru_cache(maxsize=None)
def texts(arch: str, exhaustive: bool) -> tuple[Text, ...]:
    """All kernels for an architecture, each text once, renamed so that they can stand in one file."""
    found: dict[str, Text] = {}
    for variant in covering_set(arch, exhaustive):
        body, rendering = kernel_text(variant.task, variant.params)
        if body not in found:
            name, own_name = f"kernel_{len(found)}", variant.task.kernel.name
            own = rf"\b{own_name}(?=_kernel\b|_merge_kernel\b|_begin_\d+\b|_finish\b|_contraction\b|_convolution\b|_attention\b|_pack_weight\b|_weight\b|_split_weight\b|_split\b|_layers?\b|\()"
            origin = f"{variant.case}: {own_name} {variant.params}"
            found[body] = Text(re.sub(own, name, body), name, origin, variant.plainest, rendering.symbols, variant.task.kernel.schedule)
    return tuple(found.values())


@dataclass(frozen=True)
class Compiled:
    """One compiled file: the compiler's exit status and output, the kernels in the file, and whether it has all optimisation."""

    status: int
    log: str
    kernels: tuple[Text, ...]
    optimised: bool


_SETS = [pytest.param((arch, exhaustive), id=arch + ", exhaustive" * exhaustive, marks=[pytest.mark.exhaustive] * exhaustive)
         for exhaustive in (False, True) for arch in ARCHITECTURES]


@pytest.fixture(scope="module", params=_SETS)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Compiled]:
    """All kernels compiled for one architecture, two files at a time."""
    arch, exhaustive = request.param
    folder = tmp_path_factory.mktemp(arch)
    found = texts(arch, exhaustive)
    full = [text for text in found if exhaustive or text.optimised or not _knows_quick()]
    quick = [text for text in found if text not in full]
    work = [(group, flags) for texts, flags in ((full, ()), (quick, (QUICK,))) for group in _dealt(texts)]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda one: _compile(*one, arch, folder), work))


@lru_cache(maxsize=None)
def _knows_quick() -> bool:
    """Whether this nvcc has the option: older ones do not."""
    return "--Ofast-compile" in subprocess.run(["nvcc", "--help"], capture_output=True, text=True).stdout


def _dealt(kernels: Sequence[Text]) -> list[tuple[Text, ...]]:
    """The kernels of each file, dealt out: those that take long are neighbours."""
    files = -(-len(kernels) // TO_A_FILE)
    return [tuple(kernels[at::files]) for at in range(files)]


def _compile(kernels: tuple[Text, ...], flags: tuple[str, ...], arch: str, folder: Path) -> Compiled:
    path = folder / f"{kernels[0].name}.cu"
    path.write_text(translation_unit([k.body for k in kernels], [name for k in kernels for name in k.symbols], "cuda"))
    compute = arch.replace("sm_", "compute_")
    command = ["nvcc", "-cubin", "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xptxas=-v", *flags,
               f"-gencode=arch={compute},code={arch}", "-o", str(path.with_suffix(".cubin")), str(path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return Compiled(done.returncode, done.stdout + done.stderr, kernels, QUICK not in flags)


def test_every_kernel_compiles_without_a_warning(compiled: list[Compiled]) -> None:
    failed = [f"{c.log[-3000:]}\n{[k.origin for k in c.kernels]}" for c in compiled if c.status != 0]
    assert not failed, failed[0]


def test_no_kernel_spills_at_the_plainest_parameters(compiled: list[Compiled]) -> None:
    plainest = {k.name: k.origin for c in compiled for k in c.kernels if k.plainest}
    spills = {plainest[name]: spilled for name, spilled in _spills(compiled) if name in plainest}
    assert not {origin: spilled for origin, spilled in spills.items() if spilled > _allowance(origin)}


def test_warpgroups_spill_next_to_nothing_at_any_parameters(compiled: list[Compiled]) -> None:
    """In their loop they could not: products run in the background in these registers."""
    warpgroups = {k.name: k.origin for c in compiled for k in c.kernels if k.product_of_warpgroups}
    spills = {warpgroups[name]: spilled for name, spilled in _spills(compiled) if name in warpgroups}
    assert not {origin: spilled for origin, spilled in spills.items() if spilled > max(MOST_SPILLED, _allowance(origin))}


def _allowance(origin: str) -> int:
    """Bytes: a warp's 64 x 64 sums leave so few registers that a few of them wait in memory, once for 32 of k."""
    if "'tile': '2x128x128'" in origin and "group_norm" in origin.partition(":")[0]:
        return MOST_SPILLED_BESIDE
    return MOST_SPILLED if "'variant': 'sm80'" in origin or "'variant': 'gather'" in origin else 0


def test_no_product_of_warpgroups_waits_for_itself(compiled: list[Compiled]) -> None:
    """The assembler says so where it cannot leave accumulators alone while products run. It says it of less optimised code, too."""
    assert not [line for c in compiled if c.optimised for line in c.log.splitlines() if "wgmma" in line and "serialized" in line]


def test_every_kernel_is_compiled(compiled: list[Compiled]) -> None:
    assert {name for name, _ in _spills(compiled)} == {k.name for c in compiled for k in c.kernels}


def _spills(compiled: list[Compiled]) -> Iterator[tuple[str, int]]:
    """Of each kernel in the assembler's words: its name, and the bytes that it stores because registers ran out."""
    for c in compiled:
        for entry in c.log.split("Compiling entry function ")[1:]:
            name = re.match(r"'_ZN?\d+(kernel_\d+)", entry)
            stores = re.search(r"(\d+) bytes spill stores", entry)
            if name and stores:
                yield name[1], int(stores[1])


def test_case_that_is_left_out_is_like_one_that_is_compiled() -> None:
    assert _ALIKE.keys() < set(_CASES) and set(_ALIKE.values()) <= set(_CASES) - _ALIKE.keys()


def test_every_schedule_and_strategy_is_compiled() -> None:
    """The covering sets hold the values that matter most."""
    variants = [variant for arch in ARCHITECTURES for variant in covering_set(arch, False)]
    schedules = {variant.task.kernel.schedule for variant in variants}
    values = {item for variant in variants for item in variant.params.items()}
    assert schedules == set(templates("cuda"))
    assert {("reduction", "warp_shuffle"), ("reduction", "shared_tree"), ("row_per", "warp"), ("softmax", "two_pass"),
            ("row", "reread"), ("row", "shared"), ("merge", "cluster"), ("merge", "team"), ("merge", "last_block"), ("rows", 4), ("row_per", "line"), ("moments", "online"), ("combine", "atomics"), ("combine", "last_block"), ("vec", 1), ("index", "flat"), ("order", "across"), ("order", "backward"),
            ("output", "new"), ("variant", "sm80"), ("variant", "sm90"), ("variant", "slices"), ("variant", "whole"), ("variant", "library"), ("splits", 2), ("splits", 32), ("cluster", 2), ("multicast", 2),
            ("promotion_interval", 16), ("promotion_interval", 64), ("promotion_interval", 128), ("tile", "128x256"), ("tile", "128x128+"), ("tile", "192x128"), ("tile", "64x64/4"), ("products", 3), ("products", 1)} <= values  # fmt: skip


def test_kernels_for_devices_without_the_instructions_of_sm_80_compile(tmp_path: Path) -> None:
    """Devices of sm_75 take all schedules but contractions."""
    of = design(made(source("return F.max_pool2d(x, 3).argmax(1), x.amax(1)", "torch.randn(4, 64, 33, 36)")), for_arch("sm_75"))
    kernels = [kernel_text(Task(plan, kernel, of.hardware), next(space.allowed()))
               for choice in of.choices[:1] for _, plan in choice.plans for kernel, space in zip(plan.kernels, choice.spaces)]
    path = tmp_path / "old.cu"
    path.write_text(translation_unit([text for text, _ in kernels], [name for _, of in kernels for name in of.symbols], "cuda"))
    done = subprocess.run(["nvcc", "-cubin", "-std=c++17", "-gencode=arch=compute_75,code=sm_75", "-o", str(tmp_path / "old.cubin"), str(path)],
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0 and "or_nan" in path.read_text(), done.stderr


def test_functions_that_launch_runs_of_kernels_compile(tmp_path: Path) -> None:
    """With tensors and weights of two dtypes, a batch size that rows follow, and two runs."""
    forward = "y = self.norm(self.embedding(i)).flatten(0, 1)\nreturn torch.sort(y.softmax(1))[0].softmax(1)"
    init = "self.embedding, self.norm = nn.Embedding(9, 20), nn.LayerNorm(20)"
    of = design(made(source(forward, "torch.randint(9, (6, 5))", init, "i")), for_arch("sm_90"))
    extension = read_extension(next(c for c in plainest(of) if c.kernels > 1).source)
    path = tmp_path / "runs.cu"
    path.write_text(extension.cuda_source)
    assert "launch_kernels_2(" in extension.cuda_source
    done = subprocess.run(["nvcc", "-c", *extension.cuda_flags, "-Xcompiler", "-Wall,-Wextra", "-o", str(tmp_path / "runs.o"), str(path)],
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
