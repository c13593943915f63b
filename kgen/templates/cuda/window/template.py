"""Windows in CUDA: a thread computes a strip of outputs, and reads each input of the strip once.

Where windows lie far apart, neighbouring threads would read inputs far apart. A block then reads whole lines of inputs
side by side, and reduces them into one line in shared memory. Its threads reduce that along their windows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Sequence

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import (
    fill,
    load_statement,
    load_value,
    row_statements,
    statement,
    store_statement,
    store_value,
)
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.codegen.windowing import inside
from kgen.compiler.graph.dtypes import DTYPES, is_float, loaded, value_type
from kgen.compiler.loops.indices import symbols_of
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program
from kgen.templates.cuda import common
from kgen.templates.cuda.strips import Strips, rows_in_image

MOST_SPAN = 64  # inputs of a row that one output reads from the first to the last: they stay in registers
MOST_NEAR = 256  # inputs that the loops of a thread are unrolled over; more make a kernel of many thousand instructions
MOST_TAPS_UNROLLED = 4  # taps of an outer dimension
MOST_UNROLLED = 16  # input rows of a line that are in flight together
# Inputs from one window to the next. From this number on, each load of a single input touches a sector alone.
LEAST_APART = 4
MOST_SHARED = 12288  # inputs of a line in shared memory, which is what a block has without asking
_WARP = 32

#: Neighbouring outputs to a thread, the likeliest first, by the stride: 16 bytes of input to a load where it can be;
#: H200.
_ORDER_OF_X = {1: (4, 2, 1), 2: (2, 4, 1)}
_HALF_ORDER_OF_X = {1: (8, 4, 2, 1), 2: (4, 8, 2, 1)}
_HALF_ORDER_OF_X_IN_TILES = {1: (4, 8, 2, 1), 2: (4, 8, 2, 1)}  # a tile of 8 x 8 outputs takes too many registers


def takes(program: Program) -> bool:
    """Programs with one window of a few inputs along a row, and no value within an index."""
    return (
        bool(program.windows)
        and not (program.contraction or program.looks_up)
        and program.windows[0].slides[-1].span <= MOST_SPAN
    )


@dataclass(frozen=True, kw_only=True)
class Windows(Strips, common.Launched):
    """The outputs of a thread and the inputs that it reads."""

    block: int = parameter("threads in a block")
    x: int = parameter("neighbouring outputs of a row that a thread computes")
    y: int = parameter("rows of outputs that a thread computes")
    line: str = parameter(
        "whether a thread reads the inputs of its own outputs, or a block reduces whole lines of inputs first", "own"
    )

    @property
    def lines_first(self) -> bool:
        return self.line == "shared"

    @property
    def columns(self) -> int:
        """Blocks along a row of outputs."""
        return -(-self.inner.outputs // (self.block * self.x))

    @property
    def across(self) -> int:
        """Threads along a row of outputs: whole warps, or a part of one; all where the block reads whole lines of
        inputs."""
        if self.lines_first:
            return self.block
        needed = -(-self.inner.outputs // (self.columns * self.x))
        return 1 << (needed - 1).bit_length() if needed < _WARP else -(-needed // _WARP) * _WARP

    @property
    def threads(self) -> int:
        """Threads of a block: as many rows of outputs as find room."""
        return self.block // self.across * self.across

    @property
    def widths(self) -> tuple[int, ...]:
        """Elements that one load or store may have, 16 bytes of half types as of float32."""
        return (8, 4, 2, 1) if self.program.narrow else (4, 2, 1)

    @cached_property
    def width(self) -> int:
        """Elements of one load along a row."""
        loads = [p.access for p in self.parts.points if isinstance(p, Load) and self.inner.position in p.access.symbols]
        fits = lambda v: (self.x * self.inner.stride % v == 0 and self.inner.size % v == 0
                          and all(place.steps_by_one(self.inner.position, v) for place in loads))  # fmt: skip
        return next(v for v in self.widths if v == 1 or fits(v))

    @property
    def used(self) -> int:
        """Inputs of a line from its first to the last that a window reads."""
        return min(self.inner.size, self.inner.last + 1)

    @cached_property
    def line_width(self) -> int:
        """Elements of one load along a whole line of inputs; 0 where lines cannot come first."""
        parts, inner = self.parts, self.inner
        loads = [p for p in parts.points if isinstance(p, Load)]
        if parts.pairs or parts.taps or inner.stride < LEAST_APART or not all(x.tensor for x in loads):
            return 0
        fits = lambda v: (
            inner.size % v == 0
            and all(x.access.steps_by_one(inner.position, v) for x in loads if inner.position in x.access.symbols)
        )
        return next((v for v in self.widths if v > 1 and fits(v)), 0) if self.used <= MOST_SHARED else 0

    @property
    def lead(self) -> int:
        """Inputs before the first that a thread needs: its loads begin at a multiple of their width."""
        return -self.inner.padding % self.width

    @property
    def near(self) -> int:
        """Inputs that a thread reads of one row."""
        needed = self.lead + (self.x - 1) * self.inner.stride + self.inner.span
        return -(-needed // self.width) * self.width

    @property
    def stored_width(self) -> int:
        """Elements of one store along a row."""
        element = [s.access for s in self.program.stores]
        fits = lambda v: (
            self.x % v == 0
            and self.inner.outputs % v == 0
            and all(p.steps_by_one(self.inner.output, v) for p in element)
        )
        return next(v for v in self.widths if v == 1 or (self.inner.output != 0 and fits(v)))

    @property
    def staged(self) -> bool:
        """Whether a warp's outputs go through shared memory, so that neighbours store neighbours."""
        return self.stored_width < self.x and self.across >= _WARP


