"""Transposes in CUDA: tiles in shared memory, so that operands and results are both read and written along memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import load_value
from kgen.codegen.space import Axis, Constraint, Space, alike
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.codegen.transposed import body
from kgen.compiler.graph.dtypes import value_nbytes, value_type
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.transposes import transpose_of, wide
from kgen.templates.cuda import common

_SHARED_BYTES = 48 << 10  # bytes of static shared memory that a block may have


@dataclass(frozen=True, kw_only=True)
class Transposed(common.Launched):
    tile: int = parameter("elements that are worked on at a time")
    block: int = parameter("threads in a block")


def takes(program: Program) -> bool:
    """Programs of maps that read along another axis than they write along."""
    return transpose_of(program) is not None


def space(task: Task) -> Space:
    found = transpose_of(task.program())
    assert found is not None
    nbytes = sum(value_nbytes(x.dtype) for x in found.turned)
    axes = (
        Axis("tile", (32, 64)),
        Axis("block", (256, 512, 1024)),
        *common.launch_axis(task),
    )
    constraints = (
        Constraint(
            "shared_memory",
            ("tile",),
            "the tiles of all operands do not fit the shared memory of a block",
            lambda s: nbytes * s.tile * (s.tile + 1) <= _SHARED_BYTES,
        ),
        alike(
            "tile_in_axes",
            "tile",
            min(int(found.along.extent), int(found.across.extent)),
            32,
            "a tile is twice as long as one of the axes: most of it would be idle",
        ),
    )
    return Space(partial(Transposed, task), axes, constraints)


def render(schedule: Transposed) -> Rendering:
    program = schedule.program
    found = transpose_of(program)
    assert found is not None
    args = pointers(schedule)
    tile, threads = schedule.tile, schedule.block
    along, across = int(found.along.extent), int(found.across.extent)
    along_tiles = -(-along // tile)
    context = {
        "tile": tile,
        "threads": threads,
        "lines": threads // tile,
        "along": along,
        "across": across,
        "along_tiles": along_tiles,
        "tiles": along_tiles * -(-across // tile),
        "exact": along % tile == 0 and across % tile == 0,
        "index": "long long" if wide(program) else "int",
        "count": found.count(program.cols),
        "outer": bool(found.outer),
        "turned": [
            {"name": x.name, "type": value_type(x.dtype), "value": load_value(found.spelled(x), sources(args))}
            for x in found.turned
        ],
        "body": body(program, found, args, "cuda"),
    }
    return rendering(schedule, args, context)


TEMPLATE = Template(
    name="transpose", device_type="cuda", file="cuda/transpose/transpose.cu.j2", takes=takes, schedule=Transposed,
    space=space, render=render
)  # fmt: skip
