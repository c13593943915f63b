"""Common parts of the CPU templates: the statements of a vectorised loop over columns."""

from __future__ import annotations

import re
from typing import Sequence

from kgen.compiler.loops import Load, Program
from kgen.templates.space import Constraint
from kgen.templates.spelling import load_statement


def tile_in_row(cols: int, least: int) -> Constraint:
    """Tiles of more than a row are alike, so the smallest of them stands for all; ``least`` is always allowed."""
    return Constraint(
        "tile_in_row",
        f"a tile this large holds a whole row of {cols} twice: a smaller one does the same",
        lambda p: int(p["tile"]) < 2 * cols or int(p["tile"]) == least,
    )


#: How the results of a later part of a row, ``{0o}``, ... are merged into those of the parts before it.
_MERGES = {
    "sum": "{0} += {0o};",
    "product": "{0} *= {0o};",
    "max": "{0} = {0o} > {0} || {0o} != {0o} ? {0o} : {0};",
    "min": "{0} = {0o} < {0} || {0o} != {0o} ? {0o} : {0};",
    "argmax": "if ({0o} > {0} || ({0o} != {0o} && {0} == {0})) {0} = {0o}, {1} = {1o};",
    "argmin": "if ({0o} < {0} || ({0o} != {0o} && {0} == {0})) {0} = {0o}, {1} = {1o};",
    "moments": "if ({0o} > 0.0f) {2} += {2o} + ({1o} - {1}) * ({1o} - {1}) * {0} * ({0o} / ({0} + {0o})), "
               "{1} += ({1o} - {1}) * ({0o} / ({0} + {0o})), {0} += {0o};",
}  # fmt: skip


def merges(program: Program) -> bool:
    """Whether what parts of a row find can be merged."""
    return program.collapses and all(r.kind in _MERGES for r in program.reductions)


def merged(kind: str, results: Sequence[str], others: Sequence[str]) -> str:
    """The statement that merges what a later part found."""
    text = re.sub(r"\{(\d)o\}", lambda m: others[int(m[1])], _MERGES[kind])
    return text.format(*results)


def load_statements(loads: Sequence[Load], read_from: dict[str, str]) -> list[str]:
    return [load_statement(x, read_from) for x in loads if x.level == "element"]
