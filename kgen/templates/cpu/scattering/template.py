"""Scatters on the CPU, without atomic operations: each thread takes in what has a place in its own part of the
results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import output_pointer, row_statements, statement
from kgen.codegen.scattering import begun, taken
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Program, Scatter
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis


@dataclass(frozen=True, kw_only=True)
class Scattering(common.Vectorised):
    parts: int = parameter("parts of the results that threads share")


_TAKE = {
    "sum": "{0} += {1};", "product": "{0} *= {1};", "last": "{0} = {1};",
    "max": "{0} = {1} > {0} || {1} != {1} ? {1} : {0};", "min": "{0} = {1} < {0} || {1} != {1} ? {1} : {0};",
}  # fmt: skip


def takes(program: Program) -> bool:
    """Programs of scatters: values of one element are taken in one after the other."""
    return bool(program.scatters) and isinstance(program.col_size, int)


def space(task: Task) -> Space:
    threads = task.hardware.threads
    parts = Axis("parts", tuple(dict.fromkeys((threads, 4 * threads, 1))))
    return Space(partial(Scattering, task), (parts, *vector_axis(task.hardware)))


def render(schedule: Scattering) -> Rendering:
    program = schedule.program
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    args = pointers(schedule)
    body = common.load_statements(only.loads, sources(args)) + [statement(m, "cpu") for m in only.maps]
    made = {step.name for step in (*only.loads, *only.maps)}
    sizes = dict.fromkeys((s.places[0], s.size) for s in program.scatters)
    owns = {place: f"own_{number}" for number, (place, _) in enumerate(sizes, 1)}
    by_row = not made & owns.keys()
    rows = [_taken_in(s, owns, False) for s in program.scatters if s.level != ELEMENT]
    alone = by_row and len(owns) == 1  # rows of other parts are left out
    body += [f"const bool {owns[place]} = {_owned(place, own)};" for place, own in owns.items() if place in made]
    body += [_taken_in(s, owns, alone) for s in program.scatters if s.level == ELEMENT]
    context = {
        "cols": program.cols,
        "parts": schedule.parts,
        "begins": [begun(program, s) for s in program.scatters],
        "limits": [(owns[place], size) for place, size in sizes],
        "row_statements": [
            *row_statements(plan, "cpu"),
            *(f"const bool {own} = {_owned(place, own)};" for place, own in owns.items() if place not in made),
        ],
        "skips": " || ".join(owns.values()) if by_row else "",
        "taken_by_row": rows,
        "apart": by_row,
        "body": body if any(s.level == ELEMENT for s in program.scatters) else [],
    }  # fmt: skip
    return rendering(schedule, args, context)


def _owned(place: str, own: str) -> str:
    return f"{place} >= {own}_first && {place} < {own}_last"


def _taken_in(scatter: Scatter, owns: dict[str, str], alone: bool) -> str:
    """The statement that takes a value in, where its place is the part's own."""
    element = f"{output_pointer(scatter.tensor)}[{scatter.access.index()}]"
    line = _TAKE[scatter.kind].format(element, taken(scatter))
    return line if alone else f"if ({owns[scatter.places[0]]}) {line}"


TEMPLATE = Template(
    name="scattering", device_type="cpu", file="cpu/scattering/scattering.cpp.j2", takes=takes, schedule=Scattering,
    space=space, render=render
)  # fmt: skip
