"""Scans on the CPU: running sums, products and linear recurrences, of neighbouring rows side by side, or of a few rows
at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import load_statement, statement, store_statement
from kgen.codegen.scanning import ScanParts
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import value_type
from kgen.compiler.loops.access import digits
from kgen.compiler.loops.program import Load, Map, Program, Store
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

T = TypeVar("T", Load, Store)


@dataclass(frozen=True, kw_only=True)
class Scan(common.Vectorised):
    tile: int = parameter("rows that a thread takes at a time")


def takes(program: Program) -> bool:
    """Programs with scans, and no value within an index."""
    return bool(program.scans) and not program.looks_up


def space(task: Task) -> Space:
    tiles = (256, 64, 1024) if task.program().strided else (4, 2, 8, 1)
    return Space(partial(Scan, task), (Axis("tile", tiles), *vector_axis(task.hardware)))


def render(schedule: Scan) -> Rendering:
    program = schedule.program
    parts = ScanParts.of(program)
    args, lines = pointers(schedule), program.strided
    read_from, cols = sources(args), program.cols
    inner = program.row_loops[-1] if program.row_loops else None
    # Side by side, the innermost axis of the rows is a loop of its own, so that no index has a division.
    named = {**digits("outer", program.row_loops[:-1]), inner.symbol: "line"} if lines and inner else {}

    def step(of: Load | Map) -> str:
        if isinstance(of, Map):
            return statement(of, "cpu")
        return load_statement(spelled(of), read_from)

    def spelled(of: T) -> T:
        return replace(of, access=replace(of.access, spelled=tuple(named.items())))

    value = value_type(parts.scan.dtype)
    at, several = f"[line{' - begin' if lines else ''}]", len(parts.scans) > 1
    carries = [(scan, f"carry{f'[{number}]' * several}{at}") for number, scan in enumerate(parts.scans)]
    before = [*parts.plan.row_loads, *parts.plan.row_maps, *parts.loads, *parts.maps]
    body = [
        *map(step, before),
        *(f"{carry} = {parts.on(carry, scan.args)};" for scan, carry in carries),
        *(
            f"const {value} {scan.name} = {f'static_cast<{value}>({carry})' if value == 'float' else carry};"
            for scan, carry in carries
        ),
        *(step(x) for x in (*parts.later_loads, *parts.later_maps) if x not in before),
        *(store_statement(spelled(s), written(s, args)) for s in program.stores),
    ]
    context = {
        "cols": cols,
        "lines": lines,
        "tile": schedule.tile,
        "scans": len(parts.scans),
        "inner": inner.extent if inner and isinstance(inner.extent, int) else "rows",
        "start": f"{parts.start}.0" if value == "float" else parts.start,
        "running": "double" if value == "float" else value,
        "col": f"{cols - 1} - at" if parts.scan.reverse else "at",
        "body": body,
    }
    return rendering(schedule, args, context)


TEMPLATE = Template(
    name="scan", device_type="cpu", file="cpu/scan/scan.cpp.j2", takes=takes, schedule=Scan, space=space, render=render
)  # fmt: skip