def space(task: Task) -> Space:
    plain = Windows(task, block=256, x=4, y=1)
    above = plain.above
    overlaps = above is not None and above.span > above.stride == 1
    orders = _ORDER_OF_X if not plain.program.narrow else _HALF_ORDER_OF_X_IN_TILES if overlaps else _HALF_ORDER_OF_X
    axes = (
        Axis("block", (256, 128, 512)),
        Axis("x", orders.get(plain.inner.stride, (1, 2, 4)) if plain.width > 1 else (1, 2, 4)),
        Axis("y", (8, 4, 2, 1) if overlaps else (1, 2, 4) if above is not None else (1,)),
        *([Axis("line", ("shared", "own"))] if plain.line_width else []),
        *common.launch_axis(task),
    )
    constraints = (
        Constraint(
            "outputs_in_row",
            ("x",),
            f"a row has {plain.inner.outputs} outputs: fewer to a thread do the same",
            lambda s: s.x == 1 or s.x <= plain.inner.outputs,
        ),
        rows_in_image(above),
        Constraint(
            "line_of_block",
            ("block", "x", "y", "line"),
            "a block that reduces lines first has a thread for each output of a row, one row, and inputs for half of "
            "its threads",
            lambda s: (
                not s.lines_first
                or (s.x == s.y == 1 and plain.inner.outputs <= s.block and 2 * plain.used >= s.block * plain.line_width)
            ),
        ),
        Constraint(
            "near_inputs",
            ("x", "y"),
            f"more than {MOST_SPAN} inputs of a row to a thread, or {MOST_NEAR} of the rows that its loops are "
            "unrolled over",
            lambda s: s.near <= max(MOST_SPAN, plain.inner.span + 3) and (s.y == 1 or s.near * s.lines <= MOST_NEAR),
        ),
    )
    return Space(partial(Windows, task), axes, constraints)


@dataclass(frozen=True)
class _Point:
    """A load or a map of one input: a map's statement, or what a load reads."""

    name: str
    statement: str = ""  #: of a map
    vector: str = ""  #: the expression of a vector
    single: str = ""  #: the expression of one element
    type: str = ""  #: of an element
    element: str = ""  #: the expression of an element of the vector

    @property
    def once(self) -> bool:
        """Whether it is loaded before the loop over a vector's elements."""
        return bool(self.vector or self.single)


