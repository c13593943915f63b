"""Whole kernels of convolutions, run on a CPU: each thread of a block is a fiber (``fibers.h``)."""

from __future__ import annotations

import copy
import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch
from models import design, made, source

from kgen.compiler.dtypes import HALF
from kgen.compiler.fusion import FusionPlan
from kgen.evaluator.protocol import Accuracy
from kgen.hardware import for_arch
from kgen.templates import Argument, Task
from kgen.templates.render import kernel_text
from kgen.templates.spelling import helpers
from kgen.templates.target import types

FIBERS = Path(__file__).parent / "fibers.h"
_INFINITIES = "torch.where(torch.rand(3, 8, 9, 9) < 1e-2, torch.tensor(float('inf')), torch.randn(3, 8, 9, 9))"

#: forward, __init__, input, tile.
CASES = {
    "values and moments": (
        "y = self.c(x).relu() * self.s\nreturn y, y.mean((2, 3)) * self.s[:, 0, 0], y.var((2, 3), correction=0)",
        "self.c = nn.Conv2d(16, 24, 3, padding=1)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(3, 16, 13, 15)", "64x128/8"),
    "sums of groups": ("return self.c(x - self.s).sum((2, 3)) * 2.0", "self.c = nn.Conv2d(16, 40, 3, groups=2)\nself.s = nn.Parameter(torch.randn(16, 1, 1))", "torch.randn(2, 16, 14, 13)", "64x128"),
    "extremes of a transposed convolution": ("y = self.c(x)\nreturn y.amax((2, 3)), y.amin((2, 3))", "self.c = nn.ConvTranspose2d(8, 24, 3, stride=2)", _INFINITIES, "64x128"),
    "extremes of channels": ("y = self.c(x) * self.s + x\nreturn (y.amin(1) * self.p).tanh(), y.amax(1)", "self.c = nn.Conv2d(24, 24, 3, padding=1)\nself.s, self.p = nn.Parameter(torch.randn(24, 1, 1)), nn.Parameter(torch.randn(11))", "torch.randn(3, 24, 11, 11)", "64x128/8"),
    "logsumexp over channels of a transposed convolution": ("return self.c(x).logsumexp(1, keepdim=True)", "self.c = nn.ConvTranspose2d(8, 20, 3, stride=2, padding=1)", _INFINITIES, "64x128"),
    "values and moments of a transposed convolution": ("y = self.c(x)\nreturn y, y.var((2, 3))", "self.c = nn.ConvTranspose2d(8, 20, 3, stride=2)", _INFINITIES, "64x128"),
    "softmax of channels": ("return torch.softmax(self.c(x) * self.s, 1) * 2.0", "self.c = nn.Conv2d(8, 24, 3)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(2, 8, 11, 12)", "64x128"),
    "sums over channels of residues": ("return self.c(x).sum(1)", "self.c = nn.ConvTranspose1d(16, 24, 3, stride=3)", "torch.randn(2, 16, 50)", "32x256"),
    "maps in front and behind": ("y = x.relu() * self.s\nreturn self.c(y).sigmoid() + y", "self.c = nn.Conv2d(16, 16, 3, padding=1)\nself.s = nn.Parameter(torch.randn(16, 1, 1))", "torch.randn(2, 16, 9, 12) * 100", "16x256"),
    "maxima of windows": ("return F.max_pool2d((self.c(x) * self.s).relu(), 2) + self.s", "self.c = nn.Conv2d(16, 24, 3, padding=1)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(3, 16, 13, 15)", "64x128"),
    "averages of windows of 8 in groups": ("return F.avg_pool3d(self.c(x).tanh(), 2)", "self.c = nn.Conv3d(16, 16, 2, groups=2)", "torch.randn(2, 16, 5, 9, 17)", "32x256"),
    "averages of aligned windows": ("return F.avg_pool2d(self.c(x).tanh(), (1, 2)) * self.s", "self.c = nn.Conv2d(8, 16, 3, stride=(2, 1), padding=1)\nself.s = nn.Parameter(torch.randn(16, 1, 1))", "torch.randn(2, 8, 16, 16)", "16x256"),
    "maxima of windows of 9": ("return F.max_pool2d(self.c(x).relu(), 3)", "self.c = nn.Conv2d(12, 24, 3, padding=1)", "torch.randn(2, 12, 12, 13)", "64x128/8"),
    "maxima of a transposed convolution's windows": ("return F.max_pool3d(F.leaky_relu(self.c(x)), 2)", "self.c = nn.ConvTranspose3d(3, 16, 3, stride=2, padding=1, output_padding=1)", "torch.where(torch.rand(2, 3, 4, 5, 6) < 1e-2, torch.tensor(float('inf')), torch.randn(2, 3, 4, 5, 6))", "16x256"),
    "windows of a transposed convolution of stride 1": ("return F.max_pool2d(self.c(x), 2).mean((2, 3)).tanh()", "self.c = nn.ConvTranspose2d(16, 24, 3, padding=1)", "torch.randn(2, 16, 17, 18)", "64x128/8"),
    "softmax of pooled channels": ("return torch.softmax(F.max_pool2d(self.c(x) * self.s, 2), 1)", "self.c = nn.Conv2d(8, 24, 3)\nself.s = nn.Parameter(torch.randn(24, 1, 1))", "torch.randn(2, 8, 13, 12)", "64x128"),
    "softmax of minima over depth": ("return torch.softmax(self.c(x).amin(2), 1)", "self.c = nn.Conv3d(3, 24, 3)", "torch.randn(2, 3, 7, 8, 9)", "64x128/8"),
    "pixels alone in groups": ("y = self.c(x).relu() + x[:, :40]\nreturn y, y.mean((2, 3))", "self.c = nn.Conv2d(70, 40, 1, groups=2)", "torch.randn(3, 70, 12, 13)", "64x128"),
    "extremes of channels of pixels alone": ("return self.c(x).amax(1)", "self.c = nn.ConvTranspose1d(24, 40, 1)", "torch.where(torch.rand(3, 24, 300) < 1e-3, torch.tensor(float('inf')), torch.randn(3, 24, 300))", "64x128"),
}  # fmt: skip


