"""The family ``gemm`` in CUDA: a product to float32 accuracy on tensor cores, with maps in its epilogue.

Three variants share everything but the product itself: ``sm90`` (TMA and wgmma, which sm_90 alone has), ``sm80``
(cp.async and mma.sync, from sm_80 on) and ``library`` (cuBLAS multiplies the parts, over short intervals of k). Float32
accuracy takes three products of float16 parts, that of TF32 one.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.candidate import Params, ParamValue
from kgen.evaluator.protocol import Accuracy
from kgen.hardware import Hardware
from kgen.program import ELEMENT, Load, Product, Program, schedule
from kgen.space import Axis, Constraint, Space
from kgen.templates import Argument, Before, Filled, Rendering, Task, Template
from kgen.templates.arguments import arguments as pointers
from kgen.templates.arguments import signature, sources, summary
from kgen.templates.cuda import common
from kgen.templates.spelling import element_index, output_pointer, pointer, row_loads, statement

#: Parts have rows of a multiple of so many elements: a step of the ``sm90`` variant, 128 bytes.
STEP = 64

#: Of k, over which the library's tensor cores add up: what they truncate on positive data, where errors do not cancel, allows
#: no more.
_INTERVAL = 128

#: From so many rows on, or with so long sums, PyTorch's own product is no more exact than sums over such intervals: it is for
#: a few rows, whose sums it shares among many threads.
_MANY_ROWS, _LONG_K = 512, 8192

#: The library's sums are given this share of the device's memory at most.
_SUMS_SHARE = 1 / 8

#: Of the splitting kernel: the longest row that so many threads with so many groups of eight columns each hold. Longer
#: rows are read twice.
_SPLITS = (
    (512, 64, 1), (1024, 128, 1), (2048, 128, 2), (4096, 256, 2), (8192, 256, 4), (16384, 512, 4), (32768, 1024, 4),
)  # fmt: skip


@dataclass(frozen=True)
class _WarpgroupTile:
    """A block's tile of the ``sm90`` variant: ``m_tiles`` x 64 rows, and 128 columns ``halves`` times a warpgroup.

    ``step_us`` are the microseconds that 64 of k take, with a full chip, measured on an H200.
    """

    m_tiles: int
    halves: int
    step_us: float
    blocks: int = 1  # of a multiprocessor

    @property
    def rows(self) -> int:
        return 64 * self.m_tiles

    @property
    def cols(self) -> int:
        return 128 * self.halves * (3 - self.m_tiles)

    @property
    def stage_bytes(self) -> int:
        """Shared memory of 128 rows of 64 of k of both parts, one slot or two, with four barriers."""
        return 2 * 128 * 64 * 2 + 32


@dataclass(frozen=True)
class _WarpTile:
    """A block's tile of the ``sm80`` variant: ``warps_m`` x ``warps_n`` warps, each 64 x 64, in ``slices`` sets.

    The sets share the ``block_k`` of k of a stage. ``blocks`` run on a multiprocessor at a time; ``step_us`` are the
    microseconds that 64 of k take them, with a full chip, measured on an H200.
    """

    warps_m: int
    warps_n: int
    slices: int
    block_k: int
    blocks: int
    step_us: float

    @property
    def rows(self) -> int:
        return 64 * self.warps_m

    @property
    def cols(self) -> int:
        return 64 * self.warps_n

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage: both parts of both operands."""
        return 2 * 2 * self.block_k * (self.rows + self.cols)


#: The tiles of each variant by their names; after the bar, the sets of warps that share a stage's k.
_TILES: dict[str, dict[str, _WarpgroupTile | _WarpTile]] = {
    "sm90": {
        "128x256": _WarpgroupTile(2, 2, step_us=2.1),
        "128x128": _WarpgroupTile(2, 1, step_us=1.15),
        "64x256": _WarpgroupTile(1, 1, step_us=1.25),
    },
    "sm80": {
        "128x256": _WarpTile(2, 4, 1, block_k=32, blocks=1, step_us=4.0),
        "128x128": _WarpTile(2, 2, 1, block_k=32, blocks=2, step_us=4.2),
        "128x128/2": _WarpTile(2, 2, 2, block_k=32, blocks=1, step_us=2.1),
        "64x128/2": _WarpTile(1, 2, 2, block_k=32, blocks=2, step_us=2.0),
        "64x64/4": _WarpTile(1, 1, 4, block_k=64, blocks=2, step_us=1.25),
    },
}

