"""Inner reductions on the CPU: maps, reductions along the row, maps; threads share the rows, tiles are vectorised."""

from __future__ import annotations

from typing import Any

from kgen.candidate import Params
from kgen.compiler.dtypes import value_type
from kgen.compiler.loops import Program, Reduce
from kgen.compiler.schedule import Pass, schedule
from kgen.templates import Argument, Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers, output_axis, signature, sources, summary, written
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis
from kgen.templates.space import Axis, Constraint, Space
from kgen.templates.spelling import describe, kept_values, one_pass, output_pointer, row_loads, statement, store_statement

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "tile": "elements that are worked on at a time",
    "chunk": "rows that a thread takes at once",
    "softmax": "one pass with a running maximum, or two",
    "row": "whether a row is kept on chip or read again",
    "vector_bits": "width of the vectors that the compiler prefers",
    "output": "whether the result is written over an operand",
}

MOST_KEPT_BYTES = 256 << 10  # bytes of kept rows on a thread's stack

#: Elements of a tile's sum that a lane adds up one after the other. A softmax of 8192 columns behind GELU has 1.06 times
#: the error of PyTorch's sums with 512, and 1.57 times with 1024, which validation refuses.
MOST_TERMS = 512


#: Kinds of reductions that this schedule holds; moments are always taken in two passes.
KINDS = {"sum", "max", "min", "max_finite", "softmax", "moments"}


def takes(program: Program) -> bool:
    """Programs with reductions along the row, whose columns lie side by side."""
    if program.contraction or program.moments_of or not isinstance(program.col_size, int) or any(s.into for s in program.stores):
        return False
    beside = program.strided and isinstance(program.row_loops[-1].extent, int)  # vectors go across rows there
    return bool(program.reductions) and not beside and program.reduces_floats and {r.kind for r in program.reductions} <= KINDS


def space(task: Task) -> Space:
    online = _program(task, "online")
    cols, widest = online.cols, max(task.hardware.vector_bits, default=128)
    kept = {how: schedule(_program(task, how), keep=True).kept for how in ("online", "two_pass")}
    axes = [Axis("tile", (512, 256, 2048, 8192)), Axis("chunk", (1, 8, 32))]
    if one_pass(online) == "softmax":
        axes.append(Axis("softmax", ("two_pass", "online")))
    if len(schedule(online, keep=True).passes) > 1:
        axes.append(Axis("row", ("buffer", "reread")))
    axes += [*vector_axis(task.hardware), *output_axis(task)]
    constraints = (
        common.tile_in_row(cols, least=256),
        Constraint(
            "kept_bytes",
            f"more than {MOST_KEPT_BYTES >> 10} KB of kept rows on a thread's stack",
            lambda p: p.get("row") != "buffer"
            or kept[p.get("softmax", "online")] * cols * 4 <= MOST_KEPT_BYTES,
        ),
        Constraint(
            "terms_of_a_lane",
            f"sums of over {MOST_TERMS} terms, one after the other in a lane, are less exact than PyTorch's",
            lambda p: min(int(p["tile"]), cols) * 32 <= MOST_TERMS * int(p.get("vector_bits", widest)),
        ),
        Constraint(
            "chunks_for_all",
            "chunks so large that some threads get no row",
            lambda p: int(p["chunk"]) == 1 or int(p["chunk"]) * task.hardware.threads * 2 <= online.rows,
        ),
    )
    return Space(tuple(axes), constraints)


def _program(task: Task, softmax: str) -> Program:
    """The program with softmax in one pass or two; moments are taken in two."""
    online = task.plan.program(task.kernel)
    both = softmax == "two_pass" or any(r.kind == "moments" for r in online.reductions)
    return task.plan.program(task.kernel, two_passes=True) if both else online


