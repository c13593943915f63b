"""The family ``map`` in CUDA: any run of elementwise operators in one sweep over memory, vectorised."""

from __future__ import annotations

from kgen.candidate import Params
from kgen.compiler.schedule import schedule
from kgen.templates import Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers, output_axis, signature, sources, summary
from kgen.templates.cuda import common
from kgen.templates.space import Axis, Constraint, Space
from kgen.templates.spelling import row_loads, statement


def space(task: Task) -> Space:
    cols = task.plan.program(task.kernel).cols
    axes = [
        Axis("block", (256, 128, 512, 1024)),
        Axis("vec", (4, 2, 1)),
        Axis("items", (1, 2, 4)),
        Axis("index", ("tiled", "flat")),
        *output_axis(task),
        *common.launch_axis(task.hardware),
    ]

    def tile(p: Params) -> int:
        return int(p["block"]) * int(p["vec"]) * int(p["items"])

    constraints = (
        common.vector_width(cols),
        Constraint(
            "idle_threads",
            f"half of a block or more would lie beyond a row of {cols}: the flat index serves short rows",
            lambda p: p["index"] == "flat" or tile(p) < 2 * cols,
        ),
        Constraint(
            "one_block",
            "a block takes more than a row: the flat index would divide for nothing",
            lambda p: p["index"] == "tiled" or cols < 65536,
        ),
    )
    return Space(tuple(axes), constraints)


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    plan = schedule(program, keep=True)
    (sweep,) = plan.sweeps
    arguments = pointers(task, program, params)
    vec, threads, items = int(params["vec"]), int(params["block"]), int(params["items"])
    outer, inner = common.load_statements(sweep.loads, vec, sources(arguments))
    inner += [statement(m, "cuda") for m in sweep.maps]
    store_outer, store_inner, close = common.store_statements(sweep.stores, vec, program.cols, arguments)
    tile = threads * vec * items
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": program.cols,
        "threads": threads,
        "vec": vec,
        "items": items,
        "flat": params["index"] == "flat",
        "tile": tile,
        "tiles": -(-program.cols // tile),
        "exact": program.cols % tile == 0,
        "row_statements": row_loads(plan) + [statement(m, "cuda") for m in plan.row_maps],
        "outer": outer + store_outer,
        "inner": inner + store_inner,
        "close": close,
        **signature(arguments, params.get("launch") == "early"),
    }
    return Rendering(context, tuple(arguments))


TEMPLATE = Template("map", "cuda", "cuda/pointwise/pointwise.cu.j2", space, render)
