"""The innermost statements of a transpose, alike on every kind of device."""

from __future__ import annotations

from typing import Sequence

from kgen.codegen.arguments import sources, written
from kgen.codegen.c_printer import load_statement, statement, store_statement
from kgen.codegen.template import Argument
from kgen.compiler.loops.program import Map, Program
from kgen.compiler.loops.transposes import Transpose


def body(program: Program, found: Transpose, args: Sequence[Argument], device_type: str) -> list[str]:
    """Loads of what is not turned, the maps, and the stores."""
    lines = [load_statement(found.spelled(x), sources(args)) for x in program.loads if x not in found.turned]
    lines += [statement(m, device_type) for m in program.steps if isinstance(m, Map)]
    return lines + [store_statement(found.spelled(s), written(s, args)) for s in program.stores]
