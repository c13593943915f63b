"""The family ``gemm`` in CUDA: a product to float32 accuracy on tensor cores, with maps in its epilogue.

Two variants share everything but the product itself: ``sm90`` (TMA and wgmma, which sm_90 alone has) and ``sm80``
(cp.async and mma.sync, from sm_80 on).
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.candidate import Params
from kgen.hardware import Hardware
from kgen.program import ELEMENT, Load, Program, schedule
from kgen.space import Axis, Constraint, Space
from kgen.templates import Argument, Filled, Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers
from kgen.templates.arguments import signature, sources, summary
from kgen.templates.cuda import common
from kgen.templates.spelling import element_index, output_pointer, pointer, row_loads, statement

#: Parts have rows of a multiple of so many elements: a step of the ``sm90`` variant, 128 bytes.
STEP = 64

#: Of the splitting kernel: the longest row that so many threads with so many groups of eight columns each hold. Longer
#: rows are read twice.
_SPLITS = (
    (512, 64, 1), (1024, 128, 1), (2048, 128, 2), (4096, 256, 2), (8192, 256, 4), (16384, 512, 4), (32768, 1024, 4),
)  # fmt: skip


@dataclass(frozen=True)
class _WarpgroupTile:
    """A block's tile of the ``sm90`` variant: ``m_tiles`` x 64 rows, and 128 columns ``halves`` times a warpgroup."""

    m_tiles: int
    halves: int

    @property
    def rows(self) -> int:
        return 64 * self.m_tiles

    @property
    def cols(self) -> int:
        return 128 * self.halves * (3 - self.m_tiles)