class _Context:
    """The values that the text of one layout shows."""

    def __init__(self, layout: Windows, plan_maps: Sequence[Map], args: Sequence[Argument]) -> None:
        self.layout, self.parts, self.maps, self.arguments = layout, layout.parts, plan_maps, args
        self.sources = sources(args)
        self.window = self.parts.window

    def reduction(self) -> dict[str, Any]:
        """The inputs of the strip, and how they are taken into its totals."""
        layout, parts = self.layout, self.parts
        guard = "inside_row" if layout.inside_row else ""
        near, inner = self._near(guard), layout.inner
        return {
            "kind": self.window.kind,
            "arg": self.window.arg,
            "of_row": self._of_row(),
            "in_outer_loops": partial(layout.in_outer_loops, most_unrolled=MOST_TAPS_UNROLLED),
            "unroll_lines": self._unrolled_lines(),
            "inside_row": layout.inside_row,
            "row_guard": guard,
            "own_first": -inner.padding - layout.lead,
            "near": near,
            "separable": not (parts.pairs or parts.taps),
            "pairs": [self._statement(step) for step in parts.pairs],
            "taps": [self._statement(step) for step in parts.taps],
        } | ({"side": self._side_by_side(guard)} if layout.lines_first else {})

    def _of_row(self) -> str:
        """The condition on the row without which no weight is read, as in the other part of a concatenation: its sums
        are zero there. Empty where there is none."""
        moving = set(self.parts.variables())
        loads = [self.parts.named(x) for x in self.window.body if isinstance(x, Load) and x.tensor]
        weights = [x for x in (*self.parts.taps, *self.parts.pairs) if isinstance(x, Load)]
        if not weights or any(x.fill != 0 for x in weights):
            return ""
        of_row = [{within for within in x.access.mask if symbols_of(within.index).isdisjoint(moving)} for x in loads]
        every = set.intersection(*of_row)
        of = loads[0].access
        return replace(of, mask=tuple(within for within in of.mask if within in every)).condition() if every else ""

    def _unrolled_lines(self) -> str:
        """How far the loop over input rows is unrolled: all of it where nothing is named."""
        if self.layout.lines_first:
            return "" if self.layout.lines <= MOST_UNROLLED else " 4"
        return "" if self.layout.near * self.layout.lines <= MOST_NEAR else " 1"

    def _side_by_side(self, guard: str) -> dict[str, Any]:
        """One vector of a line of inputs, loaded, computed, and taken into its part."""
        layout, inner = self.layout, self.layout.inner
        letter = self.parts.letter(inner)
        return {
            "width": layout.line_width,
            "used": layout.used,
            "whole": -(-layout.used // layout.line_width) * layout.line_width,
            "there": inside(f"in_{letter}", -inner.padding, inner.last, inner.size),
            "points": [self._point(step, layout.line_width, guard) for step in self.parts.points],
            "value": f"({guard} ? {self.window.arg} : {fill(self.window)})" if guard else self.window.arg,
        }

    def _near(self, inside_row: str) -> dict[str, Any]:
        """The inputs of one row that the thread needs, loaded and computed."""
        layout, inner, letter = self.layout, self.layout.inner, self.parts.letter(self.layout.inner)
        threads = layout.across * layout.columns if layout.staged else -(-inner.outputs // layout.x)
        first = -inner.padding - layout.lead
        last = first + (threads - 1) * layout.x * inner.stride + layout.near - 1
        conditions = [c for c in (inside_row, inside(f"in_{letter}", first, last, inner.size)) if c]
        guard = "inside" if conditions else ""
        filled = set()  # vectors that hold the window's fill where they lie outside
        points = []
        for step in self.parts.points:
            if self._is_vector(step, layout.width) and guard:
                if not self.parts.named(step).access.condition() and is_float(step.dtype):
                    filled.add(step.name)
                    step = replace(step, fill=self.window.fill)
            points.append(self._point(step, layout.width, guard))
        return {
            "width": layout.width,
            "inside": " && ".join(conditions),
            "points": points,
            "names": self.parts.near,
            "guarded": [name for name in self.parts.near if guard and name not in filled],
        }

    def _is_vector(self, step: Load | Map, width: int) -> bool:
        return isinstance(step, Load) and width > 1 and self.layout.inner.position in step.access.symbols

    def _point(self, step: Load | Map, width: int, guard: str) -> _Point:
        """A map, or what is loaded where the guard holds."""
        if isinstance(step, Map):
            return _Point(step.name, statement(step, "cuda"))
        if not self._is_vector(step, width):
            read = load_value(self.parts.named(step), self.sources)
            value = f"{guard} ? ({read}) : {fill(step)}" if guard else read
            return _Point(step.name, single=value, type=value_type(step.dtype))
        access = self.parts.named(step).access
        load = f"{symbol('load_vector')}<{width}>({self.sources[step.tensor]} + {access.index()})"
        there = " && ".join(c for c in (guard, access.condition()) if c)
        vector = f"{there} ? {load} : {common.filled_vector(step, width)}" if there else load
        element = loaded(f"{step.name}_vector.v[j]", step.dtype)
        return _Point(step.name, vector=vector, type=value_type(step.dtype), element=element)

    def _statement(self, step: Load | Map) -> str:
        return (
            statement(step, "cuda") if isinstance(step, Map) else load_statement(self.parts.named(step), self.sources)
        )

    def finish(self) -> dict[str, Any]:
        """The maps behind the window, and the stores."""
        layout, elements = self.layout, [x for x in self.layout.program.loads if x.level == ELEMENT]
        return {
            "stored_width": layout.stored_width,
            "staged": layout.staged,
            "total": self.window.name,
            "mean": self.parts.count() if self.window.kind == "mean" else "",
            "finished": [*map(self._statement, elements), *(statement(m, "cuda") for m in self.maps)],
            "column_used": self.window.kind == "mean" or any(layout.inner.output in x.access.symbols for x in elements),
            "stores": [
                {
                    "statement": store_statement(self.parts.named(s), written(s, self.arguments)),
                    "to": written(s, self.arguments),
                    "index": self.parts.named(s).access.index(),
                    "tensor": s.tensor,
                    "memory": DTYPES[s.dtype].memory,
                    "value": store_value(s),
                }
                for s in layout.program.stores
            ],
        }


def render(layout: Windows) -> Rendering:
    plan = passes_of(layout.program, keep=True)
    (only,) = plan.passes
    arguments = pointers(layout)
    of = _Context(layout, [m for m in only.maps if isinstance(m, Map)], arguments)
    strips, place = layout.parts.places(layout.above, layout.y)
    leave = [f"strip >= {f'rows * {strips}' if strips > 1 else 'rows'}"] if layout.across < layout.threads else []
    if layout.inner.outputs % (layout.across * layout.x) and not (layout.staged or layout.lines_first):
        leave.append(f"first_col >= {layout.inner.outputs}")
    context = {
        "threads": layout.threads,
        "across": layout.across,
        "columns": layout.columns,
        "strips": strips,
        "x": layout.x,
        "y": layout.y,
        "warp": _WARP,
        "leave": " || ".join(leave),
        "place": place,
        "row_statements": row_statements(plan, "cuda"),
        "start": fill(layout.parts.window),
        "lines_first": layout.lines_first,
        "inner": layout.shown(layout.inner),
        "above": layout.shown(layout.above),
        "lead": layout.lead,
        "near_inputs": layout.near,
        "lines": layout.lines,
        "step": layout.step,
    }
    return rendering(layout, arguments, context | of.reduction() | of.finish())


TEMPLATE = Template(
    name="window", device_type="cuda", file="cuda/window/window.cu.j2", takes=takes, schedule=Windows, space=space,
    render=render
)  # fmt: skip
