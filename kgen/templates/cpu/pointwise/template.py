"""The family ``map`` on the CPU: any run of elementwise operators in one vectorised sweep over memory."""

from __future__ import annotations

from kgen.candidate import Params
from kgen.compiler.schedule import schedule
from kgen.templates import Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers, output_axis, signature, sources, summary, written
from kgen.templates.cpu import common
from kgen.templates.space import Axis, Space
from kgen.templates.spelling import row_loads, statement


def space(task: Task) -> Space:
    cols = task.plan.program(task.kernel).cols
    axes = (
        Axis("tile", (2048, 512, 8192, 32768)),
        *common.vector_axis(task.hardware),
        *output_axis(task),
    )
    constraint = common.tile_in_row(cols, least=512)
    return Space(axes, (constraint,))


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    plan = schedule(program, keep=True)
    (sweep,) = plan.sweeps
    args = pointers(task, program, params)
    tile = min(int(params["tile"]), program.cols)
    body = common.load_statements(sweep.loads, sources(args))
    body += [statement(m, "cpu") for m in sweep.maps]
    body += [f"{written(s, args)}[row * {program.cols} + col] = {s.arg};" for s in sweep.stores]
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": program.cols,
        "tile": tile,
        "exact": program.cols % tile == 0,
        "row_statements": row_loads(plan) + [statement(m, "cpu") for m in plan.row_maps],
        "body": body,
        **signature(args),
    }
    return Rendering(context, tuple(args))


TEMPLATE = Template("map", "cpu", "cpu/pointwise/pointwise.cpp.j2", space, render)
