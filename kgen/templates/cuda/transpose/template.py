"""Transposes in CUDA: tiles in shared memory, so that operands and results are both read and written along memory."""

from __future__ import annotations

from kgen.candidate import Params
from kgen.codegen.arguments import arguments as pointers, signature, sources, summary
from kgen.codegen.c_printer import load_value
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Rendering, Task, Template
from kgen.codegen.transposed import body
from kgen.compiler.graph.dtypes import value_nbytes, value_type
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.transposes import transpose_of, wide
from kgen.templates.cuda import common

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "tile": "elements that are worked on at a time",
    "block": "threads in a block",
    "launch": "whether the kernel is launched while the one before it ends",
}

_SHARED_BYTES = 48 << 10  # bytes of static shared memory that a block may have


def takes(program: Program) -> bool:
    """Programs of maps that read along another axis than they write along."""
    return transpose_of(program) is not None


def space(task: Task) -> Space:
    found = transpose_of(task.plan.program(task.kernel))
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
            "the tiles of all operands do not fit the shared memory of a block",
            lambda p: nbytes * int(p["tile"]) * (int(p["tile"]) + 1) <= _SHARED_BYTES,
        ),
        Constraint(
            "tile_in_axes",
            "a tile is twice as long as one of the axes: most of it would be idle",
            lambda p: int(p["tile"]) < 2 * min(int(found.along.extent), int(found.across.extent)) or p["tile"] == 32,
        ),
    )
    return Space(axes, constraints)


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    found = transpose_of(program)
    assert found is not None
    args = pointers(task, program, params)
    tile, threads = int(params["tile"]), int(params["block"])
    along, across = int(found.along.extent), int(found.across.extent)
    along_tiles = -(-along // tile)
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
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
            {"name": x.name, "type": value_type(x.dtype), "value": load_value(found.spelled(x), sources(args))} for x in found.turned
        ],
        "body": body(program, found, args, "cuda"),
        **signature(args, params.get("launch") == "early"),
    }
    return Rendering(context, tuple(args))


TEMPLATE = Template(
    name="transpose",
    device_type="cuda",
    file="cuda/transpose/transpose.cu.j2",
    takes=takes,
    space=space,
    render=render,
    parameters=PARAMETERS,
)
