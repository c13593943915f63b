"""Recurrent layers on the CPU: one parallel region takes all steps of a layer, with packed weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering
from kgen.codegen.c_printer import output_pointer, pointer
from kgen.codegen.recurrent import recurrent_context, sizes_of
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.space import Space
from kgen.codegen.template import Argument, Filled, Rendering, Task, Template
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.recurrence import CELL, HIDDEN, OUTPUT
from kgen.templates.cpu import common
from kgen.templates.cpu.target import vector_axis


@dataclass(frozen=True, kw_only=True)
class Recurrent(common.Vectorised):
    """The schedule of one layer. The device's vectors decide the rest."""


def takes(program: Program) -> bool:
    """Programs of one recurrent layer in float32: in a wave of several, cores would multiply a few rows at a time."""
    of = program.recurrence
    return of is not None and of.depth == 1 and of.dtype == "float32"


def space(task: Task) -> Space:
    return Space(partial(Recurrent, task), tuple(vector_axis(task.hardware)))


def render(schedule: Recurrent) -> Rendering:
    task, of = schedule.task, schedule.program.recurrence
    assert of is not None
    width, most = common.panel(task.hardware)
    batch = of.batch if isinstance(of.batch, int) else schedule.program.rows
    at_once = -(-batch // -(-batch // most))  # rows of the batch come in equal groups
    panels = -(-of.hidden // width)
    pack = f"{task.kernel.name}_pack"
    weights = [layer.weight for layer in of.layers]
    packed = {
        weight: Argument(
            f"{weight}_packed", "prepared", weight, str(panels * width * of.rows), filled=Filled(pack, panels)
        )
        for weight in weights
    }
    args = [packed.get(a.tensor, a) if a.role == "in" else a for a in pointers(schedule)]
    memory = of.directions * of.hidden * (1 + len(of.cell.states))
    args.append(Argument("workspace", "workspace", size=f"{memory} * {sizes_of(of)['batch']}"))
    last = [("steps % 2 * elements", HIDDEN), ("2 * elements", CELL)]
    context = {
        **recurrent_context(of, "cpu"),
        "pack": pack,
        "width": width,
        "at_once": at_once,
        "panels": panels,
        "packed": [packed[weight].name for weight in weights],
        "biases": [pointer(layer.bias) for layer in of.layers if layer.bias],
        "begin": f"{of.first * of.hidden} * batch",
        "output": output_pointer(of.result(OUTPUT)) if of.result(OUTPUT) else "",
        "last": [(memory, output_pointer(of.result(kind))) for memory, kind in last if of.result(kind)],
    }
    return rendering(schedule, args, context)


TEMPLATE = Template(
    name="recurrence", device_type="cpu", file="cpu/recurrence/recurrence.cpp.j2", takes=takes, schedule=Recurrent,
    space=space, render=render, copied=lambda program: [layer.weight for layer in program.recurrence.layers],
    arithmetic=lambda params: Arithmetic("float32"),
)  # fmt: skip
