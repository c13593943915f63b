"""Scatters in CUDA whose results belong to rows: a block keeps those of its rows in shared memory, and writes them
once.

Where values are taken in at places of their own row, no other block has a share of the row's elements. Memory then sees
each element of a result once, in order. A sum of one number is the count of its values: integers are counted faster
than floats are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import literal, number, output_pointer, pointer, row_statements
from kgen.codegen.scattering import VECTOR_BYTES
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Rendering, Schedule, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES, nbytes, stored
from kgen.compiler.loops.expr import Const
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Program, Scatter
from kgen.compiler.loops.scatters import Owned, counted, owned
from kgen.templates.cuda import common
from kgen.templates.cuda.atomics import begin, taken_in

FEWEST_ROWS = 64  # of fewer, too few blocks are at work
MOST_BYTES = 48 << 10  # of shared memory that every block has without asking
_ROWS = (1, 4, 16, 64)
_MOST_AT_ONCE = 1024  # columns that a block of 256 threads takes at once, in vectors


@dataclass(frozen=True)
class Result:
    """A result in shared memory: its name there, the C type of what is kept, and the statements that begin and finish
    ``width`` elements."""

    own: str
    kept: str
    elements: int
    width: int
    begin: str
    finish: str


@dataclass(frozen=True, kw_only=True)
class RowScattering(Schedule):
    block: int = parameter("threads in a block")
    vec: int = parameter("elements in one load or store")
    rows: int = parameter("rows of a block, whose results it keeps in shared memory")

    @cached_property
    def parts(self) -> tuple[tuple[Scatter, Owned, Const | None], ...]:
        """Each scatter, the elements that a row has, and the number that it counts."""
        found = [(s, owned(self.program, s), counted(self.program, s)) for s in self.program.scatters]
        return tuple((s, of, number) for s, of, number in found if of is not None)


def _fits(program: Program, rows: int) -> bool:
    """Whether shared memory holds the results of ``rows`` rows, and enough blocks are left."""
    elements = [(of, s.dtype) for s in program.scatters if (of := owned(program, s))]
    return rows == 1 or (
        program.rows >= FEWEST_ROWS * rows
        and rows * sum(of.elements * nbytes(dtype) for of, dtype in elements) <= MOST_BYTES
    )


def takes(program: Program) -> bool:
    """Programs of many rows with elements of the results to themselves, as many as shared memory holds; sums may be in
    any order."""
    if (
        not program.scatters
        or not isinstance(program.col_size, int)
        or program.rows < FEWEST_ROWS
        or any(s.ordered for s in program.scatters)
    ):
        return False
    found = [(s, owned(program, s)) for s in program.scatters]
    return (
        all(of is not None for _, of in found)
        and sum(of.elements * nbytes(s.dtype) for s, of in found if of) <= MOST_BYTES
    )


def space(task: Task) -> Space[RowScattering]:
    program = task.program()
    enough = next((rows for rows in _ROWS if rows * program.cols >= _MOST_AT_ONCE and _fits(program, rows)), 1)
    axes = (
        Axis("block", (256, 128, 512)),
        common.vector_axis(program),
        Axis("rows", tuple(dict.fromkeys((enough, *_ROWS)))),
    )
    constraints = (
        common.vector_width(program.col_size),
        Constraint(
            "shared_memory",
            ("rows",),
            "the results of so many rows do not fit a block's shared memory, or too few blocks are left for the device",
            lambda s: _fits(program, s.rows),
        ),
        Constraint(
            "busy_threads",
            ("block", "vec", "rows"),
            "fewer rows keep the block's threads as busy",
            lambda s: s.rows == 1 or s.rows // 4 * program.cols < 4 * s.block * s.vec,
        ),
    )
    return Space(partial(RowScattering, task), axes, constraints)


def render(schedule: RowScattering) -> Rendering:
    program, vec, rows = schedule.program, schedule.vec, schedule.rows
    counts = {s.arg for s, _, value in schedule.parts if value is not None} - {
        a for step in program.steps for a in step.args
    }
    counts -= {s.arg for s, _, value in schedule.parts if value is None}
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    plan = replace(plan, row_maps=tuple(m for m in plan.row_maps if m.name not in counts))
    only = replace(only, maps=tuple(m for m in only.maps if m.name not in counts))
    args = pointers(schedule)
    outer, inner = common.load_statements(only.loads, vec, sources(args))
    before, maps = common.map_statements(only, vec)
    outer, inner, close = outer + before, inner + maps, []
    for scatter, of, value in schedule.parts:
        line, at_end = _taken_in(scatter, of, value, vec, rows)
        (close if at_end else inner).append(line)
    context = {
        "threads": schedule.block,
        "vec": vec,
        "cols": program.cols,
        "rows_of_block": rows,
        "results": [_result(scatter, of, value, rows) for scatter, of, value in schedule.parts],
        "row_statements": row_statements(plan, "cuda"),
        "outer": outer,
        "inner": inner,
        "close": close,
    }
    return rendering(schedule, args, context)


def _own(scatter: Scatter) -> str:
    return f"{scatter.tensor}_own"


def _taken_in(scatter: Scatter, of: Owned, value: Const | None, vec: int, rows: int) -> tuple[str, bool]:
    """The statement that takes a value in, and whether it stands behind a vector's elements."""
    by_element = scatter.level == ELEMENT
    place = of.place.index("row", "(col + j)" if vec > 1 and by_element else "col")
    address = f"{_own(scatter)} + {f'vector / VECTORS * {of.elements} + ' if rows > 1 else ''}{place}"
    line = taken_in(scatter, address) if value is None else f"atomicAdd({address}, 1u);"
    return (line, False) if by_element else (f"if (col == 0) {line}", True)


