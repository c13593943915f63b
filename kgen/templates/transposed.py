"""The innermost statements of a transpose, alike on every kind of device."""

from __future__ import annotations

from typing import Sequence

from kgen.compiler.loops import Map, Program
from kgen.compiler.transposes import Transpose
from kgen.templates import Argument
from kgen.templates.arguments import sources, written
from kgen.templates.spelling import load_statement, statement, store_statement


def body(program: Program, found: Transpose, args: Sequence[Argument], device_type: str) -> list[str]:
    """Loads of what is not turned, the maps, and the stores."""
    lines = [load_statement(found.spelled(x), sources(args)) for x in program.loads if x not in found.turned]
    lines += [statement(m, device_type) for m in program.steps if isinstance(m, Map)]
    return lines + [store_statement(found.spelled(s), written(s, args)) for s in program.stores]
