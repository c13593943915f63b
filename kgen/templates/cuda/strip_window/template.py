"""Windows over images whose channels lie side by side, in CUDA: vectors go across channels.

A thread computes a strip of neighbouring outputs of a few channels, and reads each input of the strip once. Weights and
other values of taps lie in shared memory, with channels side by side, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Sequence, TypeVar

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import fill, load_statement, statement, store_value
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.codegen.windowing import WindowParts, inside
from kgen.compiler.graph.dtypes import DTYPES, is_float, loaded, value_type
from kgen.compiler.loops.access import digits
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program, Store, taken
from kgen.compiler.rewrites.rewrite import Offer
from kgen.templates.cuda import common
from kgen.templates.cuda.strips import Strips, rows_in_image

MOST_SPAN = 16  # inputs of a row from the first that an output reads to the last; registers hold a strip's inputs
MOST_VALUES = 128  # inputs and totals of a thread, all in registers
MOST_SHARED = 40 << 10  # bytes of a block's values of taps
MOST_X = 8  # neighbouring outputs of a thread
_PAD = 4  # values behind a line of shared memory, by which neighbouring taps lie in other banks
_WIDTHS, _HALF_WIDTHS = (4, 2), (4, 8, 2)  # channels of a thread, the likeliest first

T = TypeVar("T", Load, Store)


def takes(program: Program) -> bool:
    """Programs with one window of a few taps over images whose channels lie side by side, and results that lie so."""
    if not program.windows_across or program.contraction or program.looks_up or program.reductions or program.scans:
        return False
    parts = WindowParts.of(program)
    if program.scatters or program.moments_of or parts.inner.span > MOST_SPAN:
        return False
    others = {loop.symbol for loop in program.row_loops[:-1]}
    loads = [x for x in parts.taps if isinstance(x, Load)]
    if any(not x.tensor or others & x.access.symbols for x in loads) or taken(parts.taps) & {*parts.window.args}:
        return False  # a block has values of taps of its channels, whichever the image
    return not any(isinstance(x, Load) for x in parts.pairs) and bool(_widths(program, parts))


def _widths(program: Program, parts: WindowParts) -> list[int]:
    """The numbers of neighbouring channels that every load and store may have."""
    beside = program.row_loops[-1]
    moved = [x for x in (*program.loads, *parts.points) if isinstance(x, Load) and beside.symbol in x.access.symbols]
    vectors = [x.access for x in (*moved, *program.stores) if x.level == ELEMENT]
    return [
        width
        for width in (_HALF_WIDTHS if program.narrow else _WIDTHS)
        if beside.extent % width == 0 and all(access.steps_by_one(beside.symbol, width) for access in vectors)
    ]


@dataclass(frozen=True, kw_only=True)
class StripWindows(Strips, common.Launched):
    """The outputs of a thread, and the threads of a block."""

    block: int = parameter("threads in a block")
    vec: int = parameter("neighbouring channels that a thread computes")
    x: int = parameter("neighbouring outputs of a row that a thread computes")
    y: int = parameter("rows of outputs that a thread computes")

    @property
    def beside(self) -> int:
        """Channels of an image."""
        return int(self.program.row_loops[-1].extent)

    @property
    def taps(self) -> int:
        return math.prod(slide.taps for slide in self.parts.window.slides)

    @cached_property
    def of_taps(self) -> tuple[str, ...]:
        """The values of taps that a thread reads."""
        used = {a for s in self.parts.pairs if isinstance(s, Map) for a in s.args} | {self.parts.window.arg}
        return tuple(x.name for x in self.parts.taps if x.name in used)

    @cached_property
    def across(self) -> int:
        """Threads along the channels, in one block: as many as have room for their values of taps."""
        most = MOST_SHARED // (4 * self.vec * self.taps * len(self.of_taps)) if self.of_taps else self.block
        all_threads = self.beside // self.vec
        return max(n for n in range(1, all_threads + 1) if all_threads % n == 0 and n <= max(1, min(most, self.block)))

    @property
    def channels(self) -> int:
        """Channels of a block."""
        return self.across * self.vec

    @property
    def at_once(self) -> int:
        """Strips of a block."""
        return self.block // self.across

    @property
    def near(self) -> int:
        """Inputs that a thread reads of one row, for each channel."""
        return (self.x - 1) * self.inner.stride + self.inner.span

    @property
    def columns(self) -> int:
        """Strips along a row of outputs."""
        return -(-self.inner.outputs // self.x)


def space(task: Task) -> Space:
    program = task.program()
    parts = WindowParts.of(program)
    widths, inner = _widths(program, parts), parts.inner
    even = [n for n in range(MOST_X, 1, -1) if inner.outputs % n == 0]
    along = tuple(
        dict.fromkeys((*even[:2], *(n for n in (8, 4, 2) if n < inner.outputs), *((1,) if inner.outputs < 3 else ())))
    )
    plain = StripWindows(task, block=256, vec=widths[0], x=along[0], y=1)
    above = plain.above
    overlaps = above is not None and above.span > above.stride
    axes = (
        Axis("block", (256, 128)),
        Axis("vec", tuple(widths)),
        Axis("x", along),
        Axis("y", (1, 2, 4) if overlaps else (1,)),
        *common.launch_axis(task),
    )
    constraints = (
        Constraint(
            "values_in_registers",
            ("vec", "x", "y"),
            f"a thread has more than {MOST_VALUES} inputs and totals: they do not stay in registers",
            lambda s: s.x == s.y == 1 or s.vec * (s.near + s.x * s.y) <= MOST_VALUES,
        ),
        rows_in_image(above),
    )
    return Space(partial(StripWindows, task), axes, constraints)


@dataclass(frozen=True)
class _Value:
    """A load or a map of the channels of a thread: a map's statement, or what a load reads."""

    name: str
    type: str = ""  #: of one channel
    statement: str = ""  #: of a map
    vector: str = ""  #: the expression of all channels
    element: str = ""  #: the expression of channel ``j`` of the vector
    value: str = ""  #: the expression of a value that all channels share