def _result(scatter: Scatter, of: Owned, value: Const | None, rows: int) -> Result:
    """How a result begins and ends: ``at`` is an element of the block's, ``first`` its first row."""
    ctype, own, by = DTYPES[scatter.dtype].memory, _own(scatter), begin(scatter)
    at = f"first * {of.elements} + at"
    out, source, start = (
        f"{output_pointer(scatter.tensor)}[{at}]",
        "",
        stored(literal(scatter.start, scatter.dtype), scatter.dtype, scatter.dtype),
    )
    if scatter.source:
        source = f"{pointer(scatter.source)} + {_within(scatter.period, of.elements, rows) if scatter.period else at}"
        start = f"*({source})"
    if value is not None:
        total = f"static_cast<{ctype}>({own}[at])" + (f" * {number(value)}" if value.value != 1 else "")
        total = f"{start} + {total}" if scatter.source or scatter.start else total
        return Result(own, "unsigned", of.elements, 1, f"{own}[at] = 0;", f"{out} = {total};")
    width = 1 if by else math.gcd(of.elements, scatter.period, VECTOR_BYTES // nbytes(scatter.dtype))
    if width == 1:
        return Result(
            own, ctype, of.elements, 1, f"{own}[at] = {f'{by}({start})' if by else start};", f"{out} = {own}[at];"
        )
    load, store, fill = symbol("load_vector"), symbol("store_vector"), symbol("fill_vector")
    vector = f"{load}<{width}>({source})" if source else f"{fill}<{ctype}, {width}>({start})"
    return Result(
        own,
        ctype,
        of.elements,
        width,
        f"{store}<{width}>({own} + at, {vector});",
        f"{store}<{width}>(&{out}, {load}<{width}>({own} + at));",
    )


def _within(period: int, elements: int, rows: int) -> str:
    """The element of a source that comes again after a period, for element ``at`` of a block."""
    if elements % period:
        return f"(first * {elements} + at) % {period}"
    return "at" if rows == 1 and period == elements else f"at % {period}"


TEMPLATE = Template(
    name="row_scattering",
    device_type="cuda",
    file="cuda/row_scattering/row_scattering.cu.j2",
    takes=takes,
    schedule=RowScattering,
    space=space,
    render=render,
)
