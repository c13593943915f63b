"""Pointwise programs on the CPU: any run of elementwise operators in one vectorised pass over memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import InPlace, arguments as pointers, output_axis, rendering, sources, written
from kgen.codegen.c_printer import row_statements, statement
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.transposes import transpose_of
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

LEAST_LINE = 16  # elements along the innermost axis; of shorter ones, vectors take several lines


@dataclass(frozen=True, kw_only=True)
class Pointwise(common.Vectorised, InPlace):
    tile: int = parameter("elements that are worked on at a time")


def takes(program: Program) -> bool:
    """Programs of maps alone that read along the axis that they write along."""
    if program.contraction or program.recurrence or program.product:
        return False
    others = program.moments_of or program.reductions or program.windows or program.scans or program.scatters
    return isinstance(program.col_size, int) and not (others or transpose_of(program))


def space(task: Task) -> Space:
    axes = (
        Axis("tile", (2048, 512, 8192, 32768)),
        *vector_axis(task.hardware),
        *output_axis(task),
    )
    return Space(partial(Pointwise, task), axes, (common.tile_in_row(task.program().cols, least=512),))


def render(schedule: Pointwise) -> Rendering:
    program = schedule.program
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    args = pointers(schedule)
    tile, line = min(schedule.tile, program.cols), common.line(program)
    line = line if line >= LEAST_LINE else 0
    body = common.load_statements(only.loads, sources(args), line > 0)
    body += [statement(m, "cpu") for m in only.maps]
    body += [common.stored(s, written(s, args), line > 0) for s in only.stores]
    tile = tile // line * line if 0 < line <= tile else tile
    context = {
        "cols": program.cols,
        "tile": tile,
        "line": line,
        "tiles_of_line": -(-line // tile),
        "exact": program.cols % tile == 0,
        "row_statements": row_statements(plan, "cpu"),
        "body": [*(common.column_ahead((*only.loads, *only.maps), program) if line else []), *body],
    }
    return rendering(schedule, args, context)


TEMPLATE = Template(
    name="pointwise", device_type="cpu", file="cpu/pointwise/pointwise.cpp.j2", takes=takes, schedule=Pointwise,
    space=space, render=render, in_place=True
)  # fmt: skip
