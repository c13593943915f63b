"""Products of small matrices in CUDA, with the maps and gathers on both sides: each matrix lies in shared memory as a
whole.

Operands are float32, and split into two float16 terms in shared memory. A few warps multiply a matrix with tensor cores
(mma.sync of sm_80), and leave the sums in shared memory. Any element of the results may read any of the sums of its
matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import pointer, row_statements
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Rendering, Task, Template, parameter
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Load, Program, SmallProduct
from kgen.templates.cuda import common

_MOST_BYTES = 48 << 10  # of shared memory that every block has without asking
_MOST_SUMS = 64  # registers of a thread for sums
_MOST_HELD = 64  # and for elements of an operand, until their maximum is known
_WARPS, _BLOCKS = 8, 4  # of a multiprocessor, that hide the time of loads and barriers (assumed)
_SUMS = "sums"  # as a tensor of the kernel

lacks = common.lacking("products of small matrices need the tensor cores of sm_80", 80)


@dataclass(frozen=True, kw_only=True)
class Small(common.Launched):
    warps: int = parameter("warps that multiply one matrix")
    matrices: int = parameter("matrices of a block")

    @cached_property
    def of(self) -> SmallProduct:
        found = self.program.product
        assert found is not None, "the schedule's programs are products of small matrices"
        return found

    @property
    def row_tiles(self) -> int:
        """Tiles of 16 rows."""
        return -(-self.of.rows // 16)

    @property
    def col_tiles(self) -> int:
        """Pairs of tiles of 8 columns."""
        return -(-self.of.cols // 16)

    @property
    def line(self) -> int:
        """Elements of a line of terms: 16 bytes more than a whole number of steps, so that eight lines lie in different
        banks."""
        return -(-self.of.k // 16) * 16 + 8

    @property
    def once(self) -> bool:
        """Whether both operands are one."""
        return self.of.left == self.of.right and self.of.turned[0] == self.of.turned[1]

    @property
    def lines(self) -> int:
        """Lines of a matrix's operands."""
        return max(self.of.rows, self.of.cols) if self.once else self.of.rows + self.of.cols

    @property
    def floats(self) -> int:
        """Floats of shared memory for a matrix: the terms of both operands, then the sums."""
        lines = 16 * (max(self.row_tiles, self.col_tiles) if self.once else self.row_tiles + self.col_tiles)
        return -(-max(lines * self.line, self.of.rows * self.of.cols) // 4) * 4

    @property
    def sums(self) -> int:
        """Registers of a thread for sums."""
        return -(-self.row_tiles // self.warps) * self.col_tiles * 8

    @property
    def held(self) -> int:
        """Elements of an operand that a thread holds."""
        return -(-max(self.of.rows, self.of.cols) * self.of.k // (32 * self.warps))


def takes(program: Program) -> bool:
    """Products of small matrices."""
    return program.product is not None


def space(task: Task) -> Space[Small]:
    many, rows = task.hardware.multiprocessors, task.program().rows
    # Few matrices leave multiprocessors idle, unless several warps share each, and each has a block of its own.
    warps = sorted((1, 2, 4), key=lambda n: n if rows * n >= _WARPS * many else 8 - n)
    matrices = sorted((4, 2, 1), key=lambda n: -n if rows >= _BLOCKS * n * many else n)
    axes = (Axis("warps", tuple(warps)), Axis("matrices", tuple(matrices)), *common.launch_axis(task))
    constraints = (
        Constraint(
            "shared_memory",
            ("warps", "matrices"),
            "the matrices do not fit a block's shared memory",
            lambda s: 4 * (s.floats + s.lines) * s.matrices <= _MOST_BYTES,
        ),
        Constraint(
            "registers",
            ("warps",),
            "an operand, or its sums, do not fit the registers of so few warps",
            lambda s: s.sums <= _MOST_SUMS and s.held <= _MOST_HELD,
        ),
        Constraint(
            "idle_warps",
            ("warps",),
            "a warp would have no tile of rows",
            lambda s: s.warps == 1 or s.warps <= s.row_tiles,
        ),
        Constraint(
            "threads",
            ("warps", "matrices"),
            "a block has few warps for so many matrices, or many for one",
            lambda s: 2 <= s.warps * s.matrices <= 8,
        ),
    )
    return Space(partial(Small, task), axes, constraints)


@dataclass(frozen=True)
class Operand:
    """How the elements of an operand are made: statements of a vector and of its elements, and of one element alone."""

    name: str
    lines: int
    vec: int
    turned: bool
    value: str
    outer: list[str]
    inner: list[str]
    alone: list[str]


def render(schedule: Small) -> Rendering:
    of = schedule.of
    args = pointers(schedule)
    names = ("left",) if schedule.once else ("left", "right")
    operands = [
        _operand(name, part, lines, of.k, turned, sources(args))
        for name, part, lines, turned in zip(names, of.parts, (of.rows, of.cols), of.turned)
    ]
    context = {
        "of": of,
        "once": schedule.once,
        "warps": schedule.warps,
        "matrices": schedule.matrices,
        "row_tiles": schedule.row_tiles,
        "col_tiles": schedule.col_tiles,
        "line": schedule.line,
        "floats": schedule.floats,
        "lines_of_matrix": schedule.lines,
        "operands": operands,
        "behind": _behind(of, schedule, sources(args)),
        "results": of.behind.cols,
    }
    return rendering(schedule, args, context)


def _statements(program: Program, vec: int, read_from: dict[str, str]) -> tuple[list[str], list[str]]:
    """Statements in front of a vector's elements, and statements of each element."""
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    outer, inner = common.load_statements(only.loads, vec, read_from)
    before, maps = common.map_statements(only, vec)
    return [*row_statements(plan, "cuda"), *outer, *before], [*inner, *maps]


def _operand(name: str, program: Program, lines: int, k: int, turned: bool, read_from: dict[str, str]) -> Operand:
    vec = 1 if turned or k % 4 else 4
    outer, inner = _statements(program, vec, read_from)
    alone = _statements(program, 1, read_from)
    return Operand(name, lines, vec, turned, program.stores[0].arg, outer, inner, [*alone[0], *alone[1]])


def _behind(of: SmallProduct, schedule: Small, read_from: dict[str, str]) -> list[str]:
    """The statements of one element of the results, which read the sums of its matrix alone."""
    (row,) = of.behind.row_loops

    def own(step: object) -> object:
        if not isinstance(step, Load) or step.tensor != of.sums:
            return step
        return replace(
            step, tensor=_SUMS, access=replace(step.access, offset=step.access.offset - of.rows * of.cols * row.symbol)
        )

    program = replace(of.behind, loads=tuple(map(own, of.behind.loads)), steps=tuple(map(own, of.behind.steps)))
    outer, inner = _statements(program, 1, {**read_from, _SUMS: pointer(_SUMS)})
    first, stores, close = common.store_statements(program.stores, 1, pointers(schedule))
    return [*outer, *inner, *first, *stores, *close]


TEMPLATE = Template(
    name="small_product",
    device_type="cuda",
    file="cuda/small_product/small_product.cu.j2",
    takes=takes,
    schedule=Small,
    space=space,
    render=render,
    lacks=lacks,
    arithmetic=common.arithmetic,
    share=0.3,
    biased=True,  # tensor cores truncate where they add
)
