"""Reductions over strided columns on the CPU: vectors go across neighbouring rows, which lie side by side in memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Sequence

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import block, describe, fill, kept_values, statement, store_value
from kgen.codegen.space import Axis, Constraint, Space, alike
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import loaded, value_type
from kgen.compiler.loops.passes import Pass
from kgen.compiler.loops.program import Load, Map, Program, Reduce, Step, Store, taken
from kgen.templates.cpu import common

TILE = 64  # columns that are added up before sums are put together, so that no chain of additions is long
SHORT_TILE = 16  # columns, likewise, of a few tiles: PyTorch adds up no more columns of a short sum in one chain
FEW_TILES = 4  # from here on, PyTorch's chains of 64 columns err as much

#: The statements by which each kind takes in a value ``{v}``. Results are those of the row at ``place``.
_TAKE = {
    "sum": ("{0} += {v};",),
    "product": ("{0} *= {v};",),
    "max": ("{0} = {v} > {0} || {v} != {v} ? {v} : {0};",),
    "min": ("{0} = {v} < {0} || {v} != {v} ? {v} : {0};",),
    "max_finite": ("{0} = {v} > {0} ? {v} : {0};",),
    "argmax": (
        "const bool {1}_taken = {v} > {0} || ({v} != {v} && {0} == {0});",
        "{0} = {1}_taken ? {v} : {0};",
        "{1} = {1}_taken ? {place} : {1};",
    ),
    "argmin": (
        "const bool {1}_taken = {v} < {0} || ({v} != {v} && {0} == {0});",
        "{0} = {1}_taken ? {v} : {0};",
        "{1} = {1}_taken ? {place} : {1};",
    ),
    "softmax": (
        f"const float {{0}}_larger = {{v}} > {{0}} ? {{v}} : {{0}}, {{0}}_shift = "
        f"{symbol('finite_max')}({{0}}_larger);",
        f"{{1}} = {{1}} * vec::{symbol('exp_below')}({symbol('finite_max')}({{0}}) - {{0}}_shift) + "
        f"vec::{symbol('exp_below')}({{v}} - {{0}}_shift);",
        "{0} = {0}_larger;",
    ),
}

#: Moments: the offsets of a tile's values, the tile merged into those before it (Chan et al. 1979), and the results.
_OFFSETS = """\
const float {1}_offset = {v} - {1}_shift[place];
{1}_tile[place] += {1}_offset;
{2}_tile[place] += {1}_offset * {1}_offset;"""
_TILE_MERGED = """\
const double {0}_here = static_cast<double>(end - begin), {0}_share = {0}_here / static_cast<double>(end - {first});
const double {1}_own = {1}_tile[place] / {0}_here, {1}_delta = {1}_shift[place] + {1}_own - {1}_all[place];
{2}_all[place] += {2}_tile[place] - {1}_tile[place] * {1}_own \
+ {1}_delta * {1}_delta * static_cast<double>(begin - {first}) * {0}_share;
{1}_all[place] += {1}_delta * {0}_share;
{1}_shift[place] = static_cast<float>({1}_all[place]);"""
_MOMENTS = """\
{0}_strip[place] = static_cast<float>({last} - {first});
{1}_strip[place] = static_cast<float>({1}_all[place]);
{2}_strip[place] = static_cast<float>({2}_all[place]);"""

_STARTS = {
    "sum": ("0.0f",),
    "product": ("1.0f",),
    "max": ("-INFINITY",),
    "min": ("INFINITY",),
    "max_finite": ("-FLT_MAX",),
    "argmax": ("-INFINITY", "0"),
    "argmin": ("INFINITY", "0"),
    "softmax": ("-FLT_MAX", "0.0f"),
    "moments": ("0.0f",) * 3,
}


@dataclass(frozen=True, kw_only=True)
class StripReduction(common.Reduction):
    width: int = parameter("neighbouring rows of a strip")

    @property
    def strip(self) -> int:
        """Rows of a strip that there are."""
        return min(self.width, self.beside)

    @property
    def beside(self) -> int:
        """Rows that lie side by side."""
        return int(self.program.row_loops[-1].extent)


def takes(program: Program) -> bool:
    """Programs with reductions whose neighbouring rows lie side by side."""
    if (
        not program.reductions
        or program.contraction
        or program.moments_of
        or not program.reduces_alike
        or program.reduces_integers
    ):
        return False
    return program.strided and isinstance(program.row_loops[-1].extent, int)


def space(task: Task) -> Space:
    online = task.program()
    beside, threads = int(online.row_loops[-1].extent), task.hardware.threads
    axes = (
        Axis("width", (256, 64, 1024)),
        *common.reduction_axes(task, (threads, 1, 4 * threads) if online.rows < 1024 * threads else ()),
    )
    constraints = (
        alike(
            "strip_in_rows",
            "width",
            beside,
            64,
            f"a strip this wide holds {beside} neighbouring rows twice: a narrower one does the same",
        ),
        common.kept_bytes("width"),
        Constraint(
            "columns_for_all",
            ("parts",),
            f"parts of {online.cols} columns with less than {TILE} columns each: merging them costs more than they win",
            lambda s: s.parts == 1 or s.parts * TILE <= online.cols,
        ),
    )
    return Space(partial(StripReduction, task), axes, constraints)


def render(schedule: StripReduction) -> Rendering:
    program, plan, args = schedule.program, schedule.passes, pointers(schedule)
    emitter = _Emitter(schedule, args)
    beside, parts = schedule.beside, schedule.parts
    room = f"{parts} * {emitter.slots * emitter.width} * -(-{beside} // {emitter.width}) * (rows // {beside})"
    if not isinstance(program.col_size, int):
        room = room.replace("rows", str(program.rows))
    workspace = [Argument("workspace", "workspace", size=room)] if parts > 1 else []
    head = emitter.row_level([], plan.row_loads, plan.row_maps)
    passes = [emitter.one_pass(of) for of in plan.passes]
    if emitter.taken.isdisjoint(x.name for x in (*plan.row_loads, *plan.row_maps)):
        head = []  # the loop that merges parts makes the row values
    context = {
        "width": emitter.width,
        "beside": beside,
        "strips": -(-beside // emitter.width),
        "parts": parts,
        "cols": emitter.cols,
        "integer": emitter.integer,
        "extent": "rows" if isinstance(program.col_size, int) else "cols",
        "row_count": program.rows,
        "kept_values": kept_values(program, plan),
        "head": head,
        "passes": passes,
        "merging": emitter.merging,
    }
    return rendering(schedule, [*args, *workspace], context)


class _Emitter:
    """Spells the passes over one strip. A row value is an array with one element for each row of the strip."""

    def __init__(self, schedule: StripReduction, args: list[Argument]) -> None:
        self.program, self.plan, self.arguments, self.sources = schedule.program, schedule.passes, args, sources(args)
        self.width, self.parts, program = schedule.strip, schedule.parts, schedule.program
        self.cols = str(program.cols) if isinstance(program.col_size, int) else "cols"
        self.integer = "long long" if program.wide else "int"
        self.tile = SHORT_TILE if SHORT_TILE < program.cols < FEW_TILES * TILE else TILE
        self.slots = sum(len(r.names) for r in program.reductions)
        self.merging: list[str] = []
        self.strips: list[str] = []  # row values that are there
        self.taken: set[str] = set()  # row values that passes take

    def _across(self, lines: Sequence[str], steps: Sequence[Step] = ()) -> list[str]:
        """The lines of these steps for each row of the strip, behind the row values that they take."""
        made = {x.name for x in steps if isinstance(x, (Load, Map))}
        used = taken(steps) - made
        found = [name for name in self.strips if name in used]
        self.taken |= set(found)
        given = [f"const {value_type(self.program.dtypes[name])} {name} = {name}_strip[place];" for name in found]
        return ["#pragma omp simd", *block("for (int place = 0; place < width; ++place)", [*given, *lines])]

    def _load(self, load: Load, place: str = "place") -> str:
        """The element of the row at ``place``, or of each row; nothing is read where the mask does not hold."""
        index, condition = (
            load.access.index(beside=place),
            load.access.condition(f"(row + {place})" if place else "row", "col"),
        )
        if not load.tensor and load.dtype == "bool":
            index, condition = condition, ""
        value = loaded(f"{self.sources[load.tensor]}[{index}]", load.dtype) if load.tensor else index
        return (
            f"const {value_type(load.dtype)} {load.name} = "
            f"{f'{condition} ? {value} : {fill(load)}' if condition else value};"
        )

    def _made(self, step: Map | Load, place: str = "place") -> str:
        return self._load(step, place) if isinstance(step, Load) else statement(step, "cpu")

    def _store(self, store: Store, place: str = "place") -> str:
        return f"{written(store, self.arguments)}[{store.access.index(beside=place)}] = {store_value(store)};"

    def _of_all_rows(self, of: Pass) -> tuple[Step, ...]:
        """Stores of one element for all rows of a strip, behind the steps that they take. They stand in front of the
        loop over the rows: no compiler makes vectors of a loop that writes one element again and again."""
        across, alike = self.program.row_loops[-1].symbol, {}
        for step in (*of.loads, *of.maps):
            follows_row = isinstance(step, Load) and across in step.access.symbols
            if not follows_row and alike.keys() >= set(step.args):
                alike[step.name] = step
        stores = [s for s in of.stores if across not in s.access.symbols and s.arg in alike]
        needed = {s.arg for s in stores}
        for name, step in reversed(alike.items()):
            needed |= set(step.args) if name in needed else set()
        return (*(step for name, step in alike.items() if name in needed), *stores)

    def row_level(self, stores: Sequence[Store], loads: Sequence[Load], maps: Sequence[Map]) -> list[str]:
        """Row values from memory and from other row values, kept for the strip; then their stores."""
        lines, declared = [], []
        for load in loads:
            lines += [self._load(load), f"{load.name}_strip[place] = {load.name};"]
        for one in maps:
            lines += [self._made(one), f"{one.name}_strip[place] = {one.name};"]
        for one in (*loads, *maps):
            declared.append(f"alignas(64) {value_type(one.dtype)} {one.name}_strip[{self.width}];")
        for store in stores:
            lines.append(self._store(store))
        found = [*declared, *self._across(lines, (*loads, *maps, *stores))] if lines else []
        self.strips += [one.name for one in (*loads, *maps)]
        return found

    def one_pass(self, of: Pass) -> dict[str, Any]:
        lines: list[str] = []
        for r in of.reductions:
            lines += self._started(r)
        once = self._of_all_rows(of)
        ahead = [self._store(step, "") if isinstance(step, Store) else self._made(step, "") for step in once]
        held = [f"const {value_type(self.program.dtypes[name])} {name} = {name}_kept[col][place];" for name in of.held]
        values = [*map(self._load, of.loads), *held, *map(self._made, of.maps)]
        body = [
            *(self._load(x) for x in of.loads if x not in once),
            *held,
            *(self._made(m) for m in of.maps if m not in once),
        ]
        body += [f"{name}_kept[col][place] = {name};" for name in of.keeps]
        body += [self._store(s) for s in of.stores if s not in once]
        first, last = ("first_col", "last_col") if self.parts > 1 else ("0", self.cols)
        takes, behind, opened, after = [], [], [], []
        for r in of.reductions:
            if r.kind == "sum":
                (name,) = r.names
                lines.append(f"alignas(64) double {name}_all[{self.width}] = {{}};")
                opened.append(f"alignas(64) float {name}_tile[{self.width}] = {{}};")
                takes.append(f"{name}_tile[place] += {r.arg};")
                behind.append(f"{name}_all[place] += {name}_tile[place];")
                after.append(f"{name}_strip[place] = static_cast<float>({name}_all[place]);")
            elif r.kind == "moments":
                lines += self._shifted(r, values, (*of.loads, *of.maps, r), first, last)
                opened.append(
                    f"alignas(64) float {r.names[1]}_tile[{self.width}] = {{}}, {r.names[2]}_tile[{self.width}] = {{}};"
                )
                takes += _OFFSETS.format(*r.names, v=r.arg).splitlines()
                behind += _TILE_MERGED.format(*r.names, first=first).splitlines()
                after += _MOMENTS.format(*r.names, first=first, last=last).splitlines()
            else:
                takes += self._taken(r)
        loop = self._across([*body, *takes], (*of.loads, *of.maps, *of.stores, *of.reductions)) if body or takes else []
        loop = [*ahead, *loop]
        if opened:
            inner = [
                *opened,
                f"const {self.integer} end = begin + {self.tile} < {last} ? begin + {self.tile} : {last};",
                *block(f"for ({self.integer} col = begin; col < end; ++col)", loop),
                *self._across(behind),
            ]
            lines += block(f"for ({self.integer} begin = {first}; begin < {last}; begin += {self.tile})", inner)
        elif loop:
            lines += block(f"for ({self.integer} col = {first}; col < {last}; ++col)", loop)
        lines += self._across(after) if after else []
        self.strips += [n for r in of.reductions for n in r.names]
        if self.parts > 1:
            lines += self._partial(of.reductions)
            self.merging = self._merged(of)
        else:
            lines += self.row_level(of.row_stores, (), of.row_maps)
        stored = tuple(s.tensor for s in (*of.stores, *of.row_stores))
        return {"comment": f"{describe(of, stored)}.", "lines": lines}

    def _type(self, r: Reduce, part: int) -> str:
        return "int" if r.kind.startswith("arg") and part == 1 else "float"

    def _started(self, r: Reduce) -> list[str]:
        lines = [f"alignas(64) {self._type(r, k)} {name}_strip[{self.width}];" for k, name in enumerate(r.names)]
        return [
            *lines,
            *self._across([f"{name}_strip[place] = {start};" for name, start in zip(r.names, _STARTS[r.kind])]),
        ]

    def _shifted(self, r: Reduce, values: Sequence[str], steps: Sequence[Step], first: str, last: str) -> list[str]:
        """Moments in float64, and what values are shifted by before they are squared: the mean of the first tile, later
        of all so far."""
        _, mean, squares = r.names
        count = f"({last} - {first} < {TILE} ? {last} - {first} : {TILE})"
        loop = self._across([*values, f"{mean}_shift[place] += {r.arg};"], steps)
        return [
            f"alignas(64) double {mean}_all[{self.width}] = {{}}, {squares}_all[{self.width}] = {{}};",
            f"alignas(64) float {mean}_shift[{self.width}] = {{}};",
            *block(f"for ({self.integer} col = {first}; col < {first} + {count}; ++col)", loop),
            *self._across([f"{mean}_shift[place] /= static_cast<float>({count});"]),
        ]

    def _taken(self, r: Reduce) -> list[str]:
        """The statements that take a value in: results are read, changed and written back, so that all stays in
        vectors."""
        place = "static_cast<int>(" + r.args[1] + ")" if len(r.args) > 1 else ""
        lines = [f"{self._type(r, k)} {n}_now = {n}_strip[place];" for k, n in enumerate(r.names)]
        now = [f"{n}_now" for n in r.names]
        lines += [text.format(*now, v=r.arg, place=place) for text in _TAKE[r.kind]]
        return [*lines, *(f"{n}_strip[place] = {n}_now;" for n in r.names)]

    def _partial(self, reductions: Sequence[Reduce]) -> list[str]:
        """Write the results of this part of the strip to the workspace."""
        lines, slot = [f"float* found = workspace + piece * {self.slots * self.width};"], 0
        stores = []
        for r in reductions:
            for k, name in enumerate(r.names):
                target = f"found + {slot * self.width}" if slot else "found"
                pointer = f"reinterpret_cast<int*>({target})" if self._type(r, k) == "int" else f"({target})"
                stores.append(f"{pointer}[place] = {name}_strip[place];")
                slot += 1
        return [*lines, *self._across(stores)]

    def _merged(self, of: Pass) -> list[str]:
        """The parts of a strip merged, in the order of their columns; then row values and their stores."""
        strips, used, self.strips = self.strips, set(self.taken), []
        lines = self.row_level([], self.plan.row_loads, self.plan.row_maps)
        lines += [line for r in of.reductions for line in self._started(r)]
        body, slot = [], 0
        for r in of.reductions:
            for k, name in enumerate(r.names):
                target = f"found + {slot * self.width}" if slot else "found"
                pointer = f"reinterpret_cast<const int*>({target})" if self._type(r, k) == "int" else f"({target})"
                body.append(f"const {self._type(r, k)} {name}_other = {pointer}[place];")
                slot += 1
            body.append(common.merged(r.kind, [f"{n}_strip[place]" for n in r.names], [f"{n}_other" for n in r.names]))
        loop = [
            f"const float* found = workspace + (strip * {self.parts} + part) * {self.slots * self.width};",
            *self._across(body),
        ]
        self.strips = strips
        lines += block(f"for (int part = 0; part < {self.parts}; ++part)", loop)
        lines += self.row_level(of.row_stores, (), of.row_maps)
        self.taken = used  # of passes alone
        return lines


TEMPLATE = Template(
    name="strip_reduction", device_type="cpu", file="cpu/strip_reduction/strip_reduction.cpp.j2", takes=takes,
    schedule=StripReduction, space=space, render=render, in_place=True
)  # fmt: skip
