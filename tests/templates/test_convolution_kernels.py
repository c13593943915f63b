"""Whole kernels of convolutions with all kinds of epilogues, on the emulated device, in each way to multiply."""

from __future__ import annotations

import copy
import ctypes
import itertools
import re
from dataclasses import replace

import pytest
import torch
from emulated import Device
from models import design, made, source

from kgen.compiler.graph.dtypes import NARROW
from kgen.devices.hardware import for_arch
from kgen.protocol import Accuracy
from kgen.tuning.search import Point

_INFINITIES = "torch.where(torch.rand(3, 16, 9, 9) < 1e-2, torch.tensor(float('inf')), torch.randn(3, 16, 9, 9))"

#: forward, __init__, input, tile.
CASES = {
    "values and moments": (
        "y = self.c(x).relu() * self.s\nreturn y, y.mean((2, 3)) * self.s[:, 0, 0], y.var((2, 3), correction=0)",
        "self.c = nn.Conv2d(16, 24, 3, padding=1)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(3, 16, 13, 15)", "64x128/8"),
    "sums of groups": ("return self.c(x - self.s).sum((2, 3)) * 2.0", "self.c = nn.Conv2d(32, 40, 3, groups=2)\nself.s = nn.Parameter(torch.randn(32, 1, 1))", "torch.randn(2, 32, 14, 13)", "64x128"),
    "extremes of a transposed convolution": ("y = self.c(x)\nreturn y.amax((2, 3)), y.amin((2, 3))", "self.c = nn.ConvTranspose2d(16, 24, 3, stride=2)", _INFINITIES, "64x128"),
    "extremes of channels": ("y = self.c(x) * self.s + x\nreturn (y.amin(1) * self.p).tanh(), y.amax(1)", "self.c = nn.Conv2d(32, 32, 3, padding=1)\nself.s, self.p = nn.Parameter(torch.randn(32, 1, 1)), nn.Parameter(torch.randn(11))", "torch.randn(3, 32, 11, 11)", "64x128/8"),
    "logsumexp over channels of a transposed convolution": ("return self.c(x).logsumexp(1, keepdim=True)", "self.c = nn.ConvTranspose2d(16, 20, 3, stride=2, padding=1)", _INFINITIES, "64x128"),
    "values and moments of a transposed convolution": ("y = self.c(x)\nreturn y, y.var((2, 3))", "self.c = nn.ConvTranspose2d(16, 20, 3, stride=2)", _INFINITIES, "64x128"),
    "softmax of channels": ("return torch.softmax(self.c(x) * self.s, 1) * 2.0", "self.c = nn.Conv2d(16, 24, 3)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(2, 16, 11, 12)", "64x128"),
    "sums over channels of residues": ("return self.c(x).sum(1)", "self.c = nn.ConvTranspose1d(16, 24, 3, stride=3)", "torch.randn(2, 16, 50)", "32x256"),
    "two values of residues, some of which have no taps": ("y = self.c(x) + self.p\nreturn y, y.tanh()", "self.c = nn.ConvTranspose2d(16, 24, (2, 3), stride=3)\nself.p = nn.Parameter(torch.randn(24, 14, 21))", "torch.randn(2, 16, 5, 7)", "32x256"),
    "a value of the size of a transposed convolution": ("return self.c(x) * self.p", "self.c = nn.ConvTranspose2d(16, 20, 3, stride=2)\nself.p = nn.Parameter(torch.randn(20, 11, 13))", "torch.randn(2, 16, 5, 6)", "64x128"),
    "outputs of a stride of 5, some without a tap": ("return (self.c(x) + self.p).sigmoid()", "self.c = nn.ConvTranspose2d(16, 24, 3, stride=5, padding=1, dilation=2, output_padding=(1, 0))\nself.p = nn.Parameter(torch.randn(24, 44, 43))", _INFINITIES, "64x128"),
    "outputs of a stride of 7 in groups": ("return self.c(x) * self.s", "self.c = nn.ConvTranspose1d(32, 40, 5, stride=7, groups=2)\nself.s = nn.Parameter(torch.randn(40, 1))", "torch.randn(2, 32, 70)", "32x256"),
    "pairs that begin inside of sectors": ("return self.c(x).tanh()", "self.c = nn.ConvTranspose2d(16, 20, 4, stride=2)", "torch.randn(2, 16, 6, 8)", "64x128"),
    "outputs of a stride of 3 in each dimension": ("y = self.c(x)\nreturn y.relu(), y", "self.c = nn.ConvTranspose3d(16, 16, 4, stride=3, padding=1, output_padding=1)", "torch.randn(2, 16, 2, 3, 5)", "64x128"),
    "an image added to its convolution": ("return self.c(x) + x", "self.c = nn.Conv2d(16, 16, 3, padding=1)", "torch.randn(3, 16, 9, 11)", "64x128/8"),
    "maps in front and behind": ("y = x.relu() * self.s\nreturn self.c(y).sigmoid() + y", "self.c = nn.Conv2d(16, 16, 3, padding=1)\nself.s = nn.Parameter(torch.randn(16, 1, 1))", "torch.randn(2, 16, 9, 12) * 100", "16x256"),
    "maxima of windows": ("return F.max_pool2d((self.c(x) * self.s).relu(), 2) + self.s", "self.c = nn.Conv2d(16, 24, 3, padding=1)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(3, 16, 13, 15)", "64x128"),
    "averages of windows of 8 in groups": ("return F.avg_pool3d(self.c(x).tanh(), 2)", "self.c = nn.Conv3d(16, 16, 2, groups=2)", "torch.randn(2, 16, 5, 9, 17)", "32x256"),
    "averages of aligned windows": ("return F.avg_pool2d(self.c(x).tanh(), (1, 2)) * self.s", "self.c = nn.Conv2d(8, 16, 3, stride=(2, 1), padding=1)\nself.s = nn.Parameter(torch.randn(16, 1, 1))", "torch.randn(2, 8, 16, 16)", "16x256"),
    "maxima of windows of 9": ("return F.max_pool2d(self.c(x).relu(), 3)", "self.c = nn.Conv2d(12, 24, 3, padding=1)", "torch.randn(2, 12, 12, 13)", "64x128/8"),
    "maxima of a transposed convolution's windows": ("return F.max_pool3d(F.leaky_relu(self.c(x)), 2)", "self.c = nn.ConvTranspose3d(3, 16, 3, stride=2, padding=1, output_padding=1)", "torch.where(torch.rand(2, 3, 4, 5, 6) < 1e-2, torch.tensor(float('inf')), torch.randn(2, 3, 4, 5, 6))", "16x256"),
    "windows of a transposed convolution of stride 1": ("return F.max_pool2d(self.c(x), 2).mean((2, 3)).tanh()", "self.c = nn.ConvTranspose2d(16, 24, 3, padding=1)", "torch.randn(2, 16, 17, 18)", "64x128/8"),
    "softmax of pooled channels": ("return torch.softmax(F.max_pool2d(self.c(x) * self.s, 2), 1)", "self.c = nn.Conv2d(16, 24, 3)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(2, 16, 13, 12)", "64x128"),
    "softmax of minima over depth": ("return torch.softmax(self.c(x).amin(2), 1)", "self.c = nn.Conv3d(3, 24, 3)", "torch.randn(2, 3, 7, 8, 9)", "64x128/8"),
    "pixels alone in groups": ("y = self.c(x).relu() + x[:, :40]\nreturn y, y.mean((2, 3))", "self.c = nn.Conv2d(70, 40, 1, groups=2)", "torch.randn(3, 70, 12, 13)", "64x128"),
    "extremes of channels of pixels alone": ("return self.c(x).amax(1)", "self.c = nn.ConvTranspose1d(24, 40, 1)", "torch.where(torch.rand(3, 24, 300) < 1e-3, torch.tensor(float('inf')), torch.randn(3, 24, 300))", "64x128"),
}  # fmt: skip

