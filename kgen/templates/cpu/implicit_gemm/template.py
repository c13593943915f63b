"""Convolutions on the CPU: kernels times packed panels of pixels in registers, with maps behind them."""

from __future__ import annotations

import math
from functools import partial

from kgen.codegen.arguments import rendering
from kgen.codegen.c_printer import pointer
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.space import Space
from kgen.codegen.template import Argument, Rendering, Task, Template
from kgen.compiler.loops.program import Program
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

_MOST_K = 8192  # products of a sum; their panel of 32 columns takes 1 MB of a thread's stack
_INT_MAX = (1 << 31) - 1


def takes(program: Program) -> bool:
    """Programs that begin with a float32 convolution of one group; maps follow it."""
    of = program.contraction
    if (
        of is None
        or of.window is None
        or of.before
        or of.across
        or program.moments_of
        or program.reductions
        or program.windows
        or of.k > _MOST_K
    ):
        return False
    window, small = of.window, program.cols <= _INT_MAX and of.window.pixels_in <= _INT_MAX
    plain = program.floats and not program.narrow and not any(x.access.mask or x.args for x in program.reads)
    return window.groups == 1 and not window.transposed and isinstance(program.col_size, int) and plain and small


def space(task: Task) -> Space:
    return Space(partial(common.Vectorised, task), tuple(vector_axis(task.hardware)))


def render(schedule: common.Vectorised) -> Rendering:
    program = schedule.program
    of, window = program.contraction, program.contraction.window
    width, most = common.panel(schedule.task.hardware)
    at_once = max((n for n in range(most // 2 + 1, most + 1) if window.channels_out % n == 0), default=most)
    first = tuple(Argument(pointer(name), "in", name) for name in (of.x, of.weight))
    args, multiplied = common.products(schedule, first, at_once)
    starts, inputs, inside, place, outputs, taps, inner = [], [], [], [], 1, 1, 1
    for letter, line in reversed(list(zip("abc", window.lines))):
        at, tap = (
            f"{of_all}{f' / {behind}' if behind > 1 else ''} % {size}"
            for of_all, behind, size in (("pixel", outputs, line.out), ("tap", taps, line.kernel))
        )
        starts.append(f"corner_{letter}[col] = {at} * {line.stride} - {line.padding};")
        inputs.append(f"const int in_{letter} = corner_{letter}[col] + {tap} * {line.dilation};")
        inside.append(f"in_{letter} >= 0 && in_{letter} < {line.size}")
        place.append(f"in_{letter} * {inner}")
        outputs, taps, inner = outputs * line.out, taps * line.kernel, inner * line.size
    context = {
        **multiplied,
        "x": first[0].name,
        "weight": first[1].name,
        "channels_in": window.channels_in,
        "channels": window.channels_out,
        "image": window.channels_in * window.pixels_in,
        "pixels_in": window.pixels_in,
        "pixels": window.pixels_out,
        "panels": -(-window.pixels_out // width),
        "taps": math.prod(line.kernel for line in window.lines),
        "corners": [f"corner_{letter}[{width}]" for letter in "abc"[: len(window.lines)]],
        "starts": starts[::-1],
        "inputs": inputs[::-1],
        "inside": " && ".join(inside[::-1]),
        "place": " + ".join(place[::-1]),
    }
    return rendering(schedule, args, context)


TEMPLATE = Template(
    name="implicit_gemm", device_type="cpu", file="cpu/implicit_gemm/implicit_gemm.cpp.j2", takes=takes,
    schedule=common.Vectorised, space=space, render=render, arithmetic=lambda params: Arithmetic("float32"),
    share=0.5,  # 120 to 140 GFLOP/s on a core where oneDNN reaches 220 to 250 with channels last
)  # fmt: skip
