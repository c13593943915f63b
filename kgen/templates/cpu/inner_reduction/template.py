"""Inner reductions on the CPU: maps, reductions along the row, maps; threads share the rows, tiles are vectorised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import block, describe, kept_values, row_statements, statement, store_statement
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import value_type
from kgen.compiler.loops.passes import Pass, Passes
from kgen.compiler.loops.program import Program, Reduce, taken
from kgen.templates.cpu import common

#: Elements of a tile's sum that a lane adds up one after the other. A softmax of 8192 columns behind GELU has 1.06
#: times the error of PyTorch's sums with 512, and 1.57 times with 1024, which validation refuses.
MOST_TERMS = 512

#: Rows; sums of fewer run in float64. Rows of zeros have equal terms, and the errors of a lane's float32 sum add up
#: there. A dice loss with 32 terms a lane had 10 times the error of PyTorch's.
FEW_ROWS = 1024

# Columns. Of shorter rows, a thread first takes many in turn: rows side by side store to one cache line.
SHORT_ROW = 2048


@dataclass(frozen=True, kw_only=True)
class InnerReduction(common.Reduction):
    tile: int = parameter("elements that are worked on at a time")
    chunk: int = parameter("rows that a thread takes at once")


def takes(program: Program) -> bool:
    """Programs with reductions along the row, whose columns lie side by side."""
    if not program.reductions or program.contraction or program.moments_of or not program.reduces_alike:
        return False
    across = program.strided and isinstance(program.row_loops[-1].extent, int)  # vectors go across rows there
    return not across or program.reduces_integers


def space(task: Task) -> Space:
    online = task.program()
    cols, widest, threads = online.cols, max(task.hardware.vector_bits, default=128), task.hardware.threads
    splits = common.merges(online) and online.rows < 64 * threads
    axes = (
        Axis("tile", (512, 256, 2048, 8192)),
        Axis("chunk", (1,) if splits else (32, 8, 1) if cols <= SHORT_ROW else (1, 8, 32)),
        *common.reduction_axes(task, (4 * threads, threads, 16 * threads, 1) if splits else ()),
    )
    constraints = (
        common.tile_in_row(cols, least=256),
        common.kept_bytes(),
        Constraint(
            "terms_of_a_lane",
            ("tile", "vector_bits"),
            f"sums of over {MOST_TERMS} terms, one after the other in a lane, are less exact than PyTorch's",
            lambda s: min(s.tile, cols) * 32 <= MOST_TERMS * (s.vector_bits or widest),
        ),
        Constraint(
            "chunks_for_all",
            ("chunk",),
            "chunks so large that some threads get no row",
            lambda s: s.chunk == 1 or s.chunk * threads * 2 <= online.rows,
        ),
        Constraint(
            "tiles_for_all",
            ("parts", "tile"),
            "parts of less than a tile: some threads get no column",
            lambda s: s.parts == 1 or s.parts * s.tile <= cols,
        ),
    )
    return Space(partial(InnerReduction, task), axes, constraints)


def render(schedule: InnerReduction) -> Rendering:
    program, plan, args = schedule.program, schedule.passes, pointers(schedule)
    fixed, parts = isinstance(program.col_size, int), schedule.parts
    tile = min(schedule.tile, program.cols)
    inner = common.line(program)
    row_values = row_statements(plan, "cpu")
    passes = [_one_pass(s, args, program, tile, parts) for s in plan.passes]
    results = [name for r in program.reductions for name in r.names]
    rows = "rows" if fixed else str(program.rows)
    workspace = [Argument("workspace", "workspace", size=f"2 * {len(results) * parts} * {rows}")] if parts > 1 else []
    context = {
        "cols": program.cols if fixed else "cols",
        "columns": program.cols if fixed else "any number of columns",
        "extent": "rows" if fixed else "cols",
        "row_count": program.rows,
        "integer": "long long" if program.wide else "int",
        "tile": tile,
        "chunk": schedule.chunk,
        "parts": parts,
        "inner": inner,
        "exact": fixed and parts == 1 and (inner or program.cols) % tile == 0,
        "keep": schedule.keeps,
        "row_statements": row_values if parts == 1 or _takes_row_values(plan) else [],
        "kept_values": kept_values(program, plan),
        "passes": passes,
        "merging": [*row_values, *_merging(plan.passes[0], args)] if parts > 1 else [],
    }
    return rendering(schedule, [*args, *workspace], context)


def _takes_row_values(plan: Passes) -> bool:
    """Whether a pass over the columns takes a value of the row that is there before it."""
    used = taken(x for of in plan.passes for x in (*of.loads, *of.maps, *of.stores, *of.reductions))
    return any(x.name in used for x in (*plan.row_loads, *plan.row_maps))


def _merging(of: Pass, args: list[Argument]) -> list[str]:
    """The parts of a row merged in float64, in the order of their columns; then row values and their stores."""
    lines, loop, slots = [], [], sum(len(r.names) for r in of.reductions)
    found = [name for r in of.reductions for name in r.names]
    for r in of.reductions:
        lines += [f"double {name}_all = {start};" for name, start in zip(r.names, _STARTS[r.kind])]
        others = [f"found[{found.index(name)}]" for name in r.names]
        loop.append(common.merged(r.kind, [f"{name}_all" for name in r.names], others))
    lines += block(
        "for (int part = 0; part < parts; ++part)",
        [f"const double* found = partial + (row * parts + part) * {slots};", *loop],
    )
    for r in of.reductions:
        lines += [f"const {_type(name, r)} {name} = static_cast<{_type(name, r)}>({name}_all);" for name in r.names]
    return [*lines, *_row_level(of, args)]


def _type(name: str, r: Reduce) -> str:
    return "long long" if r.kind.startswith("arg") and name == r.names[1] else "float"


_STARTS = {
    "sum": ("0.0",),
    "product": ("1.0",),
    "max": ("-INFINITY",),
    "min": ("INFINITY",),
    "argmax": ("-INFINITY", "0.0"),
    "argmin": ("INFINITY", "0.0"),
    "moments": ("0.0",) * 3,
}


def _row_level(of: Pass, args: list[Argument]) -> list[str]:
    """The row values made after a pass, and their stores."""
    return [statement(m, "cpu") for m in of.row_maps] + [store_statement(s, written(s, args)) for s in of.row_stores]


def _one_pass(of: Pass, args: list[Argument], program: Program, tile: int, parts: int) -> dict[str, Any]:
    dtypes, ahead = program.dtypes, common.line(program) > 0
    places = {r.args[1] for r in of.reductions if len(r.args) > 1}
    body = common.load_statements([x for x in of.loads if x.name not in places], sources(args), ahead)
    body += [f"const {value_type(dtypes[name])} {name} = {name}_kept[col];" for name in of.held]
    body += [statement(m, "cpu") for m in of.maps]
    body += [f"{name}_kept[col] = {name};" for name in of.keeps]
    body += [common.stored(s, written(s, args), ahead) for s in of.stores]
    few = program.rows < FEW_ROWS
    reductions = [_Reduction(r, r.arg in (*of.keeps, *of.held), tile, of, few) for r in of.reductions]
    body += list(dict.fromkeys(line for r in reductions for line in r.body))
    after = [line for r in reductions for line in r.after]
    if parts > 1:
        found = [name for r in of.reductions for name in r.names]
        after += [
            f"double* found = partial + piece * {len(found)};",
            *(f"found[{k}] = static_cast<double>({name});" for k, name in enumerate(found)),
        ]
    else:
        after += _row_level(of, args)
    if ahead:
        numbered = bool(of.held or of.keeps or any(r.fills for r in reductions))
        body = [*common.column_ahead((*of.loads, *of.maps), program, numbered), *body]
    return {
        "comment": describe(of, tuple(s.tensor for s in (*of.stores, *of.row_stores))) + ".",
        "before": [line for r in reductions for line in r.before],
        "open": list(dict.fromkeys(line for r in reductions for line in r.open)),
        "clauses": "".join(r.clause for r in reductions),
        "body": body,
        "close": [line for r in reductions for line in r.close],
        "after": after,
    }


class _Reduction:
    """The statements of one reduction: over a tile in a vectorised loop, then over the tiles of the row.

    Sums of tiles are added up in float64, so that no float32 sum runs over the whole row in one chain.
    """

    def __init__(self, r: Reduce, kept: bool, tile: int, of: Pass, few: bool) -> None:
        self.of = of
        self.fills = False  # a buffer of values, by their columns
        self.few = few
        self.before: list[str] = []
        self.open: list[str] = []
        self.body: list[str] = []
        self.close: list[str] = []
        self.after: list[str] = []
        getattr(self, f"_{r.kind}")(r, kept, tile)

    def _sum(self, r: Reduce, kept: bool, tile: int) -> None:
        (name,) = r.names
        self.before = [f"double {name}_all = 0.0;"]
        self.open = [f"double {name}_tile = 0.0;" if self.few else f"float {name}_tile = 0.0f;"]
        self.clause = f" reduction(+ : {name}_tile)"
        self.body = [f"{name}_tile += {r.arg};"]
        self.close = [f"{name}_all += {name}_tile;"]
        self.after = [f"const float {name} = static_cast<float>({name}_all);"]

    def _whole_sum(self, r: Reduce, kept: bool, tile: int) -> None:
        self._of_integers(r, "+", "0", "{0} += {1};")

    def _whole_product(self, r: Reduce, kept: bool, tile: int) -> None:
        self._of_integers(r, "*", "1", "{0} *= {1};")

    def _whole_max(self, r: Reduce, kept: bool, tile: int) -> None:
        self._of_integers(r, "max", "INT64_MIN", "{0} = {1} > {0} ? {1} : {0};")

    def _whole_min(self, r: Reduce, kept: bool, tile: int) -> None:
        self._of_integers(r, "min", "INT64_MAX", "{0} = {1} < {0} ? {1} : {0};")

    def _of_integers(self, r: Reduce, word: str, start: str, take: str) -> None:
        (name,) = r.names
        self.before = [f"long long {name} = {start};"]
        self.clause = f" reduction({word} : {name})"
        self.body = [take.format(name, r.arg)]

    def _product(self, r: Reduce, kept: bool, tile: int) -> None:
        (name,) = r.names
        self.before = [f"float {name} = 1.0f;"]
        self.clause = f" reduction(* : {name})"
        self.body = [f"{name} *= {r.arg};"]

    def _values(self, r: Reduce, kept: bool, tile: int) -> str:
        """Where the tile's values stand: among those that are kept, or in a buffer that the body fills."""
        if kept:
            return f"{r.arg}_kept + begin"
        self.fills = True
        self.open.append(f"alignas(64) float {r.arg}_tile[{tile}];")
        self.body.append(f"{r.arg}_tile[col - begin] = {r.arg};")
        return f"{r.arg}_tile"

    def _moments(self, r: Reduce, kept: bool, tile: int) -> None:
        count, mean, squares = r.names
        self.before = [f"double {name}_all = 0.0;" for name in r.names]
        self.open = [f"float {mean}_sum = 0.0f;"]
        values = self._values(r, kept, tile)
        self.clause = f" reduction(+ : {mean}_sum)"
        self.body.append(f"{mean}_sum += {r.arg};")
        self.close = [
            f"{symbol('moments_tile')}({count}_all, {mean}_all, {squares}_all, {mean}_sum, {values}, "
            "static_cast<int>(end - begin));"
        ]
        self.after = [f"const float {name} = static_cast<float>({name}_all);" for name in r.names]

    def _argmax(self, r: Reduce, kept: bool, tile: int) -> None:
        self._place(r, kept, tile, "max", ">", "-INFINITY")

    def _argmin(self, r: Reduce, kept: bool, tile: int) -> None:
        self._place(r, kept, tile, "min", "<", "INFINITY")

    def _place(self, r: Reduce, kept: bool, tile: int, word: str, sign: str, start: str) -> None:
        """The extreme of the tile in vectors; its place is looked for in the tiles that hold a new one."""
        best, at = r.names
        self.before = [f"float {best} = {start};", f"long long {at}_col = 0;"]
        self.open = [f"float {best}_tile = {start};", f"int {best}_nan = 0;"]
        values = self._values(r, kept, tile)
        self.clause = f" reduction({word} : {best}_tile) reduction(| : {best}_nan)"
        self.body += [
            f"{best}_tile = {r.arg} {sign} {best}_tile ? {r.arg} : {best}_tile;",
            f"{best}_nan |= {r.arg} != {r.arg};",
        ]
        place = next(x for x in self.of.loads if x.name == r.args[1])
        self.close = block(f"if ({best} == {best} && ({best}_nan || {best}_tile {sign} {best}))", [
            f"{best} = {best}_nan ? NAN : {best}_tile;",
            f"{at}_col = begin + {symbol('first_place')}({values}, {best}, static_cast<int>(end - begin));",
        ])  # fmt: skip
        self.after = [f"const long long {at} = {place.access.index('row', f'{at}_col')};"]

    def _max_finite(self, r: Reduce, kept: bool, tile: int) -> None:
        (name,) = r.names
        self.before = [f"float {name} = -FLT_MAX;"]
        self.clause = f" reduction(max : {name})"
        self.body = [f"{name} = {r.arg} > {name} ? {r.arg} : {name};"]

    def _max(self, r: Reduce, kept: bool, tile: int) -> None:
        self._extreme(r, "max", ">", "-INFINITY")

    def _min(self, r: Reduce, kept: bool, tile: int) -> None:
        self._extreme(r, "min", "<", "INFINITY")

    def _extreme(self, r: Reduce, word: str, sign: str, start: str) -> None:
        (name,) = r.names
        self.before = [f"float {name} = {start};", f"int {name}_nan = 0;"]
        self.clause = f" reduction({word} : {name}) reduction(| : {name}_nan)"
        self.body = [f"{name} = {r.arg} {sign} {name} ? {r.arg} : {name};", f"{name}_nan |= {r.arg} != {r.arg};"]
        self.after = [f"if ({name}_nan) {name} = NAN;"]

    def _softmax(self, r: Reduce, kept: bool, tile: int) -> None:
        largest, total = r.names
        self.before = [f"float {largest} = -FLT_MAX;", f"float {total} = 0.0f;"]
        self.clause = f" reduction(max : {largest}_tile)"
        self.open = [f"float {largest}_tile = {largest};"]
        values = self._values(r, kept, tile)
        self.body.append(f"{largest}_tile = {r.arg} > {largest}_tile ? {r.arg} : {largest}_tile;")
        self.close = [
            f"{symbol('merge_tile')}({largest}, {total}, {largest}_tile, {values}, static_cast<int>(end - begin));"
        ]


TEMPLATE = Template(
    name="inner_reduction", device_type="cpu", file="cpu/inner_reduction/inner_reduction.cpp.j2", takes=takes,
    schedule=InnerReduction, space=space, render=render, in_place=True
)  # fmt: skip
