"""Convolutions of our own in CUDA: a CPU computes what their kernels load, by the index arithmetic of their own text."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch
from models import design, made, source

from kgen.codegen.render import kernel_text
from kgen.codegen.template import Task
from kgen.devices.hardware import for_arch
from kgen.protocol import Accuracy

#: The module, and its input.
CASES = {
    "channels": ("nn.Conv2d(24, 40, 3, padding=1, bias=False)", (2, 24, 9, 10)),
    "three channels": ("nn.Conv3d(3, 16, (2, 3, 3), bias=False)", (2, 3, 5, 7, 6)),
    "strided and dilated": ("nn.Conv2d(9, 8, (3, 2), stride=(2, 3), padding=(2, 1), dilation=(2, 1), bias=False)", (1, 9, 12, 11)),
    "groups": ("nn.Conv1d(12, 16, 4, groups=2, padding=3, bias=False)", (3, 12, 21)),
    "transposed": ("nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1, bias=False)", (2, 16, 5, 6)),
    "transposed to an odd width": ("nn.ConvTranspose2d(16, 12, 4, stride=(1, 2), padding=1, dilation=(2, 1), bias=False)", (2, 16, 5, 6)),
    "transposed by rows of 4": ("nn.ConvTranspose1d(16, 8, 5, stride=2, dilation=2, padding=3, output_padding=1, bias=False)", (2, 16, 8)),
    "transposed and dilated": ("nn.ConvTranspose2d(5, 8, (2, 3), stride=(3, 2), padding=1, dilation=2, bias=False)", (1, 5, 4, 7)),
    "transposed by strides of 5": ("nn.ConvTranspose2d(9, 12, 3, stride=5, padding=1, dilation=2, bias=False)", (2, 9, 4, 7)),
    "transposed by strides of 3, taps far apart": ("nn.ConvTranspose2d(16, 8, 3, stride=3, padding=2, dilation=2, output_padding=1, bias=False)", (1, 16, 5, 6)),
    "transposed by a kernel of one element": ("nn.ConvTranspose1d(16, 24, 1, stride=3, output_padding=2, bias=False)", (2, 16, 9)),
    "transposed by a long kernel": ("nn.ConvTranspose1d(8, 8, 20, stride=9, padding=4, bias=False)", (2, 8, 11)),
    "transposed in groups": ("nn.ConvTranspose3d(8, 16, 3, stride=2, padding=1, groups=2, bias=False)", (1, 8, 3, 4, 3)),
}

#: The parts of CUDA that the arithmetic needs, for a C++ compiler: float16 is left as float32.
_SHIM = r"""
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__ static const
using std::max;
using std::min;
struct int2 { int x, y; };
struct uint2 { float v[4]; };
struct uint4 { float v[8]; };
using __half = float;
static int2 make_int2(int x, int y) { return {x, y}; }
static float __float2half_rn(float x) { return x; }
static float __half2float(float x) { return x; }
static float power_of_two(int) { return 1.0f; }
static struct { int x; } threadIdx;
template <typename T, int WIDTH> struct Vector { T v[WIDTH]; };
template <int WIDTH> Vector<float, WIDTH> load_vector(const float* from) { Vector<float, WIDTH> v; std::memcpy(&v, from, sizeof v); return v; }
"""

#: Staged images times packed weights, as the tensor cores would sum them.
_DRIVER = r"""
extern "C" void convolve(const float* x, const float* weight, float* y, float* staged, int images) {
    for (int image = 0; image < images; ++image) {
        float* const of = staged + static_cast<long long>(image) * IMAGE_CHUNKS * CHUNK;
        for (int warp = 0; warp < STAGE_WARPS; ++warp) {
            for (threadIdx.x = 0; threadIdx.x < 32; ++threadIdx.x) {
                stage_share(x, of, image, warp, 0);
            }
        }
        for (int panel = 0; panel < PANELS; ++panel) {
            const Residue residue = RESIDUE[panel / GROUPS];
            const int group = panel % GROUPS, pixels = residue.d.count * residue.h.count * residue.w.count;
            for (int row = 0; row < 16 * CHANNELS_OUT; ++row) {
                const int channel = channel_of(row), side = channel < CHANNELS_OUT ? side_of(row) : 0;
                for (int pixel = 0; pixel < pixels && channel < CHANNELS_OUT; ++pixel) {
                    const int left = column_of(residue, pixel), column = left + first_of(side);
                    if (left % WIDTH + first_of(side) >= WIDTH) continue;  // beyond the last output of a row
                    const int2 window = window_of(residue, pixel);
                    float sum = 0.0f;
                    const int length = length_of(residue);
                    for (int k = 0; k < PRODUCTS * length; ++k) {
                        if (k / length == 1) continue;  // the low term of w is 0: float16 is float32 here
                        const int2 entry = table_entry(residue, k / CHUNK);
                        if ((window.y & entry.y) != entry.y) continue;
                        const float taken = of[(window.x + entry.x + group * CHUNKS) * BESIDE * CHUNK + k % CHUNK];
                        sum += taken * weight_at(residue, weight, group, row, k % length);
                    }
                    y[(static_cast<long long>(image) * GROUPS + group) * CHANNELS_OUT * OUT_PIXELS + channel * OUT_PIXELS + column] = sum;
                }
            }
        }
    }
}
"""


def _host_text(text: str, pixels: int, width: int) -> str:
    """The constants and the index arithmetic of a kernel's text, without its kernels."""
    body = text[text.index("namespace ") : text.index("}  // namespace")].split("{\n", 1)[1]
    # Kernels, and the helpers that only they need, end with a closing brace in the first column.
    kernels = r"^__global__ void .*?^}\n"
    structs = r"^struct (?:Epilogue|Ahead|Row|Work|Copies) .*?^};\n"
    body = re.sub(f"{kernels}|{structs}", "", body, flags=re.MULTILINE | re.DOTALL)
    if "column_of" not in body:
        body += "static int column_of(const Residue&, const int pixel) { return pixel; }\n"
    if "channel_of" not in body:
        body += "static int channel_of(const int row) { return row; }\nstatic int side_of(int) { return 0; }\nstatic int first_of(int) { return 0; }\n"
    else:
        body += "static int first_of(const int side) { return SIDES[side].first; }\n"
    body += f"constexpr int WIDTH = {width};\n"
    # Both terms of a chunk of x beside each other: the low ones are 0, too.
    body += "constexpr int PRODUCTS = 1, BESIDE = 2;\n" if "ENTRIES" in body else "constexpr int BESIDE = 1;\n"
    return _SHIM + body.replace("#pragma unroll", "//") + f"constexpr int OUT_PIXELS = {pixels};\n" + _DRIVER


