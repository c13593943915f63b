"""Windows on the CPU: rows of outputs over threads, columns of a row vectorised, those at the border apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Callable

from kgen.codegen.arguments import arguments as pointers, rendering, sources, written
from kgen.codegen.c_printer import block, fill, load_statement, row_statements, statement, store_statement
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.codegen.windowing import WindowParts, minus, outside, runs_across, times
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Load, Map, Program
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis

MOST_UNROLLED = 16  # taps along a row that are unrolled; more run in a loop

#: How a kind takes in a value: the statements for each, and the total afterwards. A NaN is found by a selection of its
#: own: g++ vectorises two plain selections, and not one that keeps NaN.
_SUM = ("total += {0};",), "total"
_TAKE = {
    "max": (
        ("total = {0} > total ? {0} : total;", "found = {0} != {0} ? {0} : found;"),
        "found != found ? found : total",
    ),
    "sum": _SUM,
    "mean": _SUM,
}


@dataclass(frozen=True, kw_only=True)
class Windows(common.Vectorised):
    tile: int = parameter("elements that are worked on at a time")


def takes(program: Program) -> bool:
    """Programs with one window, and no value within an index. Where channels lie side by side, vectors go across
    them."""
    return bool(program.windows) and not (program.contraction or program.looks_up or runs_across(program))


def space(task: Task) -> Space:
    axes = (Axis("tile", (1024, 256, 4096)), *vector_axis(task.hardware))
    return Space(
        partial(Windows, task), axes, (common.tile_in_row(task.program().windows[0].slides[-1].outputs, least=256),)
    )


def render(schedule: Windows) -> Rendering:
    program = schedule.program
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    args = pointers(schedule)
    parts = WindowParts.of(program)
    read_from, inner = sources(args), parts.inner
    letter, (take, result), tile = parts.letter(inner), _TAKE[parts.window.kind], min(schedule.tile, inner.outputs)

    def step(of: Load | Map) -> str:
        if isinstance(of, Map):
            return statement(of, "cpu")
        return load_statement(parts.named(of), read_from)

    def taps(head: list[str], guard: str) -> list[str]:
        """The loop over the taps along a row, those outside left out where there is a ``guard``."""
        at = (
            f"const int in_{letter} = out_{letter}{times(inner.stride)} + "
            f"tap_{letter}{times(inner.dilation)}{minus(inner.padding)};"
        )
        body = [*map(step, parts.window.body), *(line.format(parts.window.arg) for line in take)]
        lines = [at, *([f"if ({guard}) continue;"] if guard else []), *body]
        total = f"totals[out_{letter} - begin]"
        loop = block(f"for (int tap_{letter} = 0; tap_{letter} < {inner.taps}; ++tap_{letter})", lines)
        return [
            *head,
            f"float total = {total}{', found = 0.0f' if parts.window.kind == 'max' else ''};",
            *loop,
            f"{total} = {result};",
        ]

    reduction = _by_lines(parts, tile, step) if parts.lines else _by_windows(parts, taps)
    strips, place = parts.places()
    mean = f" / static_cast<float>({parts.count()})" if parts.window.kind == "mean" else ""
    context = {
        "width": inner.outputs,
        "letter": letter,
        "tile": tile,
        "strips": strips,
        "start": fill(parts.window),
        "place": place,
        "row_statements": row_statements(plan, "cpu"),
        "reduction": reduction,
        "finish": [
            f"const float {parts.window.name} = totals[out_{letter} - begin]{mean};",
            *(step(x) for x in program.loads if x.level == "element"),
            *(statement(m, "cpu") for m in only.maps if isinstance(m, Map)),
            *(store_statement(parts.named(s), written(s, args)) for s in program.stores),
        ],
    }
    return rendering(schedule, args, context)


def _by_windows(parts: WindowParts, taps: Callable[[list[str], str], list[str]]) -> list[str]:
    """Each output by itself: those whose window lies inside in vectors, those at the border apart."""
    inner, letter = parts.inner, parts.letter(parts.inner)
    # Outputs from `low` up to `high` have all their taps inside.
    low = min(-(-inner.padding // inner.stride), inner.outputs)
    high = max(low, min(inner.outputs, (inner.size + inner.padding - inner.span) // inner.stride + 1))
    unrolled = [f"#pragma GCC unroll {inner.taps}"] if 1 < inner.taps <= MOST_UNROLLED else []
    body = taps([], "")
    at = next(n for n, line in enumerate(body) if line.startswith("for"))
    whole = [*body[:at], *unrolled, *body[at:]]
    first = f"begin > {low} ? begin : {low}" if low else "begin"
    last = f"end < {high} ? end : {high}" if high < inner.outputs else "end"
    reduction = [
        "#pragma omp simd",
        *block(f"for (int out_{letter} = {first}; out_{letter} < ({last}); ++out_{letter})", whole),
    ]
    if low or high < inner.outputs:
        border = taps(
            [
                f"if (out_{letter} >= {low} && out_{letter} < {high}) out_{letter} = {high};",
                f"if (out_{letter} >= end) break;",
            ],
            outside(f"in_{letter}", -1, inner.size, inner.size),
        )
        reduction += block(f"for (int out_{letter} = begin; out_{letter} < end; ++out_{letter})", border)
    return _outer(parts, reduction)


def _by_lines(parts: WindowParts, tile: int, step: Callable[[Load | Map], str]) -> list[str]:
    """A line of inputs reduced over the outer taps first, with what counts outside at its ends; then its windows."""
    inner, letter, (take, result) = parts.inner, parts.letter(parts.inner), _TAKE[parts.window.kind]
    size, found = (tile - 1) * inner.stride + inner.span, ", found = 0.0f" if parts.window.kind == "max" else ""
    at = f"in_{letter} - first"
    points = [
        *map(step, parts.window.body),
        f"float total = line[{at}]{found};",
        *(t.format(parts.window.arg) for t in take),
        f"line[{at}] = {result};",
    ]
    reduced = [
        "#pragma omp simd",
        *block(f"for (int in_{letter} = first > 0 ? first : 0; in_{letter} < last; ++in_{letter})", points),
    ]
    value = f"line[(out_{letter} - begin){times(inner.stride)} + tap_{letter}{times(inner.dilation)}]"
    unrolled = [f"#pragma GCC unroll {inner.taps}"] if 1 < inner.taps <= MOST_UNROLLED else []
    loop = block(
        f"for (int tap_{letter} = 0; tap_{letter} < {inner.taps}; ++tap_{letter})",
        [f"const float value = {value};", *(t.format("value") for t in take)],
    )
    outputs = [
        f"float total = {fill(parts.window)}{found};",
        *unrolled,
        *loop,
        f"totals[out_{letter} - begin] = {result};",
    ]
    behind = f"first + (end - begin - 1){times(inner.stride)} + {inner.span}"
    return [
        f"alignas(64) float line[{size}];",
        f"for (int at = 0; at < {size}; ++at) line[at] = {fill(parts.window)};",
        f"const int first = begin{times(inner.stride)}{minus(inner.padding)};",
        f"const int last = {behind} < {inner.size} ? {behind} : {inner.size};",
        *_outer(parts, reduced),
        "#pragma omp simd",
        *block(f"for (int out_{letter} = begin; out_{letter} < end; ++out_{letter})", outputs),
    ]


def _outer(parts: WindowParts, body: list[str]) -> list[str]:
    """The lines within the loops over the outer taps."""
    for slide in reversed(parts.outer):
        body = parts.outer_loop(slide, body)
    return body


TEMPLATE = Template(
    name="window", device_type="cpu", file="cpu/window/window.cpp.j2", takes=takes, schedule=Windows, space=space,
    render=render
)  # fmt: skip
