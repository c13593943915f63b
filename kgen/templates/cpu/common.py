"""Common parts of the CPU templates: the statements of a vectorised loop over columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Mapping, Sequence

from kgen.codegen.arguments import InPlace, arguments, output_axis, sources, written
from kgen.codegen.c_printer import load_statement, one_pass, row_statements, statement, store_statement, store_value
from kgen.codegen.space import Axis, Constraint, alike
from kgen.codegen.template import Argument, Schedule, Task, parameter
from kgen.compiler.graph.dtypes import loaded, value_type
from kgen.compiler.loops.passes import Passes, passes_of
from kgen.compiler.loops.program import Load, Map, Program, Store, by_col
from kgen.devices.hardware import Hardware
from kgen.templates.cpu.target import vector_axis

MOST_KEPT_BYTES = 256 << 10  # bytes of kept rows on a thread's stack


@dataclass(frozen=True, kw_only=True)
class Vectorised(Schedule):
    """A schedule for a CPU, whose vectors have a width that the compiler prefers."""

    vector_bits: int = parameter("width of the vectors that the compiler prefers", 0)

    @property
    def flags(self) -> tuple[str, ...]:
        return (f"-mprefer-vector-width={self.vector_bits}",) if self.vector_bits else ()


@dataclass(frozen=True, kw_only=True)
class Reduction(Vectorised, InPlace):
    """A schedule of reductions: parts of the columns, one pass or two, rows kept or read again, the place of
    results."""

    parts: int = parameter("parts of the columns that threads share", 1)
    softmax: str = parameter("one pass with a running maximum, or two", "online")
    moments: str = parameter("one pass with moments that are merged, or two", "online")
    row: str = parameter("whether rows are kept in a buffer or read again", "reread")

    @cached_property
    def program(self) -> Program:
        return self.task.program("two_pass" in (self.softmax, self.moments))

    @property
    def keeps(self) -> bool:
        return self.row == "buffer"

    @cached_property
    def passes(self) -> Passes:
        return passes_of(self.program, keep=self.keeps)

    @property
    def kept_bytes(self) -> int:
        """Bytes of a kept row."""
        return 4 * self.passes.kept * self.program.cols if self.keeps else 0


_ROWS_AT_ONCE = {
    512: 14,
    256: 6,
    128: 6,
}  # by vector bits: two vectors of sums for each row leave registers for operands


def panel(hardware: Hardware) -> tuple[int, int]:
    """Columns of a panel, which are two vectors, and rows whose sums stay in registers."""
    bits = max(hardware.vector_bits, default=128)
    return bits // 16, _ROWS_AT_ONCE[bits]


def products(schedule: Vectorised, first: Sequence[Argument], at_once: int) -> tuple[list[Argument], dict[str, Any]]:
    """The arguments of a kernel that multiplies lines by packed panels, with the given ``first`` ones, and the context
    of ``products.cpp.j2``. ``at_once`` lines have their sums in registers."""
    of, plan = schedule.program.contraction, passes_of(schedule.program, keep=True)
    (only,) = plan.passes
    args = [*first, *(a for a in arguments(schedule) if a not in first)]
    body = load_statements(only.loads, sources(args)) + [statement(m, "cpu") for m in only.maps]
    width, _ = panel(schedule.task.hardware)
    return args, {
        "k": of.k,
        "width": width,
        "at_once": at_once,
        "sum": of.name,
        "row_statements": row_statements(plan, "cpu"),
        "body": body + [store_statement(s, written(s, args)) for s in only.stores],
    }


def tile_in_row(cols: int, least: int) -> Constraint[Any]:
    return alike(
        "tile_in_row",
        "tile",
        cols,
        least,
        f"a tile this large holds a whole row of {cols} twice: a smaller one does the same",
    )


#: How the results of a later part of a row, ``{0o}``, ... are merged into the results of the parts before it.
_MERGES = {
    "sum": "{0} += {0o};",
    "product": "{0} *= {0o};",
    "max": "{0} = {0o} > {0} || {0o} != {0o} ? {0o} : {0};",
    "min": "{0} = {0o} < {0} || {0o} != {0o} ? {0o} : {0};",
    "argmax": "if ({0o} > {0} || ({0o} != {0o} && {0} == {0})) {0} = {0o}, {1} = {1o};",
    "argmin": "if ({0o} < {0} || ({0o} != {0o} && {0} == {0})) {0} = {0o}, {1} = {1o};",
    "moments": "if ({0o} > 0.0f) {2} += {2o} + ({1o} - {1}) * ({1o} - {1}) * {0} * ({0o} / ({0} + {0o})), "
               "{1} += ({1o} - {1}) * ({0o} / ({0} + {0o})), {0} += {0o};",
}  # fmt: skip


def merges(program: Program) -> bool:
    """Whether what parts of a row find can be merged."""
    return program.collapses and all(r.kind in _MERGES for r in program.reductions)


def merged(kind: str, results: Sequence[str], others: Sequence[str]) -> str:
    """The statement that merges what a later part found."""
    return _MERGES[kind].format(*results, **{f"{number}o": other for number, other in enumerate(others)})


def reduction_axes(task: Task, parts: tuple[int, ...]) -> list[Axis]:
    """The axes of every reduction: parts of the columns, one pass or two, rows kept or read again, the place of
    results.

    ``parts`` are the numbers of parts that may share a row; none where nothing is split.
    """
    online = task.program()
    several, splits = one_pass(online), bool(parts) and merges(online)
    axes = [Axis("parts", parts)] if splits else []
    if several:
        axes.append(Axis(several, ("online",) if splits else ("two_pass", "online")))
    if len(passes_of(online, keep=True).passes) > 1:
        axes.append(Axis("row", ("buffer", "reread") if isinstance(online.col_size, int) else ("reread",)))
    return [*axes, *vector_axis(task.hardware), *output_axis(task)]


def kept_bytes(*rows: str) -> Constraint[Any]:
    """Kept rows fit a thread's stack: one row, or as many as the parameters ``rows`` say."""
    return Constraint(
        "kept_bytes",
        ("row", "softmax", "moments", *rows),
        f"more than {MOST_KEPT_BYTES >> 10} KB of kept rows on a thread's stack",
        lambda s: s.kept_bytes * math.prod(getattr(s, name) for name in rows) <= MOST_KEPT_BYTES,
    )


