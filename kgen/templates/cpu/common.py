"""What the CPU families share: axes of the compiler, and the statements of a vectorised loop over columns."""

from __future__ import annotations

from typing import Sequence

from kgen.candidate import Params
from kgen.compiler.loops import Load
from kgen.hardware import Hardware
from kgen.templates.space import Axis, Constraint
from kgen.templates.spelling import element_index

#: What every kernel of a file is compiled with. No flag here changes how NaN and infinities behave.
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp")


def vector_axis(hardware: Hardware) -> list[Axis]:
    """Width of the vectors that the compiler prefers, where the CPU has a choice. One for the whole file."""
    widths = tuple(sorted((b for b in hardware.vector_bits if b >= 256), reverse=True))
    return [Axis("vector_bits", widths)] if len(widths) > 1 else []


def tile_in_row(cols: int, least: int) -> Constraint:
    """Tiles of more than a row are alike, so the smallest of them stands for all; ``least`` is always allowed."""
    return Constraint(
        "tile_in_row",
        f"a tile this large holds a whole row of {cols} twice: a smaller one does the same",
        lambda p: int(p["tile"]) < 2 * cols or int(p["tile"]) == least,
    )


def flags(params: Sequence[Params]) -> list[str]:
    """Compiler flags of a file whose kernels have these parameters."""
    widths = {p["vector_bits"] for p in params if "vector_bits" in p}
    return [*FLAGS, *(f"-mprefer-vector-width={w}" for w in sorted(widths)[-1:])]


def load_statements(loads: Sequence[Load], read_from: dict[str, str]) -> list[str]:
    return [
        f"const float {x.name} = {read_from[x.tensor]}[{element_index(x)}];" for x in loads if x.level == "element"
    ]