#: Those that are computed in half types, too, with the tile there.
HALVES = {
    "values and moments": "64x256", "extremes of channels": "64x128", "values and moments of a transposed convolution": "64x128/8",
    "maps in front and behind": "16x256", "maxima of windows": "64x256", "outputs of a stride of 5, some without a tap": "64x128",
}  # fmt: skip

#: Those whose channels or windows TMA's im2col mode cannot take.
GATHERED = {
    "averages of windows of 8 in groups", "averages of aligned windows", "maxima of windows of 9", "maxima of a transposed convolution's windows",
    "softmax of minima over depth", "pixels alone in groups", "extremes of channels of pixels alone",
}  # fmt: skip

#: Epilogues whose parts others have: their maps, what they store or reduce, and the kind of their convolution.
RARE = {
    "values and moments of a transposed convolution", "sums over channels of residues", "a value of the size of a transposed convolution",
    "outputs of a stride of 7 in groups", "pairs that begin inside of sectors", "an image added to its convolution", "averages of aligned windows",
    "maxima of windows of 9", "windows of a transposed convolution of stride 1", "softmax of pooled channels", "extremes of channels of pixels alone",
}  # fmt: skip
#: Each other case in one of the variants that it has, by turns; the other one is exhaustive. So is every second case of half types,
#: and the second half type of the others.
_BY_TMA = [case for case in CASES if case not in GATHERED]
_TURN = [case for case in _BY_TMA if case not in RARE][::2]
_ALWAYS = [*((case, "float32", "im2col") for case in _TURN), *((case, "float32", "gather") for case in CASES if case not in {*_TURN, *RARE}),
           *((case, dtype, "gather") for case, dtype in zip([*HALVES][::2], itertools.cycle(NARROW)))]