def load_statements(loads: Sequence[Load], read_from: Mapping[str, str], ahead: bool = False) -> list[str]:
    """The statements that load elements; with ``ahead``, counted as ``at`` from the column ``begin`` of one line."""
    return [_load(x, read_from, ahead) for x in loads if x.level == "element"]


def _load(load: Load, read_from: Mapping[str, str], ahead: bool) -> str:
    if not ahead or load.access.mask:
        return load_statement(load, read_from)
    index = load.access.index("row", "begin", ahead="at")
    value = loaded(f"{read_from[load.tensor]}[{index}]", load.dtype) if load.tensor else index
    return f"const {value_type(load.dtype)} {load.name} = {value};"


def stored(store: Store, target: str, ahead: bool) -> str:
    """The statement that stores an element."""
    return (
        f"{target}[{store.access.index('row', 'begin', ahead='at')}] = {store_value(store)};"
        if ahead
        else store_statement(store, target)
    )


def column_ahead(steps: Sequence[Load | Map], program: Program, numbered: bool = False) -> list[str]:
    """The statement that finds the number of a column ahead of ``begin``: where one of the steps, or a ``numbered``
    buffer, takes it."""
    counted = (x for x in steps if isinstance(x, Load) and (x.access.mask or x.args))  # the others count from `begin`
    return [f"const {'long long' if program.wide else 'int'} col = begin + at;"] if numbered or by_col(counted) else []


def line(program: Program) -> int:
    """Columns along the innermost of several axes, which no tile crosses; 0 where there is one axis."""
    return int(program.col_loops[-1].extent) if len(program.col_loops) > 1 else 0