class _Context:
    """The values that the text of one schedule shows."""

    def __init__(self, schedule: StripWindows) -> None:
        self.schedule, self.parts, self.program = schedule, schedule.parts, schedule.program
        self.arguments = pointers(schedule)
        self.sources = sources(self.arguments)

    def named(self, of: T, channel: str = "channel") -> T:
        """A load or a store by the variables of the text."""
        *images, beside = self.program.row_loops
        spelled = {**self.parts.variables(), **digits("image", images), beside.symbol: channel}
        return replace(of, access=replace(of.access, spelled=tuple(spelled.items())))

    def loaded(self, of: Load) -> _Value:
        """The value of a load of neighbouring channels, or of one that they share."""
        source, index, type_ = self.sources[of.tensor], self.named(of).access.index(), value_type(of.dtype)
        if self.program.row_loops[-1].symbol not in of.access.symbols:
            return _Value(of.name, type_, value=loaded(f"{source}[{index}]", of.dtype))
        vector = f"{symbol('load_vector')}<{self.schedule.vec}>({source} + {index})"
        return _Value(of.name, type_, vector=vector, element=loaded(f"{of.name}_vector.v[j]", of.dtype))

    def near(self) -> dict[str, Any]:
        """The inputs of one row that a thread needs, loaded and computed."""
        schedule, inner, letter = self.schedule, self.parts.inner, self.parts.letter(self.parts.inner)
        last = -inner.padding + (schedule.columns * schedule.x - schedule.x) * inner.stride + schedule.near - 1
        row = schedule.inside_row
        conditions = [*(["inside_row"] if row else []), inside(f"in_{letter}", -inner.padding, last, inner.size)]
        guard = " && ".join(filter(None, conditions))
        points, filled = [], set[str]()
        for step in self.parts.points:
            if isinstance(step, Map):
                points.append(_Value(step.name, statement=statement(step, "cuda")))
                continue
            point = self.loaded(step)
            if guard and point.vector and self._moves(step):
                if is_float(step.dtype):
                    filled.add(step.name)
                    step = replace(step, fill=self.parts.window.fill)
                otherwise = common.filled_vector(step, schedule.vec)
                point = replace(point, vector=f"inside ? {point.vector} : {otherwise}")
            points.append(point)
        return {
            "inside_row": row,
            "inside": guard,
            "of_points": self._of_channels(self.parts.points),
            "of_pairs": self._of_channels(self.parts.pairs),
            "points": points,
            "near": self.parts.near,
            "guarded": [name for name in self.parts.near if guard and name not in filled],
        }

    def _moves(self, step: Load) -> bool:
        return any(slide.position in step.access.symbols for slide in self.parts.window.slides)

    def of_taps(self) -> dict[str, Any]:
        """The values of taps: how a block finds them, and where a thread reads them."""
        channel = f"(first_channel + at / {self.schedule.taps})" if self.groups > 1 else f"at / {self.schedule.taps}"
        lines, number, rest = [], "", self.schedule.taps
        for slide in self.parts.window.slides:
            rest //= slide.taps
            tap, digit = f"tap_{self.parts.letter(slide)}", f"tap / {rest}" if rest > 1 else "tap"
            lines.append(f"const int {tap} = {digit}{f' % {slide.taps}' if number else ''};")
            outer = f"({number})" if "+" in number else number
            number = f"{outer} * {slide.taps} + {tap}" if number else tap
        for step in self.parts.taps:
            load = isinstance(step, Load)
            lines.append(load_statement(self.named(step, channel), self.sources) if load else statement(step, "cuda"))
        return {"of_taps": self.schedule.of_taps, "tap_statements": lines, "tap_number": number}

    @property
    def groups(self) -> int:
        """Blocks along the channels."""
        return self.schedule.beside // self.schedule.channels

    @cached_property
    def row_values(self) -> dict[str, str]:
        """The values of each channel that are there before the window, with their C types."""
        plan = passes_of(self.program, keep=True)
        return {x.name: value_type(x.dtype) for x in (*plan.row_loads, *plan.row_maps)}

    def _of_channels(self, steps: Sequence[Load | Map]) -> list[tuple[str, str]]:
        """The row values that the steps take, with their C types."""
        used = taken(steps)
        return [(name, type_) for name, type_ in self.row_values.items() if name in used]

    def finish(self) -> dict[str, Any]:
        """Row values of each channel, and what stands behind the window: maps, and the stores."""
        plan = passes_of(self.program, keep=True)
        (only,) = plan.passes
        loads = [load_statement(self.named(x, "(channel + j)"), self.sources) for x in plan.row_loads]
        return {
            "row_values": [*self.row_values.items()],
            "row_statements": [*loads, *(statement(x, "cuda") for x in plan.row_maps)],
            "element_loads": [self.loaded(x) for x in self.program.loads if x.level == ELEMENT],
            "maps": [statement(m, "cuda") for m in only.maps if isinstance(m, Map)],
            "total": self.parts.window.name,
            "mean": self.parts.count() if self.parts.window.kind == "mean" else "",
            "stores": [
                {
                    "tensor": s.tensor,
                    "memory": DTYPES[s.dtype].memory,
                    "value": store_value(s),
                    "to": f"{written(s, self.arguments)} + {self.named(s).access.index()}",
                }
                for s in self.program.stores
            ],
        }


