"""The innermost statements of a transpose, alike on every kind of device."""

from __future__ import annotations

from typing import Sequence

import sympy

from kgen.compiler.loops import Map, Program
from kgen.compiler.transposes import Transpose
from kgen.templates import Argument
from kgen.templates.arguments import sources, written
from kgen.templates.spelling import statement


def body(
    program: Program, found: Transpose, args: Sequence[Argument], names: dict[sympy.Symbol, str], device_type: str
) -> list[str]:
    """Loads of what is not turned, the maps, and the stores."""
    read_from = sources(args)
    loads = [x for x in program.loads if x not in found.turned]
    lines = [f"const float {x.name} = {read_from[x.tensor]}[{found.index(x.access, names)}];" for x in loads]
    lines += [statement(m, device_type) for m in program.steps if isinstance(m, Map)]
    return lines + [f"{written(s, args)}[{found.index(s.access, names)}] = {s.arg};" for s in program.stores]
