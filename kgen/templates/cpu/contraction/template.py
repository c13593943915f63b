"""Contractions on the CPU: blocks of rows times packed panels of columns in registers, with maps behind them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import rendering
from kgen.codegen.c_printer import pointer
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.space import Axis, Space, alike
from kgen.codegen.template import Argument, Filled, Rendering, Task, Template, parameter
from kgen.compiler.loops.program import Program
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

_LEAST_TILE = 112  # rows; eight blocks of 14


@dataclass(frozen=True, kw_only=True)
class Contraction(common.Vectorised):
    tile: int = parameter("elements that are worked on at a time")


def takes(program: Program) -> bool:
    """Programs that begin with a float32 contraction of matrices whose left operand has its rows along k; maps follow
    it."""
    of = program.contraction
    if (
        of is None
        or of.window is not None
        or of.before
        or not of.in_order
        or of.turned
        or program.moments_of
        or program.reductions
    ):
        return False
    fixed = isinstance(program.col_size, int)
    return fixed and program.floats and not program.narrow and not any(x.access.mask or x.args for x in program.reads)


def space(task: Task) -> Space:
    program = task.program()
    group = program.contraction.group or program.rows
    tiles = alike(
        "tile_in_rows",
        "tile",
        group,
        _LEAST_TILE,
        f"a tile this large holds all {group} rows twice: a smaller one does the same",
    )
    return Space(
        partial(Contraction, task), (Axis("tile", (448, _LEAST_TILE, 1792)), *vector_axis(task.hardware)), (tiles,)
    )


def render(schedule: Contraction) -> Rendering:
    task, program = schedule.task, schedule.program
    of, n = program.contraction, program.cols
    width, at_once = common.panel(task.hardware)
    panels = -(-n // width)
    pack = f"{task.kernel.name}_pack"
    x, right = (Argument(pointer(name), "in", name) for name in (of.x, of.weight))
    size = panels * width * of.k
    is_weight = task.plan.graph.is_weight(of.weight)
    if is_weight:
        packed = Argument(
            f"{of.weight}_packed", "prepared", of.weight, str(of.matrices * size), filled=Filled(pack, of.matrices)
        )
    else:
        packed = Argument(
            "workspace", "workspace", size=f"{size}" if of.group is None else f"rows // {of.group} * {size}"
        )
    first = (x, packed) if is_weight else tuple(dict.fromkeys((x, right, packed)))
    args, multiplied = common.products(schedule, first, at_once)
    context = {
        **multiplied,
        "formula": of.formula(n),
        "pack": pack,
        "prepared": packed.name if is_weight else "",
        "x": x.name,
        "right": right.name,
        "n": n,
        "place": f"at * {n} + first + col" if of.transposed else f"(first + col) * {of.k} + at",
        "panels": panels,
        "tile": schedule.tile,
        "group": of.group or "rows",
    }
    return rendering(schedule, args, context)


TEMPLATE = Template(
    name="contraction",
    device_type="cpu",
    file="cpu/contraction/contraction.cpp.j2",
    takes=takes,
    schedule=Contraction,
    space=space,
    render=render,
    copied=lambda program: (program.contraction.weight,),
    arithmetic=lambda params: Arithmetic("float32"),
)