#: Measured on an H200: microseconds that a product takes whatever its size, that adding up its parts of k takes more
#: within a cluster and in a kernel of its own, and bytes that a multiprocessor's share of the memory moves in one.
_FIXED_US, _CLUSTER_US, _SPLITS_US, _BYTES_A_US = 4.0, 1.5, 4.0, 32e3

#: Measured on an H200: terms of float16 products that the library adds up in a microsecond, for each multiprocessor.
_LIBRARY_TERMS_A_US = 2.5e6

#: Columns that a warp finishes at once of sums in memory.
_STRIP_COLS = 32

#: Groups of eight columns that are finished at once, by the most operands of columns that leave registers for so many.
_AT_ONCE = ((16, 1), (8, 3), (4, 7))


def _pitch(k: int, params: Params) -> int:
    """Elements of a row of parts: whole steps, and for the library as many intervals of the same length."""
    intervals = int(params["splits"]) if params["variant"] == "library" else 1
    return -(-k // (STEP * intervals)) * STEP * intervals


def _sums_pitch(n: int) -> int:
    """Elements between rows of sums in memory: columns are moved in pairs, what lies behind in fours."""
    return -(-n // 4) * 4


def _planes(params: Params) -> int:
    """Float16 parts of each operand."""
    return 2 if params["products"] == 3 else 1


def _partials(params: Params) -> int:
    """Matrices of sums in memory that are added up at the end; none where blocks keep theirs."""
    splits = int(params["splits"])
    if params["variant"] == "library":
        return splits + 2 * (_planes(params) - 1)
    return splits if splits > 1 else 0


def _tile(params: Params) -> _WarpgroupTile | _WarpTile:
    """The tile of a variant of our own."""
    return _TILES[str(params["variant"])][str(params["tile"])]


def lacks(hardware: Hardware) -> str:
    return "" if hardware.capability >= 80 else "products of its own need the tensor cores of sm_80 or later"


def space(task: Task) -> Space:
    product = _Shape.of(task)
    variants = [_axes("sm80", products=(3,), stages=(4, 3, 2), clusters=(1,))]
    if task.hardware.capability == 90:
        variants.insert(0, _axes("sm90", products=(3, 1), stages=(7,), clusters=(1, 2, 4)))
    constraints = _constraints(product, task.accuracy)
    first, *others = [_likeliest_first(axes, constraints, product) for axes in variants]
    others.append(_library_axes(product))
    return Space(first, (*constraints, _slow(product, constraints, (first, *others))), tuple(others))


def _axes(
    variant: str, products: tuple[int, ...], stages: tuple[int, ...], clusters: tuple[int, ...]
) -> tuple[Axis, ...]:
    return (
        Axis("variant", (variant,)),
        Axis("products", products),
        Axis("tile", tuple(_TILES[variant])),
        Axis("splits", (1, 2, 4, 8, 16)),
        Axis("cluster", clusters),
        Axis("stages", stages),
        Axis("band", (16, 8)),
    )


def _library_axes(shape: _Shape) -> tuple[Axis, ...]:
    """The same axes for the library, which has one way in most of them; its splits are intervals of k."""
    return (
        Axis("variant", ("library",)),
        Axis("products", (3, 1)),
        Axis("tile", ("library",)),
        Axis("splits", tuple(dict.fromkeys((shape.intervals, 1)))),
        Axis("cluster", (1,)),
        Axis("stages", (1,)),
        Axis("band", (1,)),
    )


@dataclass(frozen=True)
class _Shape:
    """A product's sizes at the captured batch, and the device that it runs on.

    ``rows`` are those that share a matrix of the right operand, which has ``matrices`` of them.
    """

    rows: int
    cols: int
    k: int
    matrices: int
    grouped: bool
    hardware: Hardware

    @classmethod
    def of(cls, task: Task) -> _Shape:
        program = task.plan.program(task.kernel)
        product = program.product
        rows, grouped = product.group or program.rows, product.group is not None
        return cls(rows, program.cols, product.k, product.matrices, grouped, task.hardware)

    @property
    def intervals(self) -> int:
        """Of k, for three products by the library."""
        return -(-self.k // _INTERVAL)

    def tiles(self, params: Params) -> int:
        tile = _tile(params)
        return self.matrices * -(-self.rows // tile.rows) * -(-self.cols // tile.cols)

    def fits(self, params: Params, stages: int) -> bool:
        """Whether a block can have so many stages, and with them as many neighbours as with two."""
        if stages * _tile(params).stage_bytes > self.hardware.shared_bytes_per_block:
            return False
        return self._resident(params, stages) == self._resident(params, 2)

    def at_once(self, params: Params) -> int:
        """Blocks that the whole device runs at a time."""
        return max(1, self._resident(params, int(params["stages"]))) * self.hardware.multiprocessors

    def _resident(self, params: Params, stages: int) -> int:
        """Blocks that run on a multiprocessor at a time; the system takes 1 KB of shared memory for each."""
        tile = _tile(params)
        return min(tile.blocks, self.hardware.shared_bytes_per_multiprocessor // (stages * tile.stage_bytes + 1024))

    def microseconds(self, params: Params) -> float:
        """About how long the product takes: waves of tiles as on an H200, but no less than to read the weight.

        Right to a quarter or so on that device; of others it tells which combination is likely the fastest.
        """
        if params["variant"] == "library":
            return self._library_microseconds(params)
        splits, cluster, pitch = int(params["splits"]), int(params["cluster"]), _pitch(self.k, params)
        waves = -(-self.tiles(params) * splits * cluster // self.at_once(params))
        steps = pitch / STEP / (splits * cluster)
        bandwidth = _BYTES_A_US * self.hardware.multiprocessors
        adding_up = _CLUSTER_US if cluster > 1 else 0.0
        if splits > 1:
            adding_up += _SPLITS_US + 8 * splits * self.matrices * self.rows * self.cols / bandwidth
        multiplying = waves * steps * _tile(params).step_us * int(params["products"]) / 3
        reading = 2 * _planes(params) * self.matrices * self.cols * pitch / bandwidth
        return _FIXED_US + max(multiplying, reading) + adding_up

    def _library_microseconds(self, params: Params) -> float:
        """About how long the library takes, at the rate of full chips, and its sums, written and read."""
        elements = self.rows * self.cols
        multiplying = int(params["products"]) * elements * self.k / (_LIBRARY_TERMS_A_US * self.hardware.multiprocessors)
        moving = 8 * _partials(params) * elements / (_BYTES_A_US * self.hardware.multiprocessors)
        return int(params["products"]) * _FIXED_US + multiplying + moving


def _likeliest_first(axes: tuple[Axis, ...], constraints: tuple[Constraint, ...], shape: _Shape) -> tuple[Axis, ...]:
    """The axes with their values in the order of the fastest combination of each, so that it comes first of all."""
    ranked = sorted(Space(axes, constraints).allowed(), key=shape.microseconds)

    def rank(axis: str, value: ParamValue) -> int:
        return next((n for n, p in enumerate(ranked) if p[axis] == value), len(ranked))

    return tuple(Axis(a.name, tuple(sorted(a.values, key=lambda v: rank(a.name, v)))) for a in axes)


def _slow(shape: _Shape, constraints: tuple[Constraint, ...], variants: tuple[tuple[Axis, ...], ...]) -> Constraint:
    """What rules out combinations that cannot win."""
    fastest: dict[ParamValue, float] = {}
    for axes in variants:
        for params in Space(axes, constraints).allowed():
            us = shape.microseconds(params)
            fastest[params["variant"]] = min(us, fastest.get(params["variant"], us))
    return Constraint(
        "slow",
        "by waves of tiles, another combination of the variant takes less than half the time",
        lambda p: shape.microseconds(p) <= 2.0 * fastest.get(p["variant"], 0.0),
    )


def _constraints(shape: _Shape, accuracy: Accuracy) -> tuple[Constraint, ...]:
    one_product = Constraint(
        "one_product",
        "one product of float16 parts is as accurate as TF32, which is not what is asked for",
        lambda p: p["products"] == 3 or accuracy is Accuracy.TF32,
    )
    own = tuple(
        Constraint(c.name, c.reason, lambda p, holds=c.holds: p["variant"] == "library" or holds(p))
        for c in _own_constraints(shape)
    )
    library = tuple(
        Constraint(c.name, c.reason, lambda p, holds=c.holds: p["variant"] != "library" or holds(p))
        for c in _library_constraints(shape)
    )
    return (one_product, *own, *library)


def _library_constraints(shape: _Shape) -> tuple[Constraint, ...]:
    return (
        Constraint(
            "matrices",
            "the library is given one matrix on the right; batches of them are left to kernels of our own",
            lambda p: not shape.grouped,
        ),
        Constraint(
            "few_rows",
            f"short sums of {shape.rows} rows are more exact in PyTorch than the library's over {_INTERVAL} of k",
            lambda p: shape.rows >= _MANY_ROWS or shape.k >= _LONG_K,
        ),
        Constraint(
            "intervals",
            "three products are added up over short intervals of k; one, as accurate as TF32, is not",
            lambda p: p["splits"] == (shape.intervals if p["products"] == 3 else 1),
        ),
        Constraint(
            "sums_memory",
            "the sums of so many intervals would take more than an eighth of the device's memory",
            lambda p: 4 * _partials(p) * shape.rows * shape.cols <= shape.hardware.global_bytes * _SUMS_SHARE,
        ),
    )


def _own_constraints(shape: _Shape) -> tuple[Constraint, ...]:
    rows, cols = shape.rows, shape.cols

    def parts(p: Params) -> int:
        return int(p["splits"]) * int(p["cluster"])

    return (
        Constraint(
            "shared_memory",
            "the stages need more shared memory than a block, or its neighbours on a multiprocessor, can have",
            lambda p: shape.fits(p, int(p["stages"])),
        ),
        Constraint(
            "shallow_pipeline",
            "one stage is filled while the other is used, where three stages fit",
            lambda p: p["stages"] != 2 or not shape.fits(p, 3),
        ),
        Constraint(
            "idle_rows",
            f"half of a tile's rows or more would lie beyond {rows}",
            lambda p: _tile(p).rows < 2 * rows or _tile(p).rows == 64,
        ),
        Constraint(
            "idle_columns",
            f"half of a tile's columns or more would lie beyond {cols}",
            lambda p: _tile(p).cols < 2 * cols or _tile(p).cols == 64,
        ),
        Constraint(
            "two_ways_to_split",
            "k is split over the blocks of a cluster, or over blocks that know nothing of each other",
            lambda p: p["splits"] == 1 or p["cluster"] == 1,
        ),
        Constraint(
            "parts_of_large_tiles",
            "a smaller tile gives as many blocks as half the k of this one would, with nothing to add up",
            lambda p: parts(p) == 1 or p["tile"] != "128x256",
        ),
        Constraint(
            "short_parts",
            f"parts of k = {shape.k} so short that filling the pipeline is most of their time",
            lambda p: parts(p) == 1 or _pitch(shape.k, p) >= (512 if int(p["splits"]) > 1 else 128) * parts(p),
        ),
        Constraint(
            "parts_to_fill",
            "the chip is full without so many parts of k",
            lambda p: parts(p) == 1 or shape.tiles(p) * parts(p) <= shape.at_once(p),
        ),
        Constraint(
            "wide_clusters",
            "clusters of four find room for themselves on three quarters of the chip",
            lambda p: int(p["cluster"]) < 4 or shape.tiles(p) * int(p["cluster"]) <= shape.at_once(p) * 3 // 4,
        ),
        Constraint(
            "one_band",
            "all tiles of rows are in one band, as they are with 16",
            lambda p: p["band"] == 16 or -(-rows // _tile(p).rows) > int(p["band"]),
        ),
    )


def render(task: Task, params: Params) -> Rendering:
    program = task.plan.program(task.kernel)
    product, planes, library = program.product, _planes(params), params["variant"] == "library"
    n, k, pitch = program.cols, product.k, _pitch(product.k, params)
    tile = None if library else _tile(params)
    operands = _Operands.of(task, program, params)
    args = operands.arguments(pointers(task, program, params), split_before=library)
    elementwise = [a for a in args if a.role == "out" or (a.role == "in" and a.tensor in program.tensors)]
    before = _before(task, program, params, operands) if library else None
    context = {
        "name": task.kernel.name,
        "summary": summary(task),
        "formula": _formula(product, n),
        "variant": params["variant"],
        "tile": tile,
        "ragged": n % (tile.cols if tile else _STRIP_COLS) != 0,
        "stages": params["stages"],
        "slots": int(params["stages"]) * (2 if planes == 1 else 1),
        "planes": planes,
        "parts_word": "parts" if planes == 2 else "float16",
        "splits": params["splits"],
        "partials": _partials(params),
        "band": params["band"],
        "cluster": params["cluster"],
        "interval": pitch // int(params["splits"]) if library else 64 if params["variant"] == "sm90" else 16,
        "n": n,
        "k": k,
        "pitch": pitch,
        "sums_pitch": _sums_pitch(n),
        "grouped": product.group is not None,
        "group": product.group,
        "prepared": operands.parts is not None,
        "strided": operands.strided,
        "x": operands.x.name,
        "weight": operands.right.name,
        "parts": operands.parts and operands.parts.name,
        "split": _split(k, pitch, planes),
        "members": [f"{'const ' if a.role == 'in' else ''}float* {a.name}" for a in elementwise],
        "member_names": [a.name for a in elementwise],
        "scratch": output_pointer(program.stores[0].tensor),
        "sum": product.name,
        "epilogue": ", ".join(_words(task)),
        "split_parameters": before and signature(before.arguments)["launcher_parameters"],
        **_epilogue(program, args),
        **signature(args),
    }
    return Rendering(context, tuple(args), specific=params["variant"] == "sm90", before=before)


def _before(task: Task, program: Program, params: Params, operands: _Operands) -> Before:
    """What the variant ``library`` does before its sums are finished: splits the operands, and has their parts multiplied."""
    product, n, planes = program.product, program.cols, _planes(params)
    pitch = _pitch(product.k, params)
    row, behind = pitch * planes // 2, "" if operands.parts else f" + {n * pitch * planes // 2}"
    w = task.plan.graph.fresh(operands.parts.name) if operands.parts else f"workspace[{{rows}} * {row} :]"
    sums = f"workspace[{{rows}} * {row}{behind} :]"
    sizes = f"({{rows}}, {n}, {pitch})"
    call = f"multiply_parts(workspace, {w}, {sums}, {planes}, {params['splits']}, {sizes}, {_sums_pitch(n)})"
    scratch = Argument(output_pointer(program.stores[0].tensor), "out", program.stores[0].tensor)
    parts = (operands.parts,) if operands.parts else ()
    arguments = tuple(dict.fromkeys((operands.x, operands.right, *parts, scratch, operands.workspace)))
    return Before(f"{task.kernel.name}_split", arguments, call, "cuda/multiply_parts.py.j2")


def _formula(product: Product, n: int) -> str:
    """What is computed, in words of matrices."""
    if product.group is None:
        return f"y[rows, {n}] = x[rows, {product.k}] . w[{n}, {product.k}]^T"
    m, k = product.group, product.k
    return f"For each of rows / {m} matrices, y[{m}, {n}] = x[{m}, {k}] . w[{n}, {k}]^T"


def _words(task: Task) -> list[str]:
    """What becomes of a sum, word by word."""
    anchor, *maps = task.kernel.nodes
    return [*(["bias added"] if len(task.plan.graph.node(anchor).inputs) > 2 else []), *maps]


@dataclass(frozen=True)
class _Operands:
    """The launcher's pointers to both operands, and to memory for their parts.

    A weight's ``parts`` are prepared once, with the weight itself at hand for what is not finite. Any other right operand
    is split in each call, into the workspace; where its columns stand for rows, it comes transposed.
    """

    x: Argument
    right: Argument
    parts: Argument | None
    workspace: Argument
    strided: bool  #: whether the right operand's rows are columns in memory

    @classmethod
    def of(cls, task: Task, program: Program, params: Params) -> _Operands:
        product, n, planes = program.product, program.cols, _planes(params)
        pitch = _pitch(product.k, params)
        row = pitch * planes // 2  # float32 elements that a row's parts take
        x, right = Argument(pointer(product.x), "in", product.x), Argument(pointer(product.weight), "in", product.weight)
        turned = "{}.mT" if product.transposed else "{}"
        size = f"rows * {row + 1 + _partials(params) * _sums_pitch(n)}"
        if not task.plan.graph.is_weight(product.weight):
            w_rows = n if product.group is None else f"rows // {product.group} * {n}"
            size += f" + {w_rows} * {row + 1} + 3"
            if product.transposed:
                right = Argument(f"{product.weight}_transposed_in", "in", product.weight, form=turned)
            return cls(x, right, None, Argument("workspace", "workspace", size=size), strided=False)
        w_rows = product.matrices * n
        filled = Filled(f"{task.kernel.name}_split_weight", w_rows, turned)
        name = f"{product.weight}_{'split' if planes == 2 else 'rounded'}"
        name += f"_{pitch}" if params["variant"] == "library" else ""  # kernels of a file may share the parts of a weight
        parts = Argument(name, "prepared", product.weight, str(w_rows * row + w_rows), filled=filled)
        return cls(x, right, parts, Argument("workspace", "workspace", size=size), product.transposed)

    def arguments(self, others: list[Argument], split_before: bool) -> list[Argument]:
        """All pointers in order, each once: the operands, unless they were split before, then those of the maps behind the
        product."""
        first = [] if split_before else list(dict.fromkeys((self.x, self.right)))
        parts = [self.parts] if self.parts else []
        return [*first, *parts, *(a for a in others if a not in first), self.workspace]


def _split(k: int, pitch: int, planes: int) -> str:
    """The call that splits rows of this length."""
    for longest, threads, groups in _SPLITS:
        if pitch <= longest:
            return f"split_rows<{k}, {pitch}, {threads}, {groups}, {planes}>"
    return f"split_long_rows<{k}, {pitch}, 1024, {planes}>"


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
