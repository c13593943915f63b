"""Windows in CUDA: a thread computes a strip of outputs, and reads each input of the strip once.

Where windows lie far apart, neighbouring threads would read inputs far apart. A block then reads whole lines of inputs
side by side, and reduces them into one line in shared memory. Its threads reduce that along their windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Sequence

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import (
    block,
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
from kgen.codegen.windowing import WindowParts, inside, minus, times
from kgen.compiler.graph.dtypes import DTYPES, is_float, loaded, value_type
from kgen.compiler.loops.indices import symbols_of
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program, Slide
from kgen.templates.cuda import common

MOST_SPAN = 64  # inputs of a row that one output reads from the first to the last: they stay in registers
MOST_NEAR = 256  # inputs that the loops of a thread are unrolled over; more make a kernel of many thousand instructions
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

_COMBINE = {"max": symbol("max_or_nan") + "({0}, {1})", "sum": "{0} + {1}", "mean": "{0} + {1}"}


def takes(program: Program) -> bool:
    """Programs with one window of a few inputs along a row, and no value within an index."""
    return (
        bool(program.windows)
        and not (program.contraction or program.looks_up)
        and program.windows[0].slides[-1].span <= MOST_SPAN
    )


@dataclass(frozen=True, kw_only=True)
class Windows(common.Launched):
    """The outputs of a thread and the inputs that it reads."""

    block: int = parameter("threads in a block")
    x: int = parameter("neighbouring outputs of a row that a thread computes")
    y: int = parameter("rows of outputs that a thread computes")
    line: str = parameter(
        "whether a thread reads the inputs of its own outputs, or a block reduces whole lines of inputs first", "own"
    )

    @cached_property
    def parts(self) -> WindowParts:
        return WindowParts.of(self.program)

    @property
    def lines_first(self) -> bool:
        return self.line == "shared"

    @property
    def inner(self) -> Slide:
        return self.parts.inner

    @property
    def above(self) -> Slide | None:
        """The dimension of rows: the one before the innermost, where the window moves along it."""
        outer = self.parts.outer
        return outer[-1] if outer and outer[-1].stride else None

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
    def step(self) -> int:
        """Input rows from one that a thread reads to the next."""
        if self.above is None:
            return 1
        return self.above.dilation if self.y == 1 else math.gcd(self.above.stride, self.above.dilation)

    @property
    def lines(self) -> int:
        """Input rows that a thread reads."""
        if self.above is None:
            return 1
        return ((self.y - 1) * self.above.stride + self.above.span - 1) // self.step + 1

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
        Constraint(
            "rows_in_image",
            ("y",),
            "an image has fewer rows of outputs: fewer to a thread do the same",
            lambda s: s.y == 1 or (above is not None and s.y <= above.outputs),
        ),
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


class _Emitter:
    """Spells the kernel of one layout."""

    def __init__(self, layout: Windows, plan_maps: Sequence[Map], args: Sequence[Argument]) -> None:
        self.layout, self.parts, self.maps, self.arguments = layout, layout.parts, plan_maps, args
        self.sources = sources(args)
        self.window = self.parts.window
        self.combine = _COMBINE[self.window.kind]

    def reduction(self) -> list[str]:
        """The loops over the inputs of the strip."""
        body = self._lines()
        for slide in reversed([s for s in self.parts.outer if s is not self.layout.above]):
            body = [*(["#pragma unroll"] if slide.taps <= 4 else []), *self.parts.outer_loop(slide, body)]
        if self.layout.lines_first:
            return self._line_first(body)
        there = self._of_row()
        return block(f"if ({there})", body) if there else body

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

    def _line_first(self, body: list[str]) -> list[str]:
        """The body for each vector of a line of inputs, which it reduces into one; then the windows along that line."""
        layout, inner, width = self.layout, self.layout.inner, self.layout.line_width
        name = f"in_{self.parts.letter(inner)}"
        filled = ", ".join([fill(self.window)] * width)
        step = layout.threads * width
        body = [
            f"Vector<float, {width}> part = {{{filled}}};",
            *body,
            f"{symbol('store_vector')}<{width}>(line_of_inputs + {name}, part);",
        ]
        there = inside(name, -inner.padding, inner.last, inner.size)
        take = f"total[0][0] = {self.combine.format('total[0][0]', f'line_of_inputs[{name}]')};"
        windows = [
            f"const int {name} = first_col{times(inner.stride)} + tap{times(inner.dilation)}{minus(inner.padding)};",
            f"if ({there}) {take}" if there else take,
        ]
        return [
            f"__shared__ alignas(16) float line_of_inputs[{-(-layout.used // width) * width}];",
            *block(f"for (int {name} = threadIdx.x * {width}; {name} < {layout.used}; {name} += {step})", body),
            "__syncthreads();",
            f"if (first_col >= {inner.outputs}) return;",
            "#pragma unroll",
            *block(f"for (int tap = 0; tap < {inner.taps}; ++tap)", windows),
        ]

    def _side_by_side(self, inside_row: str) -> list[str]:
        """One vector of a line of inputs, loaded, computed, and taken into its part."""
        width, inner = self.layout.line_width, self.layout.inner
        lines, within = [], []
        for step in self.parts.points:
            if isinstance(step, Map):
                within.append(statement(step, "cuda"))
            elif inner.position in step.access.symbols:
                vector, element = self._vector(step, width, inside_row)
                lines.append(vector)
                within.append(element)
            else:
                lines.append(self._single(step, inside_row))
        value = f"{inside_row} ? {self.window.arg} : {fill(self.window)}" if inside_row else self.window.arg
        within.append(f"part.v[j] = {self.combine.format('part.v[j]', f'({value})' if inside_row else value)};")
        return [*lines, "#pragma unroll", *block(f"for (int j = 0; j < {width}; ++j)", within)]

    def _lines(self) -> list[str]:
        """The loop over the input rows of the strip."""
        layout, above = self.layout, self.layout.above
        if above is None:
            return self._side_by_side("") if layout.lines_first else [*self._near(""), *self._take()]
        letter = self.parts.letter(above)
        last = (
            (-(-above.outputs // layout.y) * layout.y - layout.y) * above.stride
            + (layout.lines - 1) * layout.step
            - above.padding
        )
        condition = inside(f"in_{letter}", -above.padding, last, above.size)
        head = [
            f"const int in_{letter} = first_line{times(above.stride)} + line{times(layout.step)}{minus(above.padding)};"
        ]
        head += [f"const bool inside_row = {condition};"] if condition else []
        unroll = ["#pragma unroll"] if layout.near * layout.lines <= MOST_NEAR else ["#pragma unroll 1"]
        row = "inside_row" if condition else ""
        if layout.lines_first:
            unroll = ["#pragma unroll"] if layout.lines <= MOST_UNROLLED else ["#pragma unroll 4"]
            body = [*head, *self._side_by_side(row)]
        else:
            body = [*head, *self._near(row), *self._take()]
        return [*unroll, *block(f"for (int line = 0; line < {layout.lines}; ++line)", body)]

    def _near(self, inside_row: str) -> list[str]:
        """The inputs of one row that the thread needs, loaded and computed."""
        layout, inner, letter = self.layout, self.layout.inner, self.parts.letter(self.layout.inner)
        threads = layout.across * layout.columns if layout.staged else -(-inner.outputs // layout.x)
        first = -inner.padding - layout.lead
        last = first + (threads - 1) * layout.x * inner.stride + layout.near - 1
        conditions = [c for c in (inside_row, inside(f"in_{letter}", first, last, inner.size)) if c]
        lines = [f"const int in_{letter} = first_col{times(inner.stride)} + at{minus(-first)};"]
        guard = ""
        if conditions:
            guard = "inside"
            lines.append(f"const bool inside = {' && '.join(conditions)};")
        width, within, outside = layout.width, [], fill(self.window)
        filled = set()  # vectors that hold the window's fill where they lie outside
        for step in self.parts.points:
            if isinstance(step, Map):
                within.append(statement(step, "cuda"))
            elif width > 1 and inner.position in step.access.symbols:
                if guard and not self.parts.named(step).access.condition() and is_float(step.dtype):
                    filled.add(step.name)
                vector, element = self._vector(
                    replace(step, fill=self.window.fill) if step.name in filled else step, width, guard
                )
                lines.append(vector)
                within.append(element)
            else:
                lines.append(self._single(step, guard))
        at = "at + j" if width > 1 else "at"
        guarded = {
            name: f"{guard} ? {name} : {outside}" if guard and name not in filled else name for name in self.parts.near
        }
        within += [f"{name}_near[{at}] = {value};" for name, value in guarded.items()]
        if width > 1:
            within = ["#pragma unroll", *block(f"for (int j = 0; j < {width}; ++j)", within)]
        step = f"at += {width}" if width > 1 else "++at"
        declared = [f"float {', '.join(f'{name}_near[{layout.near}]' for name in self.parts.near)};"]
        return [*declared, "#pragma unroll", *block(f"for (int at = 0; at < {layout.near}; {step})", [*lines, *within])]

    def _vector(self, step: Load, width: int, guard: str) -> tuple[str, str]:
        """The statements that load a vector of a row, where the guard holds, and that take one of its elements."""
        access = self.parts.named(step).access
        load = f"{symbol('load_vector')}<{width}>({self.sources[step.tensor]} + {access.index()})"
        there = " && ".join(c for c in (guard, access.condition()) if c)
        found = f"{there} ? {load} : {common.filled_vector(step, width)}" if there else load
        element = loaded(f"{step.name}_vector.v[j]", step.dtype)
        return f"const auto {step.name}_vector = {found};", f"const {value_type(step.dtype)} {step.name} = {element};"

    def _single(self, step: Load, guard: str) -> str:
        """The statement that loads one element, where the guard holds."""
        read = load_value(self.parts.named(step), self.sources)
        return (
            f"const {value_type(step.dtype)} {step.name} = {f'{guard} ? ({read}) : {fill(step)}' if guard else read};"
        )

    def _take(self) -> list[str]:
        """The row's inputs taken into the totals: summed along the row first where no tap has a value of its own."""
        return self._separable() if not (self.parts.pairs or self.parts.taps) else self._weighted()

    def _at(self, tap: str) -> str:
        inner, lead = self.layout.inner, self.layout.lead
        begin, behind = f"{lead} + " if lead else "", f" + {tap}{times(inner.dilation)}" if tap else ""
        return f"{begin}across{times(inner.stride)}{behind}"

    def _separable(self) -> list[str]:
        inner, name = self.layout.inner, f"{self.window.arg}_near"
        lines = [f"float partial = {name}[{self._at('')}];"]
        if inner.taps > 1:
            taken = self.combine.format("partial", f"{name}[{self._at('tap')}]")
            lines += ["#pragma unroll", f"for (int tap = 1; tap < {inner.taps}; ++tap) partial = {taken};"]
        lines += self._each_output(
            [f"total[down][across] = {self.combine.format('total[down][across]', 'partial')};"], named=False
        )
        return ["#pragma unroll", *block(f"for (int across = 0; across < {self.layout.x}; ++across)", lines)]

    def _weighted(self) -> list[str]:
        letter = self.parts.letter(self.layout.inner)
        lines = [f"const float {name} = {name}_near[{self._at(f'tap_{letter}')}];" for name in self.parts.near]
        lines += [self._statement(step) for step in self.parts.pairs]
        lines.append(f"total[down][across] = {self.combine.format('total[down][across]', self.window.arg)};")
        own = [self._statement(step) for step in self.parts.taps]
        lines = [*own, "#pragma unroll", *block(f"for (int across = 0; across < {self.layout.x}; ++across)", lines)]
        taps = f"for (int tap_{letter} = 0; tap_{letter} < {self.layout.inner.taps}; ++tap_{letter})"
        return self._each_output(["#pragma unroll", *block(taps, lines)], named=True)

    def _statement(self, step: Load | Map) -> str:
        return (
            statement(step, "cuda") if isinstance(step, Map) else load_statement(self.parts.named(step), self.sources)
        )

    def _each_output(self, lines: list[str], named: bool) -> list[str]:
        """The lines for each output row that has the input row in its window; ``named`` says that they use the tap."""
        layout, above = self.layout, self.layout.above
        if above is None:
            return lines
        tap = f"tap_{self.parts.letter(above)}"
        if layout.y == 1:
            return ["constexpr int down = 0;", *([f"const int {tap} = line;"] if named else []), *lines]
        distance = f"line{times(layout.step)} - down{times(above.stride)}"
        exact = f" && distance % {above.dilation} == 0" if above.dilation > layout.step else ""
        head = [f"const int {tap} = distance{f' / {above.dilation}' if above.dilation > 1 else ''};"] if named else []
        body = [f"const int distance = {distance};  // known once the loops are unrolled"]
        body += block(f"if (distance >= 0 && distance < {above.span}{exact})", [*head, *lines])
        return ["#pragma unroll", *block(f"for (int down = 0; down < {layout.y}; ++down)", body)]

    def finish(self) -> list[str]:
        """The maps behind the window, and the stores."""
        layout, above = self.layout, self.layout.above
        body = self._staged() if layout.staged else self._direct()
        if above is None:
            return body
        letter = self.parts.letter(above)
        if above.outputs % layout.y:
            body = block(f"if (out_{letter} < {above.outputs})", body)
        body = [f"const int out_{letter} = first_line + down;", *body]
        return ["#pragma unroll", *block(f"for (int down = 0; down < {layout.y}; ++down)", body)]

    def _finished(self, total: str) -> list[str]:
        """One output from its total: the maps, without the store."""
        mean = f" / static_cast<float>({self.parts.count()})" if self.window.kind == "mean" else ""
        loads = [self._statement(x) for x in self.layout.program.loads if x.level == "element"]
        return [f"const float {self.window.name} = {total}{mean};", *loads, *(statement(m, "cuda") for m in self.maps)]

    def _stores(self) -> list[str]:
        return [store_statement(self.parts.named(s), written(s, self.arguments)) for s in self.layout.program.stores]

    def _direct(self) -> list[str]:
        layout, width, letter = self.layout, self.layout.stored_width, self.parts.letter(self.layout.inner)
        if width == 1:
            lines = [
                f"const int out_{letter} = first_col + across;",
                *self._finished("total[down][across]"),
                *self._stores(),
            ]
            if layout.inner.outputs % layout.x:
                lines = [lines[0], *block(f"if (out_{letter} < {layout.inner.outputs})", lines[1:])]
            return ["#pragma unroll", *block(f"for (int across = 0; across < {layout.x}; ++across)", lines)]
        stores = layout.program.stores
        lines = [f"Vector<{DTYPES[s.dtype].memory}, {width}> {s.tensor}_result;" for s in stores]
        inner = [
            *self._finished("total[down][across + j]"),
            *(f"{s.tensor}_result.v[j] = {store_value(s)};" for s in stores),
        ]
        if self.window.kind == "mean" or any(
            layout.inner.output in x.access.symbols for x in layout.program.loads if x.level == ELEMENT
        ):
            inner = [f"const int out_{letter} = first_col + across + j;", *inner]
        lines += [
            "#pragma unroll",
            *block(f"for (int j = 0; j < {width}; ++j)", inner),
            f"const int out_{letter} = first_col + across;",
        ]
        lines += [
            f"{symbol('store_vector')}<{width}>({written(s, self.arguments)} + {self.parts.named(s).access.index()}, "
            f"{s.tensor}_result);"
            for s in stores
        ]
        if layout.inner.outputs % layout.x:
            lines = block(f"if (first_col + across < {layout.inner.outputs})", lines)
        return ["#pragma unroll", *block(f"for (int across = 0; across < {layout.x}; across += {width})", lines)]

    def _staged(self) -> list[str]:
        """A warp's outputs put side by side in shared memory, and stored from there."""
        x, letter = self.layout.x, self.parts.letter(self.layout.inner)
        lines = [f"const int out_{letter} = first_col - lane * {x - 1} + across * {_WARP};"]
        body = [*self._finished(f"own[across * {_WARP} + lane]"), *self._stores()]
        lines += block(f"if (out_{letter} < {self.layout.inner.outputs})", body)
        return [
            f"Vector<float, {x}> result;",
            "#pragma unroll",
            f"for (int across = 0; across < {x}; ++across) result.v[across] = total[down][across];",
            f"{symbol('store_vector')}<{x}>(own + lane * {x}, result);",
            "__syncwarp();",
            "#pragma unroll",
            *block(f"for (int across = 0; across < {x}; ++across)", lines),
            "__syncwarp();",
        ]


def render(layout: Windows) -> Rendering:
    plan = passes_of(layout.program, keep=True)
    (only,) = plan.passes
    arguments = pointers(layout)
    emitter = _Emitter(layout, [m for m in only.maps if isinstance(m, Map)], arguments)
    finish = emitter.finish()
    strips, place = layout.parts.places(layout.above, layout.y)
    if layout.staged:
        shared = f"__shared__ alignas(16) float stage[{layout.threads // _WARP}][{_WARP * layout.x}];"
        finish = [
            shared,
            f"const int lane = threadIdx.x % {_WARP};",
            f"float* own = stage[threadIdx.x / {_WARP}];",
            *finish,
        ]
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
        "leave": " || ".join(leave),
        "place": place,
        "row_statements": row_statements(plan, "cuda"),
        "start": fill(layout.parts.window),
        "one_row": layout.above is None,
        "lines_first": layout.lines_first,
        "reduction": emitter.reduction(),
        "finish": finish,
    }
    return rendering(layout, arguments, context)


TEMPLATE = Template(
    name="window", device_type="cuda", file="cuda/window/window.cu.j2", takes=takes, schedule=Windows, space=space,
    render=render
)  # fmt: skip