@pytest.mark.parametrize(
    ("case", "products"), [*((case, 1) for case in CASES), ("three channels", 3), ("transposed in groups", 3)]
)
def test_windows_and_weights_make_the_convolution(case: str, products: int, tmp_path: Path) -> None:
    init, shape = CASES[case]
    loaded = made(source("return self.conv(x)", f"torch.randn{shape}", f"self.conv = {init}"))
    torch.manual_seed(0)
    conv = eval(init, {"nn": torch.nn})
    x = torch.randn(shape)
    expected = conv(x).detach()
    found = design(loaded, for_arch("sm_90a"), Accuracy.PYTORCH)
    choice = next(c for c in found.choices if c.name.startswith("implicit_gemm["))
    ((_, plan),) = choice.plans
    task = Task(plan, plan.kernels[0], found.hardware, Accuracy.PYTORCH)
    text, _ = kernel_text(task, next(p for p in choice.kernels[0].allowed if p["variant"] == "gather" and p["products"] == products))
    (tmp_path / "host.cpp").write_text(_host_text(text, expected[0, 0].numel(), expected.shape[-1]))
    library = tmp_path / "host.so"
    subprocess.run(["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-o", library, tmp_path / "host.cpp"], check=True)
    # Outputs without a tap are no kernel's product: they are 0 from the start.
    y, staged = torch.where(expected == 0, 0.0, float("nan")), torch.zeros(64 * x.numel())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, conv.weight, y, staged)]
    ctypes.CDLL(str(library)).convolve(*pointers, shape[0])
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("init, shape, residues", [
    ("nn.ConvTranspose2d(32, 64, 3, stride=5, padding=1, dilation=2)", (16, 32, 64, 128), ["together"]),
    ("nn.ConvTranspose2d(32, 64, 3, stride=2)", (16, 32, 64, 64), ["together"]),
    ("nn.ConvTranspose2d(4096, 64, 1, stride=2)", (1, 4096, 32, 32), ["apart", "together"]),
    ("nn.ConvTranspose2d(32, 64, 3)", (16, 32, 64, 64), ["apart"]),
])  # fmt: skip
def test_residues_are_stored_first_as_takes_less_time(init: str, shape: tuple[int, ...], residues: list[str]) -> None:
    found = design(made(source("return self.conv(x)", f"torch.empty{shape}", f"self.conv = {init}")), for_arch("sm_90a"), Accuracy.PYTORCH)
    choice = next(c for c in found.choices if c.name.startswith("implicit_gemm["))
    assert list(dict.fromkeys(p["residues"] for p in choice.kernels[0].allowed)) == residues
