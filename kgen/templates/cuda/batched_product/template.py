"""Batches of small matrix products in CUDA: float32 sums in registers, of operands that lie anywhere in their tensors.

A block has tiles of both operands in shared memory, of one matrix or of several. No operand is copied to another order
first, and none is split into terms: products of matrices this small are bound by memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kgen.codegen.arguments import arguments as pointers, rendering, sources
from kgen.codegen.c_printer import pointer, row_statements, statement
from kgen.codegen.roofline import Arithmetic
from kgen.codegen.space import Axis, Constraint, Space, alike
from kgen.codegen.template import Argument, Rendering, Task, Template, parameter
from kgen.compiler.graph.dtypes import DTYPES, is_narrow, loaded, nbytes, stored
from kgen.compiler.loops.attention import Matrices, matrices
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import Program
from kgen.templates.cuda import common

# Operations for each byte of operands and results. Products with more are worth the tensor cores.
MOST_OPERATIONS = 32
_SHARED_BYTES = 48 << 10  # of static shared memory that a block may have
_PAD = 4  # elements behind each line of a tile: lines begin in other banks, at multiples of 16 bytes


@dataclass(frozen=True, kw_only=True)
class BatchedProduct(common.Launched):
    tile: str = parameter("rows and columns of a result's tile, of one matrix")
    own: str = parameter("rows and columns of the tile that a thread finishes")
    chunk: int = parameter("elements of k of both operands in shared memory at a time")
    matrices: int = parameter("matrices that a block takes side by side")

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        rows, cols = map(int, self.tile.split("x"))
        return rows, cols

    @property
    def own_sides(self) -> tuple[int, int]:
        """Rows and columns of a thread."""
        rows, cols = map(int, self.own.split("x"))
        return rows, cols

    @property
    def threads(self) -> int:
        """Threads that share a tile; below 1 where a thread has more than the tile."""
        (rows, cols), (own_rows, own_cols) = self.sides, self.own_sides
        return rows // own_rows * (cols // own_cols)

    @property
    def shared_bytes(self) -> int:
        """Bytes of the tiles of all matrices of a block."""
        return 4 * self.matrices * self.chunk * (sum(self.sides) + 2 * _PAD)


def takes(program: Program) -> bool:
    """Batches of small products of views, with maps behind them, and one result."""
    of = program.contraction
    if (
        of is None
        or of.group is None
        or of.window
        or of.before
        or of.in_order
        or program.moments_of
        or program.reductions
        or len(program.stores) != 1
    ):
        return False
    if (
        not isinstance(program.col_size, int)
        or not program.floats
        or any(x.access.mask or x.args for x in program.reads)
    ):
        return False
    rows, cols, k = of.group, program.cols, of.k
    return 2 * rows * cols * k <= MOST_OPERATIONS * 4 * (rows * k + cols * k + rows * cols) and all(_operands(program))


def _operands(program: Program) -> tuple[Matrices | None, Matrices | None]:
    """Where the matrices of both operands lie: lines of elements of k."""
    of = program.contraction
    assert of is not None and of.group is not None
    left = matrices(of.x, of.x_lies, of.group, of.k, of.turned)
    return left, matrices(of.weight, of.weight_lies, program.cols, of.k, of.transposed)


def space(task: Task) -> Space[BatchedProduct]:
    program = task.program()
    of = program.contraction
    assert of is not None and of.group is not None
    rows, cols = of.group, program.cols
    axes = (
        Axis("tile", tuple(f"{a}x{b}" for a in (64, 32, 16, 128, 8, 4, 2) for b in (64, 32, 16, 128, 8))),
        Axis("own", ("4x4", "8x4", "8x8", "4x8", "2x4", "2x2", "1x4")),
        Axis("chunk", (64, 32, 16, 8)),
        Axis("matrices", (1, 2, 4, 8)),
        *common.launch_axis(task),
    )
    constraints = (
        Constraint(
            "shared_memory",
            ("tile", "chunk", "matrices"),
            "the tiles do not fit the shared memory of a block",
            lambda s: s.shared_bytes <= _SHARED_BYTES,
        ),
        Constraint(
            "threads",
            ("tile", "own", "matrices"),
            "a block has whole warps, two at least, and 512 threads at most",
            lambda s: 64 <= s.threads * s.matrices <= 512 and s.threads * s.matrices % 32 == 0,
        ),
        Constraint(
            "idle_rows",
            ("tile",),
            f"half of a tile or more would lie beyond {rows} rows",
            lambda s: s.sides[0] < 2 * rows or s.sides[0] == 2,
        ),
        Constraint(
            "idle_columns",
            ("tile",),
            f"half of a tile or more would lie beyond {cols} columns",
            lambda s: s.sides[1] < 2 * cols or s.sides[1] == 8,
        ),
        Constraint(
            "several_tiles",
            ("tile", "matrices"),
            "a block that takes several matrices has all of each",
            lambda s: s.matrices == 1 or (s.sides[0] >= rows and s.sides[1] >= cols),
        ),
        alike("chunk_in_sums", "chunk", of.k, 8, f"half of a chunk or more would lie beyond {of.k} elements of k"),
    )
    return Space(partial(BatchedProduct, task), axes, constraints)


def render(schedule: BatchedProduct) -> Rendering:
    program = schedule.program
    of = program.contraction
    assert of is not None and of.group is not None
    (left, right), (rows, cols), (own_rows, own_cols) = _operands(program), schedule.sides, schedule.own_sides
    assert left is not None and right is not None
    plan = passes_of(program, keep=True)
    (only,) = plan.passes
    operands = dict.fromkeys(Argument(pointer(m.tensor), "in", m.tensor, dtype=of.dtype) for m in (left, right))
    args = [*operands, *(a for a in pointers(schedule) if a not in operands)]
    vec = min(4, own_cols) if program.cols % min(4, own_cols) == 0 else 1
    outer, inner = common.load_statements(only.loads, vec, sources(args))
    by = "stream_vector" if common.streams(schedule.task) else "store_vector"
    (store,) = only.stores
    store_outer, store_inner, close = common.store_statements([store], vec, args, by)
    context = {
        "formula": of.formula(program.cols),
        "k": of.k,
        "chunk": schedule.chunk,
        "chunks": -(-of.k // schedule.chunk),
        "matrices": schedule.matrices,
        "threads": schedule.threads,
        "own_rows": own_rows,
        "own_cols": own_cols,
        "rows_at_once": min(4, own_rows),
        "cols_at_once": min(4, own_cols),
        "vec": vec,
        "group": of.group,
        "cols": program.cols,
        "tile_rows": rows,
        "tile_cols": cols,
        "row_tiles": -(-of.group // rows),
        "col_tiles": -(-program.cols // cols),
        "operands": [
            {**_tile(left, of.dtype, of.group, of.k, schedule.chunk, rows), "name": "x", "begin": "first_line"},
            {**_tile(right, of.dtype, program.cols, of.k, schedule.chunk, cols), "name": "w", "begin": "first_col"},
        ],
        "sum": of.name,
        "row_statements": row_statements(plan, "cuda"),
        "result": store.arg,
        "outer": outer,
        "maps": [*inner, *(statement(m, "cuda") for m in only.maps)],
        "store_outer": store_outer,
        "store_inner": store_inner,
        "close": close,
    }
    return rendering(schedule, args, context)


def _tile(of: Matrices, dtype: str, lines: int, k: int, chunk: int, side: int) -> dict[str, object]:
    """How an operand's tile is loaded: ``vec`` elements at once, along k or along its lines, whichever lie side by
    side."""
    along_k = of.element == 1
    step = of.line if along_k else of.element
    unit = 1 in (of.element, of.line)
    fixed = [stride for _, stride in of.outer] + [step, of.offset]
    length, part = (k, chunk) if along_k else (lines, side)
    vec = next((v for v in (16 // nbytes(dtype), 4, 2) if unit and not any(n % v for n in (*fixed, length, part))), 1)
    return {
        "pointer": pointer(of.tensor),
        "place": of.place("matrix"),
        "line": of.line,
        "element": of.element,
        "along_k": along_k,
        "vec": vec,
        "type": DTYPES[dtype].memory,
        "narrow": is_narrow(dtype),
        "zero": stored("0.0f", "float32", dtype),
        "value": loaded("values.v[j]", dtype),
        "lines": lines,
        "side": side,
        "pitch": side + _PAD,
        "ragged": lines % side != 0,
        "short": k % chunk != 0,
    }


TEMPLATE = Template(
    name="batched_product", device_type="cuda", file="cuda/batched_product/batched_product.cu.j2", takes=takes,
    schedule=BatchedProduct, space=space, render=render, arithmetic=lambda params: Arithmetic("float32"),
    share=0.15,  # of three float16 products on tensor cores: the rate of float32 is a fifth of theirs
)  # fmt: skip