@dataclass(frozen=True)
class _WarpTile:
    """A block's tile of the ``sm80`` variant: its warps, the 16 x 8 pieces of each, and blocks to a multiprocessor."""

    warps_m: int
    warps_n: int
    mma_m: int
    mma_n: int
    blocks: int

    @property
    def rows(self) -> int:
        return 16 * self.mma_m * self.warps_m

    @property
    def cols(self) -> int:
        return 8 * self.mma_n * self.warps_n

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage: 32 of k of both parts of both operands."""
        return 2 * 2 * 32 * (self.rows + self.cols)


#: The tiles of each variant by their names, the likeliest first.
_TILES: dict[str, dict[str, _WarpgroupTile | _WarpTile]] = {
    "sm90": {
        "128x256": _WarpgroupTile(2, 2),
        "128x128": _WarpgroupTile(2, 1),
        "64x256": _WarpgroupTile(1, 1),
    },
    "sm80": {
        "128x128": _WarpTile(2, 4, 4, 4, blocks=1),
        "128x64": _WarpTile(2, 2, 4, 4, blocks=2),
        "64x128": _WarpTile(1, 4, 4, 4, blocks=2),
        "64x64": _WarpTile(2, 2, 2, 4, blocks=2),
    },
}

#: Shared memory of one slot of the ``sm90`` variant with its two barriers.
_SLOT_BYTES = 2 * 128 * 64 * 2 + 16

#: Groups of eight columns that are finished at once, by the most operands of columns that leave registers for so many.
_AT_ONCE = ((16, 1), (8, 3), (4, 7))


def _pitch(k: int) -> int:
    return -(-k // STEP) * STEP


def _sums_pitch(n: int) -> int:
    """Elements between rows of sums in memory: even, so that pairs of columns are moved together."""
    return n + n % 2


def _tile(params: Params) -> _WarpgroupTile | _WarpTile:
    return _TILES[str(params["variant"])][str(params["tile"])]


def lacks(hardware: Hardware) -> str:
    return "" if hardware.capability >= 80 else "products of its own need the tensor cores of sm_80 or later"


def space(task: Task) -> Space:
    warps = _axes("sm80", stages=(4, 3, 2), clusters=(1,), schedules=("plain",))
    if task.hardware.capability != 90:
        return Space(warps, _constraints(task))
    warpgroups = _axes("sm90", stages=(7, 5), clusters=(1, 2), schedules=("turns", "plain", "two_parts"))
    return Space(warpgroups, _constraints(task), (warps,))


def _axes(
    variant: str, stages: tuple[int, ...], clusters: tuple[int, ...], schedules: tuple[str, ...]
) -> tuple[Axis, ...]:
    return (
        Axis("variant", (variant,)),
        Axis("tile", tuple(_TILES[variant])),
        Axis("stages", stages),
        Axis("splits", (1, 2, 4, 8)),
        Axis("band", (16, 8, 32)),
        Axis("cluster", clusters),
        Axis("schedule", schedules),
    )


def _constraints(task: Task) -> tuple[Constraint, ...]:
    program, hardware = task.plan.program(task.kernel), task.hardware
    rows, n, pitch = program.rows, program.cols, _pitch(program.product.k)

    def warpgroups(p: Params) -> bool:
        return p["variant"] == "sm90"

    def shared_bytes(p: Params) -> int:
        return int(p["stages"]) * (_SLOT_BYTES if warpgroups(p) else _tile(p).stage_bytes)

    def blocks(p: Params) -> int:
        return 1 if warpgroups(p) else _tile(p).blocks

    def registers(p: Params) -> int:
        """Of a thread, without addresses and counters: its sums, and what they are added up from."""
        tile = _tile(p)
        if warpgroups(p):
            return 64 * tile.halves + 64 * (2 if p["schedule"] == "two_parts" else 1)
        return 4 * tile.mma_m * tile.mma_n + (16 + 4) * tile.mma_m + 16

    def tiles_m(p: Params) -> int:
        return -(-rows // _tile(p).rows)

    def tiles(p: Params) -> int:
        return tiles_m(p) * -(-n // _tile(p).cols)

    return (
        Constraint(
            "shared_memory",
            "the stages need more shared memory than a block, or its neighbours on a multiprocessor, can have",
            lambda p: shared_bytes(p) <= hardware.shared_bytes_per_block
            and blocks(p) * (shared_bytes(p) + 1024) <= hardware.shared_bytes_per_multiprocessor,
        ),
        Constraint(
            "registers",
            "the sums and the parts that they are added up from do not fit a thread's registers",
            lambda p: registers(p) <= (200 if warpgroups(p) else 216),
        ),
        Constraint(
            "two_parts",
            "two parts are for steps of one tile of w",
            lambda p: p["schedule"] != "two_parts" or p["tile"] == "128x128",
        ),
        Constraint(
            "rows_of_cluster",
            f"blocks of a cluster share columns: {rows} rows are one tile's",
            lambda p: p["cluster"] == 1 or tiles_m(p) > 1,
        ),
        Constraint(
            "idle_rows",
            f"half of a tile's rows or more would lie beyond {rows}",
            lambda p: _tile(p).rows < 2 * rows or _tile(p).rows == 64,
        ),
        Constraint(
            "idle_columns",
            f"half of a tile's columns or more would lie beyond {n}",
            lambda p: _tile(p).cols < 2 * n or _tile(p).cols == 64,
        ),
        Constraint(
            "short_splits",
            f"splits of k = {program.product.k} so short that filling the pipeline is most of their time",
            lambda p: p["splits"] == 1 or pitch >= 512 * int(p["splits"]),
        ),
        Constraint(
            "splits_to_fill",
            "the chip is full without splitting k so often",
            lambda p: p["splits"] == 1 or tiles(p) * int(p["splits"]) <= 4 * hardware.multiprocessors,
        ),
        Constraint(
            "one_band",
            "all tiles of rows are in one band, as they are with 16",
            lambda p: p["band"] == 16 or tiles_m(p) > min(int(p["band"]), 16),
        ),
    )


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    product, tile, splits = program.product, _tile(params), int(params["splits"])
    n, k, pitch = program.cols, product.k, _pitch(product.k)
    args, parts = _arguments(task, program, params, splits)
    elementwise = [a for a in args if a.role == "out" or (a.role == "in" and a.tensor in program.tensors)]
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "variant": params["variant"],
        "tile": tile,
        "stages": params["stages"],
        "splits": splits,
        "band": params["band"],
        "cluster": params["cluster"],
        "schedule": params["schedule"],
        "interval": 64 if params["variant"] == "sm90" else 32,
        "n": n,
        "k": k,
        "pitch": pitch,
        "sums_pitch": _sums_pitch(n),
        "transposed": product.transposed,
        "x": pointer(product.x),
        "weight": pointer(product.weight),
        "parts": parts.name,
        "split": _split(k, pitch),
        "members": [f"{'const ' if a.role == 'in' else ''}float* {a.name}" for a in elementwise],
        "member_names": [a.name for a in elementwise],
        "scratch": output_pointer(program.stores[0].tensor),
        "sum": product.name,
        "epilogue": ", ".join(_words(task)),
        **_epilogue(program, args),
        **signature(args),
    }
    return Rendering(context, tuple(args), specific=params["variant"] == "sm90")


def _words(task: Task) -> list[str]:
    """What becomes of a sum, word by word."""
    anchor, *maps = task.kernel.nodes
    return [*(["bias added"] if len(task.plan.graph.node(anchor).inputs) > 2 else []), *maps]


def _arguments(task: Task, program: Program, params: Params, splits: int) -> tuple[list[Argument], Argument]:
    """The launcher's pointers, and the one to the weight's parts."""
    product, n, pitch = program.product, program.cols, _pitch(program.product.k)
    form = "{}.t()" if product.transposed else "{}"
    filled = Filled(f"{task.kernel.name}_split_weight", n, form)
    parts = Argument(f"{product.weight}_split", "prepared", product.weight, str(n * pitch + n), filled=filled)
    elements = pitch + 1 + (splits * _sums_pitch(n) if splits > 1 else 0)
    first = [Argument(pointer(t), "in", t) for t in dict.fromkeys((product.x, product.weight))]
    rest = [a for a in pointers(task, program, params) if a not in first]
    return [*first, parts, *rest, Argument("workspace", "workspace", size=f"rows * {elements}")], parts


def _split(k: int, pitch: int) -> str:
    """The call that splits rows of this length."""
    for longest, threads, groups in _SPLITS:
        if pitch <= longest:
            return f"split_rows<{k}, {pitch}, {threads}, {groups}>"
    return f"split_long_rows<{k}, {pitch}, 1024>"


def _epilogue(program: Program, args: list[Argument]) -> dict[str, object]:
    """What the text of the epilogue is rendered with: it finishes pairs of columns, aligned where ``n`` is even."""
    plan, read_from = schedule(program, keep=True), sources(args)
    (sweep,) = plan.sweeps
    vec = 2 if program.cols % 2 == 0 else 1
    columns = [x for x in sweep.loads if x.level == ELEMENT and "row" not in element_index(x)]
    outer, inner = common.load_statements([x for x in sweep.loads if x not in columns], vec, read_from)
    taken = [f"const float {x.name} = {x.name}_columns[group][j];" for x in columns]
    maps = [statement(m, "cuda") for m in sweep.maps]
    store_outer, store_inner, close = common.store_statements(sweep.stores, vec, program.cols, args)
    return {
        "vec": vec,
        "at_once": next((groups for groups, most in _AT_ONCE if len(columns) <= most), 2),
        "columns": [x.name for x in columns],
        "column_loads": [line for x in columns for line in _column_load(x, vec, read_from[x.tensor])],
        "row_statements": row_loads(plan) + [statement(m, "cuda") for m in plan.row_maps],
        "outer": outer + store_outer,
        "inner": taken + inner + maps + store_inner,
        "close": close,
    }


def _column_load(load: Load, vec: int, source: str) -> list[str]:
    """The statements that read an operand for column ``col`` and the next one."""
    if vec == 2 and load.access.mode(vec) == "vector":
        pair = f"{load.name}_vector"
        lines = [f"const Vector<2> {pair} = load_vector<2>({source} + {element_index(load)});"]
        values = [f"{pair}.v[0]", f"{pair}.v[1]"]
    else:
        lines = []
        values = [f"{source}[{load.access.index('row', col)}]" for col in ("col", "next" if vec == 1 else "(col + 1)")]
    target = f"{load.name}_columns[group]"
    return [*lines, f"{target}[0] = {values[0]}, {target}[1] = {values[1]};"]


TEMPLATE = Template("gemm", "cuda", "cuda/gemm.cu.j2", space, render, lacks)