def render(schedule: StripWindows) -> Rendering:
    of, parts = _Context(schedule), schedule.parts
    strips, place = parts.places(schedule.above, schedule.y)
    context = {
        "vec": schedule.vec,
        "x": schedule.x,
        "y": schedule.y,
        "threads": schedule.across * schedule.at_once,
        "across": schedule.across,
        "at_once": schedule.at_once,
        "channels": schedule.channels,
        "groups": of.groups,
        "beside": schedule.beside,
        "taps": schedule.taps,
        "pitch": schedule.channels + _PAD,
        "strips": strips * schedule.columns,
        "columns": schedule.columns,
        "place_of_strip": [line.replace("long long row =", "long long image =") for line in place],
        "start": fill(parts.window),
        "kind": parts.window.kind,
        "arg": parts.window.arg,
        "pairs": [statement(step, "cuda") for step in parts.pairs if isinstance(step, Map)],
        "inner": schedule.shown(schedule.inner),
        "above": schedule.shown(schedule.above),
        "near_inputs": schedule.near,
        "lines": schedule.lines,
        "step": schedule.step,
        "in_outer_loops": schedule.in_outer_loops,
    }
    return rendering(schedule, of.arguments, context | of.near() | of.of_taps() | of.finish())


TEMPLATE = Template(
    name="strip_window", device_type="cuda", file="cuda/strip_window/strip_window.cu.j2", takes=takes,
    schedule=StripWindows, space=space, render=render, offers=frozenset({Offer.WINDOWS_ACROSS})
)  # fmt: skip
