"""Outer reductions in CUDA: the moments of every column over the batch, behind maps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import row_statements, statement
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.templates.cuda import common


@dataclass(frozen=True, kw_only=True)
class OuterReduction(common.Launched):
    block: int = parameter("threads in a block")
    combine: str = parameter("how partial sums are put together")
    vec: int = parameter("elements in one load or store")
    splits: int = parameter("parts that a sum is split into, for more blocks")

    @property
    def lines(self) -> int:
        """Rows that a block takes at once: one for each of its warps."""
        return self.block // 32

    @property
    def groups(self) -> int:
        """Groups of columns, each of 32 vectors."""
        return -(-self.program.cols // (32 * self.vec))


def takes(program: Program) -> bool:
    """Programs that end with moments over the batch and store nothing else."""
    return (
        program.moments_of is not None
        and program.floats
        and program.plain
        and not (program.contraction or program.stores)
    )


def space(task: Task) -> Space:
    program = task.program()
    cols, rows = program.cols, program.rows
    # One block for each group of columns would leave half of the chip idle. Several took 2.7% less of a whole problem's
    # time.
    few = cols <= 32 * task.hardware.multiprocessors
    axes = (
        Axis("block", (1024, 512, 256, 128)),
        Axis(
            "combine",
            ("last_block", "one_block", "atomics", "two_kernels")
            if few
            else ("one_block", "last_block", "atomics", "two_kernels"),
        ),
        Axis("vec", (4, 8, 2, 1) if few and program.narrow else (8, 2, 4, 1) if program.narrow else (2, 4, 1)),
        Axis("splits", (4, 8, 1, 16, 32) if few else (1, 8, 4, 16, 32)),
        *common.launch_axis(task),
    )
    constraints = (
        Constraint(
            "splits_to_combine",
            ("splits", "combine"),
            "one block takes all rows, and then there is nothing to combine; several are combined",
            lambda s: (s.splits == 1) == (s.combine == "one_block"),
        ),
        Constraint(
            "threads_to_merge",
            ("block", "vec"),
            "the block's first threads merge its lines, one for each column: it needs as many threads as columns",
            lambda s: s.block >= 32 * s.vec,
        ),
        common.vector_width(program.col_size),
        Constraint(
            "rows_for_all",
            ("block", "splits"),
            f"{rows} rows are too few to give every line of every block one",
            lambda s: s.lines * s.splits <= max(rows, s.lines),
        ),
        Constraint(
            "shared_memory",
            ("block", "vec"),
            "the lines' moments would need more shared memory than a block has without asking",
            lambda s: (2 * 32 * s.vec + 1) * s.lines * 4 <= 48 << 10,
        ),
        Constraint(
            "too_many_blocks",
            ("block", "vec", "splits"),
            "more blocks than the chip can run in four rounds: merging them costs more than they win",
            lambda s: s.groups * s.splits * s.block <= 4 * 2048 * max(task.hardware.multiprocessors, 1),
        ),
    )
    return Space(partial(OuterReduction, task), axes, constraints)


def render(schedule: OuterReduction) -> Rendering:
    program = schedule.program
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    moments, extra = common.finishing(schedule.task)
    vec, splits, combine = schedule.vec, schedule.splits, schedule.combine
    cols, groups = program.cols, schedule.groups
    counters = 2 * cols if combine == "atomics" else 3 * cols * splits
    arguments = pointers(schedule)
    workspace = [] if combine == "one_block" else [Argument("workspace", "workspace", size=str(counters + groups))]
    outer, inner = common.load_statements(only.loads, vec, sources(arguments))
    maps = [statement(m, "cuda") for m in only.maps]
    # One column alone, as the thread that finishes it reads it.
    _, single = common.load_statements(only.loads, 1, sources(arguments))
    context = {
        "cols": cols,
        "threads": schedule.block,
        "lines": schedule.lines,
        "vec": vec,
        "splits": splits,
        "groups": groups,
        "combine": combine,
        "counters": counters,
        "cleared_from": 0 if combine == "atomics" else counters,
        "cleared": counters + groups if combine == "atomics" else groups,
        "result": program.moments_of,
        "row_statements": row_statements(plan, "cuda"),
        "outer": outer,
        "inner": inner + maps,
        "single": single + maps,
        "exact": cols % (32 * vec) == 0,
        **moments,
    }
    return rendering(schedule, [*arguments, *extra, *workspace], context)


TEMPLATE = Template(
    name="outer_reduction", device_type="cuda", file="cuda/outer_reduction/outer_reduction.cu.j2", takes=takes,
    schedule=OuterReduction, space=space, render=render
)  # fmt: skip
