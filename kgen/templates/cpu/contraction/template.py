"""Contractions on the CPU: blocks of rows times packed panels of columns in registers, with maps behind them."""

from __future__ import annotations

from kgen.candidate import Params
from kgen.codegen.arguments import arguments as pointers, signature, sources, summary, written
from kgen.codegen.c_printer import pointer, row_loads, statement, store_statement
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Argument, Filled, Rendering, Task, Template
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.devices.roofline import Arithmetic
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "tile": "elements that are worked on at a time",
    "vector_bits": "width of the vectors that the compiler prefers",
}

_LEAST_TILE = 112  # rows; eight blocks of 14


def takes(program: Program) -> bool:
    """Programs that begin with a float32 contraction of matrices whose left operand has its rows along k; maps follow it."""
    of = program.contraction
    if of is None or of.window is not None or of.before or of.turned or program.moments_of or program.reductions:
        return False
    fixed = isinstance(program.col_size, int)
    return fixed and program.floats and not program.narrow and not any(x.access.mask or x.args for x in program.reads)


def space(task: Task) -> Space:
    program = task.plan.program(task.kernel)
    group = program.contraction.group or program.rows
    tiles = Constraint(
        "tile_in_rows",
        f"a tile this large holds all {group} rows twice: a smaller one does the same",
        lambda p: int(p["tile"]) < 2 * group or int(p["tile"]) == _LEAST_TILE,
    )
    return Space((Axis("tile", (448, _LEAST_TILE, 1792)), *vector_axis(task.hardware)), (tiles,))


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    of, n = program.contraction, program.cols
    width, at_once = common.panel(task.hardware)
    panels = -(-n // width)
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    pack = f"{task.kernel.name}_pack"
    x, right = (Argument(pointer(name), "in", name) for name in (of.x, of.weight))
    size = panels * width * of.k
    is_weight = task.plan.graph.is_weight(of.weight)
    if is_weight:
        packed = Argument(f"{of.weight}_packed", "prepared", of.weight, str(of.matrices * size), filled=Filled(pack, of.matrices))
    else:
        packed = Argument("workspace", "workspace", size=f"{size}" if of.group is None else f"rows // {of.group} * {size}")
    first = (x, packed) if is_weight else tuple(dict.fromkeys((x, right, packed)))
    args = [*first, *(a for a in pointers(task, program, params) if a not in first)]
    body = common.load_statements(only.loads, sources(args)) + [statement(m, "cpu") for m in only.maps]
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "formula": of.formula(n),
        "pack": pack,
        "prepared": packed.name if is_weight else "",
        "x": x.name,
        "right": right.name,
        "n": n,
        "k": of.k,
        "place": f"at * {n} + first + col" if of.transposed else f"(first + col) * {of.k} + at",
        "width": width,
        "panels": panels,
        "tile": params["tile"],
        "at_once": at_once,
        "group": of.group or "rows",
        "sum": of.name,
        "row_statements": row_loads(plan) + [statement(m, "cpu") for m in plan.row_maps],
        "body": body + [store_statement(s, written(s, args)) for s in only.stores],
        **signature(args),
    }
    return Rendering(context, tuple(args))


def arithmetic(params: Params) -> Arithmetic:
    return Arithmetic("float32")


TEMPLATE = Template(
    name="contraction",
    device_type="cpu",
    file="cpu/contraction/contraction.cpp.j2",
    takes=takes,
    space=space,
    render=render,
    parameters=PARAMETERS,
    arithmetic=arithmetic,
)
