"""Outer reductions on the CPU: the moments of every column over the batch, behind maps."""

from __future__ import annotations

from kgen.candidate import Params
from kgen.codegen.arguments import arguments as pointers, batch_moments, declared, signature, sources, summary
from kgen.codegen.c_printer import row_loads, statement
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Argument, Rendering, Task, Template
from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "tile": "elements that are worked on at a time",
    "lines": "rows that are summed before sums are put together",
    "combine": "how partial sums are put together",
    "vector_bits": "width of the vectors that the compiler prefers",
}


def takes(program: Program) -> bool:
    """Programs that end with moments over the batch and store nothing else."""
    return program.moments_of is not None and program.floats and program.plain and not (program.contraction or program.stores)


def space(task: Task) -> Space:
    program = task.plan.program(task.kernel)
    axes = (
        Axis("tile", (256, 128, 512, 1024)),
        Axis("lines", (128, 32, 512)),
        Axis("combine", ("tiles", "two_stage")),
        *vector_axis(task.hardware),
    )
    constraints = (
        common.tile_in_row(program.cols, least=128),
        Constraint(
            "lines_in_batch",
            f"more lines than the batch of {program.rows} has rows: fewer do the same",
            lambda p: int(p["lines"]) < 2 * program.rows or int(p["lines"]) == 32,
        ),
    )
    return Space(axes, constraints)


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    moments, extra = batch_moments(task)
    args = pointers(task, program, params)
    tile, lines, cols = min(int(params["tile"]), program.cols), int(params["lines"]), program.cols
    two_stage = params["combine"] == "two_stage"
    size = f"-(-rows // {lines}) * {2 * cols}"
    workspace = [Argument("workspace", "workspace", size=size)] if two_stage else []
    body = common.load_statements(only.loads, sources(args)) + [statement(m, "cpu") for m in only.maps]
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": cols,
        "tile": tile,
        "lines": lines,
        "combine": params["combine"],
        "row_statements": row_loads(plan) + [statement(m, "cpu") for m in plan.row_maps],
        "body": body,
        "result": program.moments_of,
        "load_parameters": "".join(f", {declared(a)}" for a in args),
        "load_arguments": "".join(f", {a.name}" for a in args),
        "finish_parameters": "".join(f", {declared(a)}" for a in extra if is_float(a.dtype)),
        "finish_arguments": "".join(f", {a.name}" for a in extra if is_float(a.dtype)),
        **moments,
        **signature([*args, *extra, *workspace]),
    }
    return Rendering(context, (*args, *extra, *workspace))


TEMPLATE = Template(
    name="outer_reduction",
    device_type="cpu",
    file="cpu/outer_reduction/outer_reduction.cpp.j2",
    takes=takes,
    space=space,
    render=render,
    parameters=PARAMETERS,
)
