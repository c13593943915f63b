"""Inner reductions in CUDA: maps, reductions along the row, maps; a block or a warp for each row.

a block or a warp takes a row, or a block takes two       passes.cu.j2
lines of threads take rows that lie side by side          passes.cu.j2; pairs of half types: pairs.cu.j2
blocks share a row, each a part of it                     shared.cu.j2
rows come to shared memory while others are stored        ring.cu.j2
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgen.codegen.arguments import arguments as pointers, rendering
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Rendering, Template
from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.loops.program import by_row
from kgen.templates.cuda.inner_reduction.schedule import SLOT_BYTES, STRIP, InnerReduction, rows_beside
from kgen.templates.cuda.inner_reduction.space import space, takes
from kgen.templates.cuda.inner_reduction.statements import Statements

#: Vectors of a thread whose block shares a row. With this many, 16 in flight take 1% less time than 4 (H200).
LONG_STEPS = 64
# Bytes that a thread with several rows requests at once. 1024 such threads saturate the memory of an H200.
BYTES_AHEAD = 64


def render(schedule: InnerReduction) -> Rendering:
    program, plan, ring = schedule.program, schedule.passes, schedule.ring
    lanes, threads, rows, blocks = schedule.lanes, schedule.block, schedule.rows, schedule.blocks
    args = pointers(schedule, schedule.whole)
    of = Statements(schedule, args)
    fixed = isinstance(program.col_size, int)
    cols, row_limit = (str(program.cols), "rows") if fixed else ("cols", str(program.rows))
    interleaved = ring is not None and len(plan.passes) == 2 and not (plan.row_loads or plan.row_maps)
    rows_at_once, side_by_side, tile = (
        threads * blocks // lanes * rows,
        rows_beside(program),
        STRIP * rows - 1,
    )  # pairs overlap the pairs of the next tile
    context = {
        "columns": program.cols if fixed else "any number of columns",
        "cols": cols,
        "threads": threads,
        "lanes": lanes,
        "lines": threads // STRIP,
        "rows": rows,
        "blocks": blocks,
        "merge": schedule.merge,
        "strip": schedule.strip,
        "least_blocks": 1 if schedule.strip and rows > 1 else max(1, 1024 // threads) if schedule.rereads else 0,
        "apart": schedule.apart,
        "neighbours": schedule.neighbours,
        "paired": schedule.paired,
        "tile": tile,
        "beside": side_by_side,
        "vec": schedule.vec,
        "steps": schedule.steps,
        "parted": schedule.parted,
        "extent": "rows" if fixed else "cols",
        "row_count": program.rows,
        "limit": row_limit,
        "rows_used": schedule.strip or lanes < threads or rows > 1 or schedule.merge == "last_block",
        "row_used": bool(schedule.concatenations)
        or schedule.merge == "last_block"
        or by_row((*program.loads, *program.steps, *program.stores)),
        "units": f"{row_limit} / {side_by_side} * {-(-side_by_side // tile)}"
        if schedule.paired
        else row_limit
        if rows_at_once == 1
        else f"({row_limit} + {rows_at_once - 1}) / {rows_at_once}",
        "counters": of.exchange.counters,
        "most_teams": schedule.teams,
        "kept_values": plan.kept > 0,
        "several_passes": len(plan.passes) > 1,
        "ring": ring,
        "interleaved": interleaved,
        "shared_bytes": ring.slots * SLOT_BYTES * threads * len(ring.loads) if ring else 0,
        **_columns(of, cols),
        "keeps": schedule.keeps,
        "kept": of.kept,
        "operands": _operands(of),
        "row_values": of.row_values(plan.row_loads, plan.row_maps),
        "passes": of.passes(interleaved),
        "results": of.results(program.reductions),
    }
    return rendering(schedule, [*args, *of.exchange.arguments], context)


def _columns(of: Statements, cols: str) -> dict[str, Any]:
    """The context of a thread's columns."""
    schedule, program, ring = of.schedule, of.program, of.schedule.ring
    exact = cols != "cols" and schedule.steps * schedule.lanes * schedule.vec == program.cols
    # Only a thread's last step may have no column, so loads of the others need no test.
    sure = f"step < {schedule.steps - 1} || " if schedule.steps > 1 and cols != "cols" else ""
    step, whole = schedule.block * schedule.vec, schedule.block * schedule.vec * schedule.blocks
    part = f"constexpr {of.integer} part = {schedule.steps * step};"
    if cols == "cols":
        part = f"const {of.integer} part = (cols + {whole - 1}) / {whole} * {step};"
    copies = [
        f"{symbol('copy_async')}(place + {ring.slot('slot', x)} * {SLOT_BYTES * schedule.block}, "
        f"{of.sources[x.tensor]} + {x.access.index()});"
        for x in (ring.loads if ring else ())
    ]
    place = next((x.access for x in program.loads if x.tensor), None)
    return {
        "all_lanes": schedule.lanes,
        "lanes_of_row": schedule.lanes // schedule.blocks,
        "integer": of.integer,
        "exact": exact,
        "within": "" if exact else f"if ({sure}col < {cols})",
        "unroll": _unroll(schedule),
        "part": part,  # whole steps of a block's threads, one after the other
        "copies": copies,
        "memory": DTYPES[ring.loads[0].dtype].memory if ring else "",
        "begin": replace(place, offset=place.offset.subs(program.col_loops[0].symbol, 0)).index("first_row")
        if schedule.paired and place
        else "",
    }


def _unroll(schedule: InnerReduction) -> int:
    """Columns of a thread, or vectors of them, whose loads are in flight together."""
    read = [x for x in schedule.program.loads if x.tensor]
    if schedule.paired:
        return max(1, BYTES_AHEAD // (2 * schedule.rows * 2 * len(read)))
    if schedule.strip and schedule.rows > 1:
        whole = [x for x in read if x.access.full] or read  # each element of a stack is one of its operands
        return max(1, BYTES_AHEAD // (sum(DTYPES[x.dtype].nbytes for x in whole) * schedule.rows))
    if schedule.merge == "last_block" and not (schedule.strip or schedule.parted) and schedule.steps >= LONG_STEPS:
        return 16
    return 4 if schedule.rereads else max(4, 8 // schedule.vec)


def _operands(of: Statements) -> list[dict[str, Any]]:
    """The concatenations of which each row lies in one operand."""
    found = []
    for one in of.schedule.concatenations:
        parts = [
            {"condition": x.condition, "pointer": of.sources[x.tensor], "numbers": [*zip(one.numbers, x.numbers)]}
            for x in one.parts
        ]
        memory = DTYPES[one.load.dtype].memory
        found.append(
            {
                "name": one.load.name,
                "type": memory,
                "pointer": of.sources[one.load.tensor],
                "parts": parts[:-1],
                "last": parts[-1],
            }
        )
    return found


TEMPLATE = Template(
    name="inner_reduction", device_type="cuda", file="cuda/inner_reduction/inner_reduction.cu.j2", takes=takes,
    schedule=InnerReduction, space=space, render=render, in_place=True
)  # fmt: skip
