"""Scans in CUDA: running sums, products and linear recurrences along rows, a block, a warp or a thread for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import block, row_statements, statement
from kgen.codegen.scanning import ScanParts
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import value_type
from kgen.compiler.loops.program import ELEMENT, Program
from kgen.compiler.operators.scans import SCANS
from kgen.templates.cuda import common

#: The C types of running values. A product of many values leaves float's range and comes back, where no infinity does.
RUNNING = {"sum": "float", "prod": "double", "linear": "LinearMap<double>"}
_MOST_OF_SEVERAL = 64  # elements of all scans of a thread
_FLOATS = {"float": 1, "LinearMap<double>": 4}  # that a running value takes, if not two


@dataclass(frozen=True, kw_only=True)
class Scan(common.Launched):
    row_per: str = parameter("whether a block, a warp or one thread of a line takes a row")
    block: int = parameter("threads in a block")
    vec: int = parameter("elements in one load or store")
    items: int = parameter("vectors that a thread handles")
    splits: int = parameter("parts that a row is split into, for more blocks")
    own: int = parameter(
        "neighbouring columns that a thread gets through shared memory, where no vectors can be read", 1
    )

    @property
    def lines(self) -> bool:
        """Whether a thread takes a row by itself."""
        return self.row_per == "line"

    @property
    def tile(self) -> int:
        """Columns that the threads of a row take at a time."""
        return {"block": self.block, "warp": 32, "line": 1}[self.row_per] * self.vec * self.own * self.items


def takes(program: Program) -> bool:
    """Programs with scans, and no value within an index; with several, a thread takes a row."""
    return bool(program.scans) and (len(program.scans) == 1 or program.strided) and not program.looks_up


def space(task: Task) -> Space:
    program = task.program()
    cols = program.cols
    most = 8 if SCANS[program.scans[0].kind].of_pairs else 16
    few = program.rows < 2 * max(task.hardware.multiprocessors, 1)
    axes = (
        Axis("row_per", ("line",) if program.strided else ("block", "warp", "line")),
        Axis("block", (512, 256, 128, 1024) if len(program.scans) == 1 else (128, 64, 256)),
        common.vector_axis(program),
        Axis("items", (4, 2, 1, 8)),
        Axis("splits", (32, 128, 8, 1) if few and not program.strided else (1,)),
        *([Axis("own", (4, 1))] if _lies_between_vectors(program) else []),
        *common.launch_axis(task),
    )
    constraints = (
        common.vector_width(program.col_size),
        Constraint(
            "vectors_of_lines",
            ("row_per", "vec"),
            "a thread that takes a row by itself reads columns that lie apart: there is no vector of them",
            lambda s: not s.lines or s.vec == 1,
        ),
        Constraint(
            "side_by_side",
            ("row_per",),
            "neighbouring threads would read columns that lie apart: a warp or a block takes long contiguous rows",
            lambda s: not s.lines or program.strided or cols <= 32,
        ),
        Constraint(
            "own_of_warps",
            ("row_per", "vec", "own"),
            "shared memory puts single elements in order for the threads of a warp",
            lambda s: s.own == 1 or (s.vec == 1 and not s.lines),
        ),
        Constraint(
            "idle_threads",
            ("row_per", "block", "vec", "own", "items"),
            f"half of the threads or more would have no column of {cols}",
            lambda s: s.lines or s.tile < 2 * cols or s.tile == 32,
        ),
        Constraint(
            "parts_of_tiles",
            ("row_per", "block", "vec", "own", "items", "splits", "launch"),
            "the parts of a row, one for each block, have a tile or more; their first launch is no early one",
            lambda s: s.splits == 1 or (s.row_per == "block" and s.splits * s.tile <= cols and not s.early),
        ),
        Constraint(
            "too_many_blocks",
            ("block", "splits"),
            "more blocks than the chip can run in four rounds",
            lambda s: (
                s.splits == 1 or program.rows * s.splits * s.block <= 4 * 2048 * max(task.hardware.multiprocessors, 1)
            ),
        ),
        Constraint(
            "registers",
            ("vec", "own", "items"),
            f"more than {most} elements to a thread, or {_MOST_OF_SEVERAL} of several scans: it would spill or starve "
            "the multiprocessor",
            lambda s: (
                s.vec * s.own * s.items * len(program.scans) <= (most if len(program.scans) == 1 else _MOST_OF_SEVERAL)
            ),
        ),
    )
    return Space(partial(Scan, task), axes, constraints)


def _lies_between_vectors(program: Program) -> bool:
    """Whether neighbouring elements that are summed or stored are no vectors: a row has an odd length, or is shifted by
    one column."""
    (scan, *_), accesses = program.scans, [x.access for x in (*program.loads, *program.stores) if x.level == ELEMENT]
    return (
        not program.strided
        and (scan.kind, scan.dtype) == ("sum", "float32")
        and any(a.mode(4) == "gather" for a in accesses)
    )


def render(schedule: Scan) -> Rendering:
    program = schedule.program
    parts = ScanParts.of(program)
    args, splits, lines = pointers(schedule), schedule.splits, schedule.lines
    value = value_type(parts.scan.dtype)
    running = value if parts.of_pairs and schedule.lines else RUNNING[parts.scan.kind] if value == "float" else value
    term = f"LinearMap<{value if lines else 'double'}>" if parts.of_pairs else running
    floats = _FLOATS.get(running, 2)
    workspace = [Argument("workspace", "workspace", size=f"rows * {splits * floats}")] if splits > 1 else []
    part_totals = "workspace" if running == "float" else f"reinterpret_cast<{running}*>(workspace)"
    items, threads = schedule.items, schedule.block
    turned, vec = schedule.own > 1, schedule.vec * schedule.own
    warps = threads // 32 if schedule.row_per == "block" else 1
    start = {
        "float": f"{parts.start}.0f",
        "double": f"{parts.start}.0",
        "LinearMap<double>": f"{symbol('linear_map')}(1.0, {parts.start}.0)",
    }.get(running, parts.start)
    neutral = f"{symbol('linear_map')}(1.0f, 0.0f)" if parts.of_pairs and lines and value == "float" else start
    backwards, cols, tile = parts.scan.reverse, program.cols, schedule.tile
    several = len(parts.scans) > 1
    numbers = [f"[{number}]" * several for number in range(len(parts.scans))]
    made = [
        f"{symbol('linear_map')}{term.removeprefix('LinearMap')}({', '.join(scan.args)})"
        if parts.of_pairs
        else scan.args[0]
        for scan in parts.scans
    ]
    place = f"item * {32 * vec} + j * 32 + lane" if turned else f"(item * 32 + lane){f' * {vec}' if vec > 1 else ''}"
    at = "first + item" if lines else f"first + {f'warp * {tile // warps} + ' if warps > 1 else ''}{place}"
    col = f"const int col = {f'{cols - schedule.vec} - ({at})' if backwards else at};"
    inside = "" if cols % tile == 0 else "if (col >= 0)" if backwards else f"if (col < {cols})"
    reverse = backwards and not turned  # columns in shared memory are in the scan's order

    def each(within: list[str]) -> list[str]:
        return ["#pragma unroll", *block(f"for (int j = 0; j < {vec}; ++j)", within)] if vec > 1 else within

    def guarded(body: list[str]) -> list[str]:
        return block(inside, body) if inside else body

    element = "running[item]" if lines else f"running[item][{'j' if vec > 1 else 0}]"
    outer, inner = common.load_statements(parts.loads, schedule.vec, sources(args))
    mine = f"turned[{'warp' if warps > 1 else 'threadIdx.x / 32'}]"
    inner += [
        *(statement(m, "cuda") for m in parts.maps),
        *(f"{f'{mine}[j * 32 + lane]' if turned else element}{at} = {arg};" for at, arg in zip(numbers, made)),
    ]
    load = [col, *guarded(inner)] if turned else [col, *guarded([*outer, *each(inner)])]
    if turned:
        beyond = block("else", [f"{mine}[j * 32 + lane] = {start};"])
        load = [*load[:-1], f"}} {beyond[0]}", *beyond[1:]] if inside else load
        load = [
            *each(load),
            "__syncwarp();",
            f"const auto in_order = {symbol('load_vector')}<{vec}>({mine} + lane * {vec});",
            *each([f"{element} = in_order.v[j];"]),
            "__syncwarp();",
        ]
    elif inside:
        load = [
            *load[:-1],
            *(
                f"}} {line}" if not number else line
                for number, line in enumerate(block("else", each([f"{element}{at} = {neutral};" for at in numbers])))
            ),
        ]
    outer, inner = common.load_statements(parts.later_loads, schedule.vec, sources(args))
    gather, put, close = common.store_statements(program.stores, schedule.vec, args)
    here = (
        "carry"
        if lines
        else f"{mine}[j * 32 + lane]"
        if turned
        else parts.combined("earlier", element) + (".summand" if parts.of_pairs else "")
    )
    inner = [
        *(
            f"const {value} {scan.name} = {here + at if running == value else f'static_cast<{value}>({here + at})'};"
            for scan, at in zip(parts.scans, numbers)
        ),
        *inner,
        *(statement(m, "cuda") for m in parts.later_maps),
        *put,
    ]
    if turned:
        order = [
            f"Vector<float, {vec}> in_order;",
            *each([f"in_order.v[j] = {parts.combined('earlier', element)};"]),
            f"{symbol('store_vector')}<{vec}>({mine} + lane * {vec}, in_order);",
        ]
        store = [*order, "__syncwarp();", *each([col, *guarded(inner)]), "__syncwarp();"]
    else:
        store = [col, *guarded([*outer, *gather, *each(inner), *close])]
    fields = (".factor", ".summand") if parts.of_pairs else ("",)
    carry_on = [parts.on(f"carry{at}", [f"running[item]{at}{field}" for field in fields]) for at in numbers]
    within = (
        "for (int j = 1; j < {v}; ++j) running[item][j] = {c};"
        if not reverse
        else "for (int j = {w}; j >= 0; --j) running[item][j] = {c};"
    )
    before = "running[item][j + 1]" if reverse else "running[item][j - 1]"
    context = {
        "cols": cols,
        "threads": threads,
        "lines": lines,
        "warps": warps,
        "tile": tile,
        "vec": vec,
        "items": items,
        "reverse": backwards,
        "kind": parts.scan.kind,
        "running": running,
        "part_totals": part_totals,
        "start": start,
        "end": 0 if reverse else vec - 1,
        "within_vector": within.format(v=vec, w=vec - 2, c=parts.combined(before, "running[item][j]")),
        "up_to_here": parts.combined("so_far", "up_to"),
        "term": term,
        "lane_before": f"{symbol('map_of_lane_before') + '(' if parts.of_pairs else '__shfl_up_sync(~0u, '}through, 1)",
        "on_from_here": parts.combined(
            "so_far", f"{symbol('map_of_lane') + '(' if parts.of_pairs else '__shfl_sync(~0u, '}through, 31)"
        ),
        "several": len(parts.scans) if several else 0,
        "carried": list(zip(numbers, carry_on)) if lines else [],
        "carry_on": "" if lines else parts.combined("carry", "totals[side][other]" if warps > 1 else "so_far"),
        "earlier": parts.combined("ahead", "before[item]"),
        "load": load,
        "store": store,
        "turned": 32 * vec if turned else 0,
        "row_statements": row_statements(parts.plan, "cuda"),
        "rows_per_block": threads if lines else 1 if warps > 1 else threads // 32,
        "splits": splits,
        "part": -(-cols // (splits * tile)) * tile,
        "carry_parts": parts.combined("carry", f"{part_totals}[row * {splits} + other]"),
    }
    return rendering(schedule, [*args, *workspace], context)


TEMPLATE = Template(
    name="scan", device_type="cuda", file="cuda/scan/scan.cu.j2", takes=takes, schedule=Scan, space=space, render=render
)  # fmt: skip
