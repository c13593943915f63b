"""Pointwise programs on the CPU: any run of elementwise operators in one vectorised pass over memory."""

from __future__ import annotations

from kgen.candidate import Params
from kgen.codegen.arguments import arguments as pointers, output_axis, signature, sources, summary, written
from kgen.codegen.c_printer import row_loads, statement
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Rendering, Task, Template
from kgen.compiler.loops.passes import schedule
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.transposes import transpose_of
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

LEAST_LINE = 16  # elements along the innermost axis; of shorter ones, vectors take several lines

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "tile": "elements that are worked on at a time",
    "vector_bits": "width of the vectors that the compiler prefers",
    "output": "whether the result is written over an operand",
}


def takes(program: Program) -> bool:
    """Programs of maps alone that read along the axis that they write along."""
    others = program.contraction or program.moments_of or program.reductions or program.windows or program.scans or program.scatters
    return isinstance(program.col_size, int) and not (others or transpose_of(program))


def space(task: Task) -> Space:
    cols = task.plan.program(task.kernel).cols
    axes = (
        Axis("tile", (2048, 512, 8192, 32768)),
        *vector_axis(task.hardware),
        *output_axis(task),
    )
    constraint = common.tile_in_row(cols, least=512)
    return Space(axes, (constraint,))


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    plan = schedule(program, keep=True)
    (only,) = plan.passes
    args = pointers(task, program, params)
    tile, line = min(int(params["tile"]), program.cols), common.line(program)
    line = line if line >= LEAST_LINE else 0
    body = common.load_statements(only.loads, sources(args), line > 0)
    body += [statement(m, "cpu") for m in only.maps]
    body += [common.stored(s, written(s, args), line > 0) for s in only.stores]
    tile = tile // line * line if 0 < line <= tile else tile
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": program.cols,
        "tile": tile,
        "line": line,
        "tiles_of_line": -(-line // tile),
        "exact": program.cols % tile == 0,
        "row_statements": row_loads(plan) + [statement(m, "cpu") for m in plan.row_maps],
        "body": common.with_column(body, program) if line else body,
        **signature(args),
    }
    return Rendering(context, tuple(args))


TEMPLATE = Template(
    name="pointwise",
    device_type="cpu",
    file="cpu/pointwise/pointwise.cpp.j2",
    takes=takes,
    space=space,
    render=render,
    parameters=PARAMETERS,
    in_place=True,
)
