"""Transposes on the CPU: tiles that are turned in registers, and written along the result's rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.codegen.transposed import body
from kgen.compiler.loops.program import Load, Program
from kgen.compiler.loops.transposes import Transpose, transpose_of, wide
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis


@dataclass(frozen=True, kw_only=True)
class Transposed(common.Vectorised):
    tile: int = parameter("elements that are worked on at a time")


def takes(program: Program) -> bool:
    """Programs of maps that read along another axis than they write along."""
    return transpose_of(program) is not None


def space(task: Task) -> Space:
    return Space(partial(Transposed, task), (Axis("tile", (16, 32, 64)), *vector_axis(task.hardware)))


def render(schedule: Transposed) -> Rendering:
    program = schedule.program
    found = transpose_of(program)
    assert found is not None
    args = pointers(schedule)
    tile, along, across = schedule.tile, int(found.along.extent), int(found.across.extent)
    across_tiles = -(-across // tile)
    blocks = [load for load in found.turned if load.dtype == "float32" and _stride(load, found)]
    turned = [
        {
            "name": load.name,
            "source": sources(args)[load.tensor],
            "at": found.spelled(load).access.index(),
            "stride": _stride(load, found),
        }
        for load in blocks
    ]
    taken = [f"const float {load.name} = {load.name}_tile[across - first][along - begin];" for load in blocks]
    context = {
        "tile": tile,
        "along": along,
        "across": across,
        "across_tiles": across_tiles,
        "tiles": across_tiles * -(-along // tile),
        "index": "long long" if wide(program) else "int",
        "count": found.count(program.cols),
        "outer": bool(found.outer),
        "turned": turned,
        "body": taken + body(program, replace(found, turned=tuple(blocks)), args, "cpu"),
    }
    return rendering(schedule, args, context)


def _stride(load: Load, found: Transpose) -> int:
    """How far the elements along the result lie apart in the operand; 0 where they do not lie evenly."""
    offset = load.access.offset
    stride, rest = (
        offset.coeff(found.along.symbol),
        offset - offset.coeff(found.along.symbol) * found.along.symbol - found.across.symbol,
    )
    return int(stride) if stride.is_Integer and not rest.has(found.along.symbol, found.across.symbol) else 0


TEMPLATE = Template(
    name="transpose", device_type="cpu", file="cpu/transpose/transpose.cpp.j2", takes=takes, schedule=Transposed,
    space=space, render=render
)  # fmt: skip