def render(task: Task, params: Params) -> Rendering:
    program = _program(task, str(params.get("softmax", "online")))
    keep = params.get("row") == "buffer"
    plan = schedule(program, keep=keep)
    args = pointers(task, program, params)
    tile = min(int(params["tile"]), program.cols)
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": program.cols,
        "tile": tile,
        "chunk": params["chunk"],
        "exact": program.cols % tile == 0,
        "keep": keep,
        "row_statements": row_loads(plan) + [statement(m, "cpu") for m in plan.row_maps],
        "kept_values": kept_values(program, plan),
        "passes": [_one_pass(s, args, program, tile) for s in plan.passes],
        **signature(args),
    }
    return Rendering(context, tuple(args))


def _one_pass(of: Pass, args: list[Argument], program: Program, tile: int) -> dict[str, Any]:
    dtypes = program.dtypes
    body = common.load_statements(of.loads, sources(args))
    body += [f"const {value_type(dtypes[name])} {name} = {name}_kept[col];" for name in of.held]
    body += [statement(m, "cpu") for m in of.maps]
    body += [f"{name}_kept[col] = {name};" for name in of.keeps]
    body += [store_statement(s, written(s, args)) for s in of.stores]
    reductions = [_Reduction(r, r.arg in (*of.keeps, *of.held), tile) for r in of.reductions]
    after = [line for r in reductions for line in r.after]
    after += [statement(m, "cpu") for m in of.row_maps]
    after += [store_statement(s, output_pointer(s.tensor)) for s in of.row_stores]
    return {
        "comment": describe(of, tuple(s.tensor for s in (*of.stores, *of.row_stores))).capitalize() + ".",
        "before": [line for r in reductions for line in r.before],
        "open": [line for r in reductions for line in r.open],
        "clauses": "".join(r.clause for r in reductions),
        "body": body + [line for r in reductions for line in r.body],
        "close": [line for r in reductions for line in r.close],
        "after": after,
    }


class _Reduction:
    """The statements of one reduction: over a tile in a vectorised loop, then over the tiles of the row.

    Sums of tiles are added up apart, so that no sum runs over the whole row in one chain.
    """

    def __init__(self, r: Reduce, kept: bool, tile: int) -> None:
        self.before: list[str] = []
        self.open: list[str] = []
        self.body: list[str] = []
        self.close: list[str] = []
        self.after: list[str] = []
        getattr(self, f"_{r.kind}")(r, kept, tile)

    def _sum(self, r: Reduce, kept: bool, tile: int) -> None:
        (name,) = r.names
        self.before = [f"float {name} = 0.0f;"]
        self.open = [f"float {name}_tile = 0.0f;"]
        self.clause = f" reduction(+ : {name}_tile)"
        self.body = [f"{name}_tile += {r.arg};"]
        self.close = [f"{name} += {name}_tile;"]

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
        tile_values = f"{r.arg}_kept + begin" if kept else f"{r.arg}_tile"
        self.before = [f"float {largest} = -FLT_MAX;", f"float {total} = 0.0f;"]
        self.clause = f" reduction(max : {largest}_tile)"
        self.open = [f"float {largest}_tile = {largest};"]
        if not kept:
            self.open.append(f"alignas(64) float {r.arg}_tile[{tile}];")
            self.body.append(f"{r.arg}_tile[col - begin] = {r.arg};")
        self.body.append(f"{largest}_tile = {r.arg} > {largest}_tile ? {r.arg} : {largest}_tile;")
        self.close = [f"merge_tile({largest}, {total}, {largest}_tile, {tile_values}, end - begin);"]


def cost(task: Task, params: Params) -> float:
    """Microseconds, as if the memory's bandwidth were all that bounds it; whatever the parameters."""
    return common.memory_us(task)


TEMPLATE = Template(
    name="inner_reduction",
    device_type="cpu",
    file="cpu/inner_reduction/inner_reduction.cpp.j2",
    takes=takes,
    space=space,
    render=render,
    cost=cost,
    parameters=PARAMETERS,
    in_place=True,
)