def host_text(text: str) -> str:
    """The kernel's text and its helpers for a C++ compiler; ``fibers.h`` has those that are instructions of a GPU."""
    found = helpers(text, "cuda")
    shim = FIBERS.read_text()
    body = "\n".join((found.math, found.table, found.kernels))
    for name in re.findall(r"^static [^;{]*?\b(\w+)\(", shim, re.MULTILINE):
        body = re.sub(rf"(?:^template[^\n]*\n)?^(?:static|__device__)[^\n{{}}]*\b{name}\([^{{]*\{{.*?^\}}\n", "", body, flags=re.M | re.S)
    body = re.sub(r"^struct Shape \{.*?^\};\n", "", body, flags=re.MULTILINE | re.DOTALL)
    # A vector's address is a multiple of its size: the compiler may store it at once.
    body = re.sub(r"asm volatile\(\"st.global.v4.*?\);", "*reinterpret_cast<Vector<float, 4>*>(to) = value;", body)
    body = f"{types(text + body, 'cuda')}\n{body}"
    text = re.sub(r"extern __shared__ [^\n]* shared\[\];", "unsigned char* const shared = shared_memory;", text)
    text = re.sub(r"(\w+)<<<(.*?), (\d+), 0, (.*?)>>>\((.*?)\);", r"launch_early(\1, {dim3(\2), \3}, \4, \5);", text)
    return "\n".join((shim, body, text)).replace("#pragma unroll", "//")


def memory(argument: Argument, plan: FusionPlan, values: dict[str, torch.Tensor], rows: int) -> torch.Tensor:
    """The memory of an argument; what the kernel has to write begins as NaN."""
    if argument.role == "in":
        return values[argument.tensor].detach().contiguous()
    shape = plan.graph.type(argument.tensor).shape if argument.role == "out" else (eval(argument.size, {"rows": rows}),)
    return torch.full(shape, float("nan"), dtype=getattr(torch, argument.dtype))


#: Those that are computed in half types, too, with the tile there.
HALVES = {
    "values and moments": "64x256", "extremes of channels": "64x128", "values and moments of a transposed convolution": "64x128/8",
    "maps in front and behind": "16x256", "maxima of windows": "64x256",
}  # fmt: skip


def leaves(value: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize("case, dtype", [*((case, "float32") for case in CASES), *((case, dtype) for case in HALVES for dtype in HALF)])
def test_a_kernel_on_a_cpu_is_right(case: str, dtype: str, tmp_path: Path) -> None:
    forward, init, inputs, tile = CASES[case]
    text = source(forward, inputs, init)
    if dtype in HALF:
        text, tile = f'{text}\n\n__dtype__ = "{dtype}"  # kgen converts the model\n', HALVES[case]
    torch.manual_seed(0)
    loaded = made(text, "train")
    model, (x,) = loaded.model(), loaded.inputs()
    found = design(loaded, for_arch("sm_80"), Accuracy.PYTORCH if dtype in HALF else Accuracy.FP32)
    choice = next(c for c in found.choices if re.fullmatch(r"implicit_gemm\[[^]]*\]( after extreme_into_pool)?", c.name))
    ((_, plan),) = choice.plans
    (kernel,) = plan.kernels
    params = next(p for p in choice.kernels[0].allowed if p["tile"] == tile)
    text, rendering = kernel_text(Task(plan, kernel, found.hardware), params)
    file, library = tmp_path / "kernel.cpp", tmp_path / "kernel.so"
    file.write_text(host_text(text))
    subprocess.run(["g++", "-O1", "-std=c++17", "-w", "-fpermissive", "-shared", "-fPIC", "-o", library, file], check=True)
    functions, rows = ctypes.CDLL(str(library)), plan.program(kernel).rows
    state = dict(model.state_dict())
    values = {plan.graph.inputs[0].name: x} | {w.name: state[w.path] for w in plan.graph.weights}
    held = {a.name: memory(a, plan, values, rows) for a in rendering.arguments}
    pointers = [ctypes.c_void_p(held[a.name].data_ptr()) for a in rendering.arguments]
    for argument, pointer in zip(rendering.arguments, pointers):
        if argument.filled:
            weight = ctypes.c_void_p(values[argument.tensor].data_ptr())
            assert getattr(functions, argument.filled.launcher)(weight, pointer, ctypes.c_longlong(argument.filled.rows), None) == 0
    assert getattr(functions, kernel.name)(*pointers, ctypes.c_longlong(rows), None) == 0
    outputs = {a.tensor: held[a.name] for a in rendering.arguments if a.role == "out"}
    with torch.no_grad():
        eager, exact = leaves(model(x)), leaves(copy.deepcopy(model).double()(x.double()))
    for name, theirs, truth in zip(plan.graph.returns, eager, exact, strict=True):
        mine = outputs[name].view(theirs.shape)
        if dtype not in HALF:
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)
            continue
        assert mine.dtype == theirs.dtype and torch.equal(mine.isfinite(), truth.isfinite())
        errors = [(found.double() - truth)[truth.isfinite()].square().sum() for found in (mine, theirs)]
        assert errors[0] <= 1.1 * errors[1]
