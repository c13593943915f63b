"""Attention on the CPU: the scores of a few rows of queries stay in a core's cache, between two products of packed
panels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import c_float, load_statement, pointer, row_statements, statement, store_statement
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.space import Axis, Space, alike
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.loops.attention import Matrices, attention
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program, taken
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

_MOST_KEYS = 4096  # whose scores take less than 256 KB of a thread's stack
_LEAST_TILE = 56  # rows of queries; four blocks of 14
_MOST_PANELS = 192 * 1024  # bytes of panels that a thread has on its stack, beside its scores
_NEAR = 2  # times the columns of values: rows that lie so near each other are read where they are


@dataclass(frozen=True, kw_only=True)
class Attention(common.Vectorised):
    tile: int = parameter("rows of queries that a thread takes at a time")


def takes(program: Program) -> bool:
    """Attention in float32 whose scores of a few rows fit a core's cache."""
    of = attention(program)
    return of is not None and of.dtype == "float32" and not program.narrow and of.keys <= _MOST_KEYS


def space(task: Task) -> Space[Attention]:
    of = attention(task.program())
    assert of is not None, "the schedule's programs are attention"
    tiles = alike(
        "tile_in_rows",
        "tile",
        of.queries,
        _LEAST_TILE,
        f"a tile this large holds all {of.queries} rows twice: a smaller one does the same",
    )
    return Space(
        partial(Attention, task), (Axis("tile", (448, 112, _LEAST_TILE)), *vector_axis(task.hardware)), (tiles,)
    )


def render(schedule: Attention) -> Rendering:
    task, program = schedule.task, schedule.program
    of = attention(program)
    assert of is not None, "the schedule's programs are attention"
    width, at_once = common.panel(task.hardware)
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    panels, out_panels = -(-of.keys // width), -(-of.out // width)
    operands = [Argument(pointer(m.tensor), "in", m.tensor) for m in (of.q, of.k, of.v)]
    # Values in order are panels as they lie; the second product reads nothing beyond them.
    direct = of.v.element == 1 and of.out % width == 0 and of.v.line <= _NEAR * of.out
    sizes = [(of.k, panels * width * of.width), *([] if direct else [(of.v, out_panels * width * of.keys)])]
    own_panels = 4 * sum(size for _, size in sizes) <= _MOST_PANELS
    inner = [Argument(pointer(x.tensor), "in", x.tensor, dtype=x.dtype) for x in (*of.loads, *of.row_loads) if x.tensor]
    memory = " + ".join(f"rows // {of.queries * m.repeats} * {size}" for m, size in sizes)
    workspace = [] if own_panels else [Argument("workspace", "workspace", size=memory)]
    first = dict.fromkeys((*operands, *inner, *workspace))
    args = [*first, *(a for a in pointers(schedule) if a not in first)]
    read_from = sources(args)
    rows = [load_statement(x, read_from, "row", "0") for x in of.row_loads] + [statement(m, "cpu") for m in of.rows]
    needed = {s.name for s in (*of.row_loads, *of.rows)}
    context = {
        "formula": of.formula,
        "queries": of.queries,
        "keys": of.keys,
        "k": of.width,
        "out": of.out,
        "width": width,
        "at_once": at_once,
        "tile": schedule.tile,
        "direct": direct,
        "own_panels": own_panels,
        "lines_in_order": of.k.element == 1 and width % 16 == 0,
        "panels": panels,
        "out_panels": out_panels,
        "q": _operand(of.q),
        "keys_of": _operand(of.k),
        "values_of": _operand(of.v),
        "diagonal": of.diagonal,
        "folded": c_float(of.scale) if of.scale is not None else "",
        "row_lines": rows if needed & taken(of.elements) else [],
        "finish_lines": rows if needed & taken(of.finish) else [],
        "sums": of.sums,
        "score_lines": common.load_statements(of.loads, read_from) + [statement(m, "cpu") for m in of.elements],
        "logits": of.logits,
        "top": of.top,
        "total": of.total,
        "tops": of.tops,
        "finish": [statement(m, "cpu") for m in of.finish],
        "factor": of.factor,
        "nothing": of.none,
        "result": program.contraction.name,
        "result_rows": row_statements(plan, "cpu"),
        "result_lines": common.load_statements(only.loads, read_from) + [statement(m, "cpu") for m in only.maps]
                        + [store_statement(s, written(s, args)) for s in only.stores],
    }  # fmt: skip
    return rendering(schedule, args, context)


def _operand(of: Matrices) -> dict[str, object]:
    """The context of an operand: its pointer, and where matrices, lines and elements lie; the matrices that differ by
    their number."""
    return {
        "name": pointer(of.tensor),
        "place": of.place("matrix"),
        "unique": of.unique("matrix"),
        "unique_place": of.unique_place("matrix"),
        "repeats": of.repeats,
        "line": of.line,
        "element": of.element,
    }


TEMPLATE = Template(
    name="tiled_attention",
    device_type="cpu",
    file="cpu/tiled_attention/tiled_attention.cpp.j2",
    takes=takes,
    schedule=Attention,
    space=space,
    render=render,
    arithmetic=lambda params: Arithmetic("float32"),
)
