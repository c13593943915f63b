"""Pooling of images whose channels lie side by side: vectors go across channels, lines of outputs over threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Collection

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import block, fill, statement, store_value
from kgen.codegen.space import Axis, Space, alike
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.codegen.windowing import WindowParts, minus, outside, runs_across, times
from kgen.compiler.graph.dtypes import loaded, value_type
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Load, Map, Program, taken
from kgen.compiler.rewrites.rewrite import Offer
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

#: How a kind takes in a value. A NaN stays: g++ vectorises two plain selections, and not one that keeps NaN.
_SUM = ("total[place] += {0};",)
_TAKE = {
    "max": (
        "const float now = total[place], larger = {0} > now ? {0} : now;",
        "total[place] = {0} != {0} ? {0} : larger;",
    ),
    "sum": _SUM,
    "mean": _SUM,
}


@dataclass(frozen=True, kw_only=True)
class StripWindows(common.Vectorised):
    width: int = parameter("neighbouring channels of a strip")
    tile: int = parameter("outputs that are worked on at a time")


def takes(program: Program) -> bool:
    """Programs with one window over images whose channels lie side by side, and the same maps under each tap."""
    return runs_across(program)


def space(task: Task) -> Space:
    program = task.program()
    beside, outputs = int(program.row_loops[-1].extent), program.windows[0].slides[-1].outputs
    axes = (Axis("width", (64, 32, 128)), Axis("tile", (32, 16, 64)), *vector_axis(task.hardware))
    constraints = (
        alike(
            "strip_in_channels",
            "width",
            beside,
            32,
            f"a strip this wide holds all {beside} channels twice: a narrower one does the same",
        ),
        alike(
            "tile_in_line",
            "tile",
            outputs,
            16,
            f"a tile this large holds a line of {outputs} outputs twice: a smaller one does the same",
        ),
    )
    return Space(partial(StripWindows, task), axes, constraints)


def render(schedule: StripWindows) -> Rendering:
    program = schedule.program
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    args = pointers(schedule)
    parts, read_from = WindowParts.of(program), sources(args)
    inner, beside = parts.inner, int(program.row_loops[-1].extent)
    letter, width, tile = parts.letter(inner), min(schedule.width, beside), min(schedule.tile, inner.outputs)
    row_values = {x.name: x.dtype for x in (*plan.row_loads, *plan.row_maps)}

    def load(of: Load, place: str = "place") -> str:
        return (
            f"const {value_type(of.dtype)} {of.name} = "
            f"{loaded(f'{read_from[of.tensor]}[{parts.named(of).access.index(beside=place)}]', of.dtype)};"
        )

    def step(of: Load | Map) -> str:
        return load(of) if isinstance(of, Load) else statement(of, "cpu")

    def given(names: Collection[str]) -> list[str]:
        """The row values among those, of the channel at ``place``."""
        return [
            f"const {value_type(dtype)} {name} = {name}_strip[place];"
            for name, dtype in row_values.items()
            if name in names
        ]

    head = [f"alignas(64) {value_type(dtype)} {name}_strip[{width}];" for name, dtype in row_values.items()]
    if row_values:
        made = [
            *map(step, plan.row_loads),
            *map(step, plan.row_maps),
            *(f"{name}_strip[place] = {name};" for name in row_values),
        ]
        head += ["#pragma omp simd", *block("for (int place = 0; place < width; ++place)", made)]
    body = [*map(step, parts.points), *(line.format(parts.window.arg) for line in _TAKE[parts.window.kind])]
    across = [
        "#pragma omp simd",
        *block(
            "for (int place = 0; place < width; ++place)", [*given({parts.window.arg, *taken(parts.points)}), *body]
        ),
    ]
    beyond = outside(f"in_{letter}", -inner.padding, inner.last, inner.size)
    at = (
        f"const int in_{letter} = out_{letter}{times(inner.stride)} + "
        f"tap_{letter}{times(inner.dilation)}{minus(inner.padding)};"
    )
    reduction = block(
        f"for (int tap_{letter} = 0; tap_{letter} < {inner.taps}; ++tap_{letter})",
        [at, *([f"if ({beyond}) continue;"] if beyond else []), *across],
    )
    for slide in reversed(parts.outer):
        reduction = parts.outer_loop(slide, reduction)
    lines, place = parts.places()
    mean = f" / static_cast<float>({parts.count()})" if parts.window.kind == "mean" else ""
    maps = [m for m in only.maps if isinstance(m, Map)]
    finish = [
        f"const float {parts.window.name} = totals[out_{letter} - begin][place]{mean};",
        *(load(x) for x in program.loads if x.level == "element"),
        *(statement(m, "cpu") for m in maps),
        *(
            f"{written(s, args)}[{parts.named(s).access.index(beside='place')}] = {store_value(s)};"
            for s in program.stores
        ),
    ]
    context = {
        "width": width,
        "beside": beside,
        "strips": -(-beside // width),
        "lines": lines,
        "outputs": inner.outputs,
        "letter": letter,
        "tile": tile,
        "place": [line.replace("strip", "piece") for line in place[:-1]],
        "head": head,
        "start": fill(parts.window),
        "reduction": reduction,
        "given": given(taken((*program.loads, *maps, *program.stores))),
        "finish": finish,
    }
    return rendering(schedule, args, context)


TEMPLATE = Template(
    name="strip_window", device_type="cpu", file="cpu/strip_window/strip_window.cpp.j2", takes=takes,
    schedule=StripWindows, space=space, render=render, offers=frozenset({Offer.CHANNELS_LAST})
)  # fmt: skip
