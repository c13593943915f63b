"""Outer reductions in CUDA: the moments of every column over the batch, behind maps."""

from __future__ import annotations

from kgen.candidate import Params
from kgen.codegen.arguments import arguments as pointers, signature, sources, summary
from kgen.codegen.c_printer import row_loads, statement
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Argument, Rendering, Task, Template
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.templates.cuda import common

#: The axes of the spaces, and what each means.
PARAMETERS = {
    "block": "threads in a block",
    "combine": "how partial sums are put together",
    "vec": "elements in one load or store",
    "splits": "parts that a sum is split into, for more blocks",
    "launch": "whether the kernel is launched while the one before it ends",
}


def takes(program: Program) -> bool:
    """Programs that end with moments over the batch and store nothing else."""
    return program.moments_of is not None and program.floats and program.plain and not (program.contraction or program.stores)


def space(task: Task) -> Space:
    program = task.plan.program(task.kernel)
    cols, rows = program.cols, program.rows
    # One block for each group of columns would leave half of the chip idle. Several took 2.7% less of a whole problem's time.
    few = cols <= 32 * task.hardware.multiprocessors
    axes = (
        Axis("block", (1024, 512, 256, 128)),
        Axis("combine", ("last_block", "one_block", "atomics", "two_kernels") if few else ("one_block", "last_block", "atomics", "two_kernels")),
        Axis("vec", (4, 8, 2, 1) if few and program.narrow else (8, 2, 4, 1) if program.narrow else (2, 4, 1)),
        Axis("splits", (4, 8, 1, 16, 32) if few else (1, 8, 4, 16, 32)),
        *common.launch_axis(task),
    )

    def lines(p: Params) -> int:
        return int(p["block"]) // 32

    constraints = (
        Constraint(
            "splits_to_combine",
            "one block takes all rows, and then there is nothing to combine; several are combined",
            lambda p: (p["splits"] == 1) == (p["combine"] == "one_block"),
        ),
        Constraint(
            "threads_to_merge",
            "the block's first threads merge its lines, one for each column: it needs as many threads as columns",
            lambda p: int(p["block"]) >= 32 * int(p["vec"]),
        ),
        common.vector_width(program.col_size),
        Constraint(
            "rows_for_all",
            f"{rows} rows are too few to give every line of every block one",
            lambda p: lines(p) * int(p["splits"]) <= max(rows, lines(p)),
        ),
        Constraint(
            "shared_memory",
            "the lines' moments would need more shared memory than a block has without asking",
            lambda p: (2 * 32 * int(p["vec"]) + 1) * lines(p) * 4 <= 48 << 10,
        ),
        Constraint(
            "too_many_blocks",
            "more blocks than the chip can run in four rounds: merging them costs more than they win",
            lambda p: -(-cols // (32 * int(p["vec"]))) * int(p["splits"]) * int(p["block"])
            <= 4 * 2048 * max(task.hardware.multiprocessors, 1),
        ),
    )
    return Space(axes, constraints)


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    moments, extra = common.finishing(task)
    vec, threads, splits = int(params["vec"]), int(params["block"]), int(params["splits"])
    combine = str(params["combine"])
    cols, groups = program.cols, -(-program.cols // (32 * vec))
    counters = 2 * cols if combine == "atomics" else 3 * cols * splits
    arguments = pointers(task, program, params)
    workspace = [] if combine == "one_block" else [Argument("workspace", "workspace", size=str(counters + groups))]
    outer, inner = common.load_statements(only.loads, vec, sources(arguments))
    maps = [statement(m, "cuda") for m in only.maps]
    # One column alone, as the thread that finishes it reads it.
    _, single = common.load_statements(only.loads, 1, sources(arguments))
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "cols": cols,
        "threads": threads,
        "lines": threads // 32,
        "vec": vec,
        "splits": splits,
        "groups": groups,
        "combine": combine,
        "counters": counters,
        "cleared_from": 0 if combine == "atomics" else counters,
        "cleared": counters + groups if combine == "atomics" else groups,
        "result": program.moments_of,
        "row_statements": row_loads(plan) + [statement(m, "cuda") for m in plan.row_maps],
        "outer": outer,
        "inner": inner + maps,
        "single": single + maps,
        "exact": cols % (32 * vec) == 0,
        **moments,
        **signature([*arguments, *extra, *workspace], params.get("launch") == "early"),
    }
    return Rendering(context, (*arguments, *extra, *workspace))


TEMPLATE = Template(
    name="outer_reduction",
    device_type="cuda",
    file="cuda/outer_reduction/outer_reduction.cu.j2",
    takes=takes,
    space=space,
    render=render,
    parameters=PARAMETERS,
)