_EVERY = [*((case, "float32", "gather") for case in CASES), *((case, "float32", "im2col") for case in _BY_TMA), *((case, dtype, "gather") for case in HALVES for dtype in NARROW)]


def leaves(value: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("case, dtype, variant", [pytest.param(*one, marks=[] if one in _ALWAYS else [pytest.mark.exhaustive]) for one in _EVERY])
def test_a_kernel_on_the_emulated_device_is_right(device: Device, case: str, dtype: str, variant: str) -> None:
    forward, init, inputs, tile = CASES[case]
    text = source(forward, inputs, init)
    if dtype in NARROW:
        text, tile = f'{text}\n\n__dtype__ = "{dtype}"  # kgen converts the model\n', HALVES[case]
    torch.manual_seed(0)
    loaded = made(text, "train")
    model, (x,) = loaded.model(), loaded.inputs()
    of = design(loaded, for_arch("sm_80" if variant == "gather" else "sm_90"), Accuracy.PYTORCH if dtype in NARROW else Accuracy.FP32)
    number = next(n for n, o in enumerate(of.options) if re.fullmatch(r"implicit_gemm\[[^]]*\]( after extreme_into_pool)?", o.name))
    (kernel,) = of.options[number].kernels
    wanted = {"tile": tile} if variant == "gather" else {"variant": variant}
    choice = next(n for n in range(len(kernel)) if wanted.items() <= kernel[n].items())
    new = device.module(of.candidate(Point(number, (choice,)))).ModelNew().to(x.dtype).train()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        eager, exact = leaves(model(x)), leaves(copy.deepcopy(model).double()(x.double()))
    for mine, theirs, truth in zip(leaves(device.run(new, [x])), eager, exact, strict=True):
        if dtype not in NARROW:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)
            continue
        assert mine.dtype == theirs.dtype and torch.equal(mine.isfinite(), truth.isfinite())
        errors = [(found.double() - truth)[truth.isfinite()].square().sum() for found in (mine, theirs)]
        assert errors[0] <= 1.1 * errors[1]


@pytest.mark.parametrize("case, paired", [("values and moments of a transposed convolution", True), ("logsumexp over channels of a transposed convolution", False)])
def test_residues_make_pairs_only_where_pixels_are_stored(case: str, paired: bool) -> None:
    forward, init, inputs, _ = CASES[case]
    of = design(made(source(forward, inputs, init), "train"), for_arch("sm_90"), Accuracy.FP32)
    number = next(n for n, o in enumerate(of.options) if re.fullmatch(r"implicit_gemm\[[^]]*\]", o.name))
    assert ("Line SIDES[2]" in of.candidate(Point(number, (0,))).source) == paired


def test_residues_of_a_row_are_stored_in_whole_sectors(device: Device) -> None:
    text = source("return self.c(x)", "torch.randn(1, 16, 4, 64)", "self.c = nn.ConvTranspose2d(16, 16, 3, stride=5, padding=1, dilation=2)")
    torch.manual_seed(0)
    loaded = made(text)
    model, (x,) = loaded.model(), loaded.inputs()
    of = design(loaded, for_arch("sm_90"), Accuracy.FP32)
    candidate = of.candidate(Point(next(n for n, o in enumerate(of.options) if o.kernels), (0,)))
    stores = r"(\w+_out\[[^\]]*\bcol\]) = "
    counted, count = re.subn(stores, r"emulation::stores().add(&\1); \1 = ", candidate.source)
    module = device.module(replace(candidate, source=counted.replace("#include <cfloat>", "#include <cfloat>\n#include <stores.h>", 1)))
    new = module.ModelNew()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(device.run(new, [x]), model(x), rtol=1e-5, atol=1e-5)
    found = (ctypes.c_longlong * 3)()
    module._library.stored_sectors(found)
    sectors, parts, least = found
    assert count and least >= x.new_empty(1, 16, 18, 318).nbytes // 32
    assert sectors <= 1.1 * least and parts <= 0.1 * sectors
