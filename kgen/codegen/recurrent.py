"""The parts of recurrent layers that every schedule of them renders alike."""

from __future__ import annotations

from typing import Any

from kgen.codegen.c_printer import expression, pointer
from kgen.compiler.graph.library_call import BatchSize
from kgen.compiler.loops.recurrence import Recurrence


def sizes_of(of: Recurrence) -> dict[str, str]:
    """The numbers of steps and of rows of the batch in C; the one that follows the batch is ``rows``."""
    return {
        name: "rows" if isinstance(size, BatchSize) else str(size)
        for name, size in (("steps", of.steps), ("batch", of.batch))
    }


def recurrent_context(of: Recurrence, device_type: str) -> dict[str, Any]:
    """Names and statements in C for a template: the sizes, the cell, its states and the products that it reads."""
    return {
        "gates": of.cell.gates,
        "hidden": of.hidden,
        "directions": of.directions,
        "batch_first": of.batch_first,
        "products": pointer(of.products),
        "initial": [pointer(name) for name in of.states],
        "states": of.cell.states,
        "used": {arg for step in of.cell.steps for arg in step.args},
        "cell": [f"const float {x.name} = {expression(x.expression, x.args, device_type)};" for x in of.cell.steps],
        **sizes_of(of),
    }
