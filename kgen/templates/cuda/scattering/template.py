"""Scatters in CUDA: elements taken in at places that are values, by atomic operations.

PyTorch sorts the values of some sums first. Their atomic sums may be in float64, so that many values of one element err
no more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from kgen.codegen.arguments import InPlace, arguments as pointers, output_axis, rendering, sources, written
from kgen.codegen.c_printer import row_statements
from kgen.codegen.scattering import WIDE, begun, taken, wide_bytes
from kgen.codegen.space import Axis, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Program, Scatter
from kgen.templates.cuda import common
from kgen.templates.cuda.atomics import begin, taken_in


@dataclass(frozen=True, kw_only=True)
class Scattering(common.Launched, InPlace):
    block: int = parameter("threads in a block")
    vec: int = parameter("elements in one load or store")
    sums: str = parameter("type of sums while values are taken in", default="float32")


def takes(program: Program) -> bool:
    """Programs of scatters whose sums may be in any order: atomic operations have none."""
    return bool(program.scatters) and isinstance(program.col_size, int) and not any(s.ordered for s in program.scatters)


def _sorted(program: Program) -> Scatter | None:
    """The one scatter that sums sorted values in PyTorch."""
    found = [s for s in program.scatters if s.sorted and (s.kind, s.dtype) == ("sum", "float32")]
    return found[0] if len(found) == 1 else None


def space(task: Task) -> Space:
    program = task.program()
    axes = (Axis("block", (256, 128, 512)), common.vector_axis(program))
    if _sorted(program) is not None:
        axes = (*axes, Axis("sums", ("float64", "float32")))
    if common.sm(task.hardware) >= 90:  # its own kernels wait for each other, even where it is alone
        axes = (*axes, Axis("launch", ("early", "plain")))
    axes = (*axes, *output_axis(task))
    return Space(partial(Scattering, task), axes, (common.vector_width(program.col_size),))


def render(schedule: Scattering) -> Rendering:
    program, vec = schedule.program, schedule.vec
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    args = pointers(schedule)
    wide = _sorted(program) if schedule.sums == "float64" else None
    if wide is not None:
        args = [*args, Argument("workspace", "workspace", size=wide_bytes(program, wide))]
    outer, inner = common.load_statements(only.loads, vec, sources(args))
    before_maps, maps = common.map_statements(only, vec)
    outer, inner = outer + before_maps, inner + maps
    close, addresses = [], [WIDE if wide is s else written(s, args) for s in program.scatters]
    for scatter, out in zip(program.scatters, addresses):
        before, within, behind = _lines(scatter, vec, out, wide is scatter)
        outer, inner, close = outer + before, inner + within, close + behind
    begins = [begun(program, s, wide is s) for s in program.scatters]
    begins = [
        replace(b, value=f"{by}({b.value})", width=1) if (by := begin(s)) else b
        for b, s in zip(begins, program.scatters)
    ]
    if any(a.role == "inout" for a in args) and wide is None:
        begins = []  # the result has the memory of what it begins as
    context = {
        "threads": schedule.block,
        "vec": vec,
        "cols": program.cols,
        "begins": begins,
        "addresses": addresses,
        "rounded": written(wide, args) if wide is not None else "",
        "wide": WIDE,
        "wide_elements": begins[program.scatters.index(wide)].elements if wide is not None else "",
        "row_statements": row_statements(plan, "cuda"),
        "outer": outer,
        "inner": inner,
        "close": close,
    }
    return rendering(schedule, args, context)


def _lines(scatter: Scatter, vec: int, out: str, wide: bool) -> tuple[list[str], list[str], list[str]]:
    """The statements that take values in at ``out``: in front of a vector's elements, for each of them, and behind
    them."""
    value, side_by_side = taken(scatter), vec > 1 and not wide and scatter.access.mode(vec) == "vector"
    place = scatter.access.index()
    if scatter.level != ELEMENT:
        return [], [], [f"if (col == 0) {taken_in(scatter, f'{out} + {place}', wide)}"]
    found = f"{scatter.tensor}_values"
    if side_by_side and scatter.kind == "last":
        ctype = DTYPES[scatter.dtype].memory
        return (
            [f"Vector<{ctype}, {vec}> {found};"],
            [f"{found}.v[j] = {value};"],
            [f"{symbol('store_vector')}<{vec}>({out} + {place}, {found});"],
        )
    if side_by_side and (scatter.kind, scatter.dtype) == ("sum", "float32"):
        return (
            [f"float {found}[{vec}];"],
            [f"{found}[j] = {value};"],
            [f"{symbol('atomic_sum_vector')}({out} + {place}, {found});"],
        )
    place = scatter.access.index("row", "(col + j)") if vec > 1 else place
    return [], [taken_in(scatter, f"{out} + {place}", wide)], []


TEMPLATE = Template(
    name="scattering", device_type="cuda", file="cuda/scattering/scattering.cu.j2", takes=takes, schedule=Scattering,
    space=space, render=render, in_place=True
)  # fmt: skip
