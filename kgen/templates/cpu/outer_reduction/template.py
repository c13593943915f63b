"""Outer reductions on the CPU: the moments of every column over the batch, behind maps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, batch_moments, declared, rendering, sources
from kgen.codegen.c_printer import row_statements, statement
from kgen.codegen.space import Axis, Space, alike
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis


@dataclass(frozen=True, kw_only=True)
class OuterReduction(common.Vectorised):
    tile: int = parameter("elements that are worked on at a time")
    lines: int = parameter("rows that are summed before sums are put together")
    combine: str = parameter("how partial sums are put together")


def takes(program: Program) -> bool:
    """Programs that end with moments over the batch and store nothing else."""
    return (
        program.moments_of is not None
        and program.floats
        and program.plain
        and not (program.contraction or program.stores)
    )


def space(task: Task) -> Space:
    program = task.program()
    axes = (
        Axis("tile", (256, 128, 512, 1024)),
        Axis("lines", (128, 32, 512)),
        Axis("combine", ("tiles", "two_stage")),
        *vector_axis(task.hardware),
    )
    constraints = (
        common.tile_in_row(program.cols, least=128),
        alike(
            "lines_in_batch",
            "lines",
            program.rows,
            32,
            f"more lines than the batch of {program.rows} has rows: fewer do the same",
        ),
    )
    return Space(partial(OuterReduction, task), axes, constraints)


def render(schedule: OuterReduction) -> Rendering:
    program = schedule.program
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    moments, extra = batch_moments(schedule.task)
    args = pointers(schedule)
    lines, cols = schedule.lines, program.cols
    size = f"-(-rows // {lines}) * {2 * cols}"
    workspace = [Argument("workspace", "workspace", size=size)] if schedule.combine == "two_stage" else []
    body = common.load_statements(only.loads, sources(args)) + [statement(m, "cpu") for m in only.maps]
    context = {
        "cols": cols,
        "tile": min(schedule.tile, cols),
        "lines": lines,
        "combine": schedule.combine,
        "row_statements": row_statements(plan, "cpu"),
        "body": body,
        "result": program.moments_of,
        "load_parameters": "".join(f", {declared(a)}" for a in args),
        "load_arguments": "".join(f", {a.name}" for a in args),
        "finish_parameters": "".join(f", {declared(a)}" for a in extra if is_float(a.dtype)),
        "finish_arguments": "".join(f", {a.name}" for a in extra if is_float(a.dtype)),
        **moments,
    }
    return rendering(schedule, [*args, *extra, *workspace], context)


TEMPLATE = Template(
    name="outer_reduction", device_type="cpu", file="cpu/outer_reduction/outer_reduction.cpp.j2", takes=takes,
    schedule=OuterReduction, space=space, render=render
)  # fmt: skip
