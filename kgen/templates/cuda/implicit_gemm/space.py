"""The space of convolutions in CUDA: tiles, the time that they take, and what rules them out."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

from kgen.candidate import Params
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Schedule, Task, parameter
from kgen.compiler.graph.convolutions import Convolution, Line, Residue
from kgen.compiler.graph.dtypes import DTYPES, is_narrow
from kgen.compiler.loops.expr import Expr, calls, has_sign
from kgen.compiler.loops.functions import FUNCTIONS
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Map, Program
from kgen.devices.hardware import Hardware
from kgen.devices.roofline import Arithmetic

_WARP_COLS = 64  # pixels; a warp's tile
_LEAST_CHANNELS = 8  # channels out of a group; with fewer, most of a product of 16 rows is thrown away
_MOST_TAPS = 31  # taps of all dimensions together: bits of a window's mask
_OVER_PIXELS = {"sum", "max", "min", "moments", "softmax"}  # reductions that warps leave parts of
_OVER_CHANNELS = {"sum", "max", "min", "softmax"}  # reductions that a block finishes
_MOST_ROWS = 256  # of weights; a block's tile has no more, and it must hold all channels that it reduces
_MOST_POOLED = 64  # outputs that are pooled together; each that a tile takes by itself has a table of its own
_MOST_EXCHANGED = 2048  # sums of a warp in shared memory at a time, so that blocks keep room for their stages
_RATE = 2.0  # millions of products a microsecond and multiprocessor; about that of all large tiles
_SECTOR = 32  # bytes
#: Sectors that a multiprocessor stores a microsecond, whole and in parts. Whole ones come at the rate of a copy. Parts are
#: those of level 1's problem 81 (benchmarks/results/kernelbench.md), measured on an H200 with elements 20 bytes apart.
_SECTORS, _PARTIAL_SECTORS = 1000.0, 600.0
_MOST_RESIDENT = 40 << 10  # bytes of weights that stay in a block's shared memory; twice that leaves stages no room
_ROOM = 4096  # bytes of shared memory of a block beside its stages: the system's, and values of rows


@dataclass(frozen=True)
class WarpTile:
    """A block's tile of the variant ``gather``: ``warps_m`` x ``warps_n`` warps, each ``16 * mma_m`` channels by 64 pixels.

    ``blocks`` run on a multiprocessor at a time. ``rate`` is how many products full tiles add up, in millions a
    microsecond and multiprocessor.
    """

    warps_m: int
    warps_n: int
    mma_m: int
    blocks: int
    rate: float

    @property
    def rows(self) -> int:
        return 16 * self.mma_m * self.warps_m

    @property
    def cols(self) -> int:
        return _WARP_COLS * self.warps_n

    @property
    def warp_cols(self) -> int:
        return _WARP_COLS

    @property
    def warp_strips(self) -> int:
        """Warps that share the same pixels."""
        return self.warps_m

    @property
    def most_sums(self) -> int:
        """Sets of sums that registers have room for: those of the tensor cores, of promotions, of pooled values."""
        return {4: 1, 2: 2, 1: 3}[self.mma_m]


@dataclass(frozen=True)
class WarpgroupTile:
    """A block's tile of the variant ``im2col``: one or two warpgroups, each ``halves`` times 64 channels by 128 pixels.

    Two of them share the pixels where the tile has 128 ``rows``, and the channels where it has 64.
    """

    rows: int
    halves: int
    blocks: int
    rate: float
    groups: int = 2

    @property
    def cols(self) -> int:
        return 64 * 128 * self.halves * self.groups // self.rows

    @property
    def stacked(self) -> bool:
        """Whether the halves of a warpgroup are channels; else they are pixels."""
        return self.groups == 1 and self.rows == 128

    @property
    def warps(self) -> int:
        """Warps that multiply."""
        return 4 * self.groups

    @property
    def warp_cols(self) -> int:
        return 128

    @property
    def warp_strips(self) -> int:
        """Warps that share the same pixels."""
        return self.rows // 16

    @property
    def most_sums(self) -> int:
        """Sets of sums that registers have room for: those of the tensor cores, of promotions, of pooled values."""
        return 3 - self.halves


Tile = WarpTile | WarpgroupTile


@dataclass(frozen=True)
class Exchange:
    """Sums that a warp exchanges at a time: ``lines`` channels of ``outputs`` neighbours, from ``pieces`` pieces of 8 windows."""

    lines: int
    pieces: int
    outputs: int
    padding: int

    @property
    def pitch(self) -> int:
        """Elements from a line to the next."""
        return self.outputs + self.padding

    @property
    def stores(self) -> int:
        """Outputs of a line that a lane stores at once: as many as leave fewest lanes idle, at most four."""
        return min((4, 3, 2, 1), key=lambda some: -(-self.outputs // (32 * some)) * some)

#: The tiles of each variant by their names. After the bar stand the warps, where others have as large a tile. More of them hide
#: latencies of long chains behind the product. Fewer leave room for two blocks: one stores while the other multiplies.
TILES: dict[str, dict[str, Tile]] = {
    "direct": {
        "128x128": WarpTile(2, 2, 4, blocks=2, rate=0.7),
        "128x256": WarpTile(2, 4, 4, blocks=1, rate=0.65),
        "64x256": WarpTile(1, 4, 4, blocks=2, rate=0.65),
        "64x128": WarpTile(2, 2, 2, blocks=3, rate=0.6),
        "32x256": WarpTile(1, 4, 2, blocks=2, rate=0.5),
        "16x256": WarpTile(1, 4, 1, blocks=3, rate=0.3),
    },
    "gather": {
        "256x128": WarpTile(4, 2, 4, blocks=1, rate=1.4),
        "128x256": WarpTile(2, 4, 4, blocks=1, rate=1.4),
        "128x128": WarpTile(2, 2, 4, blocks=2, rate=1.45),
        "64x256": WarpTile(1, 4, 4, blocks=2, rate=1.3),
        "64x128": WarpTile(2, 2, 2, blocks=3, rate=1.0),
        "64x128/8": WarpTile(4, 2, 1, blocks=2, rate=0.9),
        "32x256": WarpTile(1, 4, 2, blocks=3, rate=0.85),
        "16x256": WarpTile(1, 4, 1, blocks=4, rate=0.5),
    },
    "im2col": {
        "128x256": WarpgroupTile(128, 2, blocks=1, rate=2.2),
        "128x128": WarpgroupTile(128, 1, blocks=2, rate=2.0),
        "64x256": WarpgroupTile(64, 1, blocks=2, rate=1.8),
        "128x128/4": WarpgroupTile(128, 2, blocks=2, rate=2.1, groups=1),
        "64x256/4": WarpgroupTile(64, 2, blocks=2, rate=1.9, groups=1),
    },
}

#: Reach of TMA's im2col mode, by the dimensions of an image: of taps from a window's first element, and of windows from the
#: image's edges.
_REACH = {1: (65535, 32767), 2: (255, 127), 3: (31, 15)}
_MOST_STRIDE = 8  # elements; between windows, for TMA


@dataclass(frozen=True)
class Together:
    """Residues of the last dimension whose outputs a warp has and stores together: ``step`` neighbours for each place of the window.

    ``sides`` are those of them that have taps. They share the windows of all. 16 rows of weights are ``channels`` rows of each side.
    """

    step: int
    sides: tuple[Residue, ...]

    @property
    def channels(self) -> int:
        return 16 // len(self.sides)

    @property
    def pair(self) -> bool:
        """Whether a lane has both neighbours in its two rows of a strip."""
        return self.step == len(self.sides) == 2

    @property
    def line(self) -> Residue:
        """All outputs of the dimension, ``step`` at a time, with a tap for each input that a side takes."""
        reached = [side.offset + tap * side.offset_step for side in self.sides for tap in range(side.taps)]
        least, most = min(reached), max(reached)
        between = math.gcd(*(most - offset for offset in reached)) or 1
        return Residue(0, self.step, max(side.count for side in self.sides), 1, (most - least) // between + 1, most, -between, 0, 0)


def together(program: Program) -> Together | None:
    """The residues of a transposed convolution's last dimension as one; ``None`` where they cannot be stored together."""
    window = program.contraction.window
    last = window.lines[-1]
    if not window.transposed or last.stride == 1 or last.out < last.stride or window.pool > 1 or not _stores_pixels(program):
        return None
    residues = last.residues(True)
    tapped = tuple(of for of in residues if of.taps)
    found = Together(last.stride, residues if last.stride == 2 and tapped else tapped)
    # A warp reduces rows of pairs alone.
    if not 1 <= len(tapped) <= 16 or (program.reductions and not found.pair):
        return None
    taps = sum(line.kernel for line in window.lines[:-1]) + found.line.taps
    return found if taps <= _MOST_TAPS else None


def _stores_pixels(program: Program) -> bool:
    """Whether each pixel of each channel is stored."""
    return any(store.level == ELEMENT for store in program.stores)


def beside(window: Convolution, tile: Tile) -> int:
    """Outputs of a pooling window that lie beside each other in a warp's tile, as they have the same weights; 1 where they have not."""
    return window.pool if window.alike and tile.warp_cols // 8 % window.pool == 0 else 1


def residues_of(program: Program, tile: Tile, row: Together | None) -> tuple[tuple[Residue, ...], ...]:
    """The residues of the outputs that share their windows: those of a ``row`` that is stored together count as one."""
    window = program.contraction.window
    if row is None:
        return window.residues[:1] if beside(window, tile) > 1 else window.residues
    return tuple(itertools.product(*(line.residues(True) for line in window.lines[:-1]), [row.line]))


@dataclass(frozen=True, kw_only=True)
class ImplicitGemm(Schedule):
    """The sizes of a convolution's kernels.

    Channels of a group are copied in ``chunk`` at once, ``chunks`` of them; ``k`` is the length of all products with its padding.
    """

    variant: str = parameter("how windows come to the tensor cores")
    residues: str = parameter("outputs of a row whose taps differ: stored together or apart")
    products: int = parameter("products on tensor cores that make one in float32")
    tile: str = parameter("channels and pixels that a block works on")
    block_k: int = parameter("elements of k that a stage has")
    stages: int = parameter("tiles that are loaded ahead")
    division: str = parameter("divisions behind the product: exact, or within two units in the last place")

    @property
    def flags(self) -> tuple[str, ...]:
        return ("-prec-div=false",) if self.division == "fast" else ()  # two units in the last place

    @property
    def im2col(self) -> bool:
        """Whether TMA brings the windows."""
        return self.variant == "im2col"

    @property
    def terms(self) -> int:
        """Float16 terms of each operand."""
        return 2 if self.products == 3 else 1

    @property
    def window(self) -> Convolution:
        return self.program.contraction.window

    @property
    def stored(self) -> bool:
        """Whether each pixel of each channel is stored."""
        return _stores_pixels(self.program)

    @property
    def results(self) -> int:
        """Results of all reductions."""
        return sum(len(r.names) for r in self.program.reductions)

    @property
    def across(self) -> bool:
        """Whether reductions are over channels."""
        return self.program.contraction.across

    @property
    def narrow(self) -> bool:
        """Whether operands are of a half type, and multiplied as they are."""
        return is_narrow(self.program.contraction.dtype)

    @cached_property
    def all_residues(self) -> tuple[tuple[Residue, ...], ...]:
        """The residues of the outputs that share their windows."""
        return residues_of(self.program, self.of_tile, self.together)

    @cached_property
    def together(self) -> Together | None:
        """The residues of the last dimension that are stored together."""
        return together(self.program) if self.residues == "together" else None

    @property
    def pair(self) -> bool:
        return self.together is not None and self.together.pair

    @property
    def rows(self) -> int:
        """Rows of weights of a panel."""
        return rows_of(self.program, self.together)

    @property
    def beside(self) -> int:
        return beside(self.window, self.of_tile)

    @property
    def passes(self) -> int:
        """Sums that a tile takes one after another, as they are pooled."""
        return self.window.pool // self.beside

    @property
    def pixels(self) -> int:
        """Pixels of the output that a tile has."""
        return self.of_tile.cols // self.beside

    @property
    def warp_pixels(self) -> int:
        return self.of_tile.warp_cols // self.beside

    @property
    def sums(self) -> int:
        """Sets of sums that a thread holds."""
        return 1 + (self.products == 3) + (self.passes > 1)

    @property
    def of_tile(self) -> Tile:
        return TILES[self.variant][self.tile]

    @property
    def staged(self) -> bool:
        """Whether images are staged before they are multiplied."""
        return self.variant != "direct"

    @property
    def resident(self) -> bool:
        """Whether all weights stay in a block's shared memory, beside the stages of images."""
        return not self.staged and self.packed_rows == self.of_tile.rows and self.weight_bytes <= _MOST_RESIDENT

    @property
    def weight_bytes(self) -> int:
        """Bytes of shared memory for the weights of a tile's rows of the variant ``direct``, of all steps."""
        block_k = self.block_k
        return 4 * self.of_tile.rows * (block_k + 4) * (self.k // block_k)

    @property
    def scaled(self) -> bool:
        """Whether factors are scaled to float16, instead of multiplied as they are."""
        return self.staged and not self.narrow

    @property
    def paired(self) -> bool:
        """Whether both terms of x lie beside each other, in 16 bytes, and a row of weights has ``w_hi`` twice and ``w_lo`` once.

        Copies bound a gather of few channels: level 1's problem 54 of KernelBench took 1.02 instead of 1.26 ms (H200). With
        eight channels products bound it, and the terms apart are 5 to 10% faster.
        """
        return self.variant == "gather" and self.terms == 2 and self.chunk == 4

    @property
    def chunk(self) -> int:
        return 4 if self.window.channels_in <= 4 and self.variant == "gather" else 8

    @property
    def chunks(self) -> int:
        if self.im2col:  # a stage has channels of one tap
            return _multiple(self.window.channels_in, self.block_k) // self.chunk
        return -(-self.window.channels_in // self.chunk)

    @property
    def channels_out(self) -> int:
        return self.window.groups * self.window.channels_out

    @property
    def k(self) -> int:
        most = max(math.prod(line.taps for line in residue) for residue in self.all_residues)
        if self.paired:  # two terms of x, by three halves as many of w
            return _multiple(2 * most * self.chunks * self.chunk, self.block_k) * 3 // 2
        products = self.products if self.staged else 1  # those of TF32 terms come from one stage
        return _multiple(products * most * self.chunks * self.chunk, self.block_k)

    @property
    def panels(self) -> int:
        """Matrices of weights: one for each group and residue."""
        return self.window.groups * len(self.all_residues)

    @property
    def packed_rows(self) -> int:
        return self.panels * _multiple(self.rows, self.of_tile.rows)

    @property
    def packed_elements(self) -> int:
        """Elements of the operands' dtype that packed weights take; those of float32 have exponents."""
        return self.packed_rows * (self.k // 2 + 1 if self.scaled else self.k)

    @property
    def most_pixels(self) -> int:
        """Pixels of the largest residue."""
        return max(math.prod(line.count for line in residue) for residue in self.all_residues)

    @property
    def pixels_at_once(self) -> int:
        return next(width for width in (8 if self.narrow else 4, 4, 2, 1) if self.window.pixels_in % width == 0)

    @property
    def chunk_lanes(self) -> int:
        """Lanes of a warp that stage neighbouring chunks of channels."""
        return min(4, 1 << (self.window.groups * self.chunks - 1).bit_length())

    @property
    def staged_halves(self) -> int:
        """Elements of a staged image."""
        return self.terms * self.window.pixels_in * self.window.groups * self.chunks * self.chunk

    @property
    def image_floats(self) -> int:
        """Float32 elements of the workspace for an image: staged, and of float32 the largest magnitudes of its parts, and its exponent."""
        if not self.scaled:
            return self.staged_halves // 2 if self.staged else 0
        lanes = self.chunk_lanes
        warps = -(-(self.window.pixels_in // self.pixels_at_once) // (32 // lanes)) * -(-(self.window.groups * self.chunks) // lanes)
        return -(-self.staged_halves // 2) + -(-warps // 8) + 1

    @property
    def exchanges(self) -> bool:
        """Whether lanes exchange sums by way of shared memory, since neighbouring pixels are not aligned for vectors."""
        return self.stored and not self.across and self.vec == 1

    @property
    def exchange(self) -> Exchange:
        row = self.together
        lines, step = (16, 1) if row is None else (row.channels, row.step)
        most = min(self.warp_pixels // 8, 8)
        pieces = next(some for some in (8, 4, 2, 1) if some <= most and (some == 1 or lines * 8 * some * step <= _MOST_EXCHANGED))
        return Exchange(lines, pieces, 8 * pieces * step, 16 if self.pair else 8)

    @property
    def exchange_floats(self) -> int:
        """Elements of shared memory that a warp exchanges sums by."""
        return self.exchange.lines * self.exchange.pitch if self.exchanges else 0

    @property
    def sector(self) -> int:
        """Elements of an output in a sector of memory."""
        stored = [store for store in self.program.stores if store.level == ELEMENT]
        return _SECTOR // DTYPES[stored[0].dtype].nbytes if stored else _SECTOR

    @property
    def classes(self) -> int:
        """Classes of channels by the place in a sector where their pixels begin, where stores of a class begin with a sector.

        0 where they do not: neighbours lie in one lane, or classes are so many that lanes would look up pixels for each channel.
        At stride 2 few sectors are written in parts as it is; looking up took 7% of a transposed convolution with GELU (H100).
        """
        found = self.sector // math.gcd(self.sector, self.window.pixels_out)
        return found if self.exchanges and self.together is not None and self.together.step > 2 and found <= 2 else 0

    @property
    def rows_of_image(self) -> int:
        """Rows of the program that belong to an image."""
        return self.window.pixels_out if self.across else self.channels_out

    @property
    def found_floats(self) -> int:
        """Elements of shared memory for what warps find of all channels: of each strip of rows, result and output."""
        sides = 2 if self.pair else 1
        return self.of_tile.warp_strips * self.results * sides * self.pixels if self.across else 0

    @property
    def slots(self) -> int:
        """Parts of an image whose pixels one warp reduces."""
        return len(self.all_residues) // self.passes * -(-self.most_pixels // self.pixels) * (self.pixels // self.warp_pixels)

    @property
    def vec(self) -> int:
        """Neighbouring pixels that one instruction stores: four, where all images and rows begin at multiples of that."""
        if self.together is not None:
            return 4 if self.pair and self.window.lines[-1].out % 4 == 0 else 1
        whole = not self.scattered and self.warp_pixels % 16 == 0 and self.window.pixels_out % 4 == 0
        return 4 if whole else 1

    def shared_bytes(self, stages: int) -> int:
        stage = 2 * self.block_k * (self.of_tile.rows + self.of_tile.cols)
        exchange = 4 * self.exchange_floats
        if self.im2col:
            return stages * (stage + 16) + 1024 + self.of_tile.warps * exchange + 4 * self.found_floats
        warps = self.of_tile.warps_m * self.of_tile.warps_n
        if not self.staged:
            block_k = self.block_k
            stage = 4 * block_k * (self.of_tile.cols + 8)
            weights = self.weight_bytes if self.resident else stages * 4 * self.of_tile.rows * (block_k + 4)
            return weights + stages * stage + warps * exchange + 4 * self.found_floats
        stage += self.block_k * self.of_tile.rows if self.paired else 0
        entries = self.k // (3 * self.chunk if self.paired else self.chunk)
        return stages * stage + len(self.all_residues) * entries * 8 + warps * exchange + 4 * self.found_floats

    @property
    def scattered(self) -> bool:
        """Whether a tile's pixels do not lie beside each other in the image."""
        return len(self.all_residues) > self.passes or self.together is not None

    @property
    def blocks(self) -> int:
        """Blocks on a multiprocessor; sums between promotions take registers."""
        small = isinstance(self.of_tile, WarpTile) and self.of_tile.mma_m == 1
        promoted = self.products == 3 and not small
        return max(1, self.of_tile.blocks - 1) if self.passes > 1 or promoted else self.of_tile.blocks

    def fits(self, stages: int) -> bool:
        """Whether as many blocks as the tile's registers allow have room for so many stages."""
        taken, hardware = self.shared_bytes(stages), self.task.hardware
        room = hardware.shared_bytes_per_multiprocessor // self.blocks - _ROOM
        return taken <= min(room, hardware.shared_bytes_per_block)


def _multiple(value: int, of: int) -> int:
    return -(-value // of) * of


def takes(program: Program) -> bool:
    """Convolutions of more than a few channels out a group, with maps behind them, and reductions over pixels or channels."""
    of = program.contraction
    if of is None or of.window is None or program.moments_of or not program.floats:
        return False
    if of.before is not None and together(program) is not None:
        return False  # pixels that are NaN are computed again from x itself
    if not _pools(program):
        return False
    kinds = _OVER_CHANNELS if of.across else _OVER_PIXELS
    passes = passes_of(program, keep=True).passes
    if not kinds.issuperset(r.kind for r in program.reductions) or len(passes) > (2 if of.across else 1):
        return False
    if any(later.reductions for later in passes[1:]) or (of.across and (of.window.groups > 1 or rows_of(program, together(program)) > _MOST_ROWS)):
        return False
    if of.across and any(store.level == ELEMENT for store in passes[0].stores):
        return False  # the block stores channels only behind what it found of all of them
    window = of.window
    staged = 2 * window.pixels_in * window.groups * _multiple(window.channels_in, 64)
    return (
        window.channels_out >= _LEAST_CHANNELS
        and sum(line.kernel for line in window.lines) <= _MOST_TAPS
        and max(staged, window.pixels_out * window.groups * window.channels_out) < 1 << 31
    )


def _pools(program: Program) -> bool:
    """Whether pooled values are maxima or sums of what becomes of sums by values of their channels alone."""
    of, window = program.contraction, program.contraction.window
    if window.pool > _MOST_POOLED:
        return False
    if window.transposed and window.pool > 1 and any(line.pool % line.stride for line in window.lines):
        return False
    others = {x.name for x in program.loads if x.level == ELEMENT and (not of.across or x.access.takes_row)}
    for step in program.steps:
        others |= {step.name} if isinstance(step, Map) and others & set(step.args) else set()
    return all(
        pool.kind in ("sum", "max") and all(isinstance(step, Map) for step in pool.body) and others.isdisjoint(pool.args)
        for pool in program.windows
    )


def lacks(hardware: Hardware) -> str:
    return "" if hardware.capability >= 80 else "convolutions of our own need the tensor cores of sm_80 or later"


def arithmetic(params: Params) -> Arithmetic:
    """One or three products of float16 terms."""
    return Arithmetic("float16", int(params["products"]))


def space(task: Task) -> Space:
    program, hardware = task.program(), task.hardware
    window = program.contraction.window
    divides = any(_divides(step.expression) for step in program.steps if isinstance(step, Map))

    row = together(program)
    rows = {"apart": None} if row is None else {"together": row, "apart": None}
    takes_us = {residues: _microseconds(program, of) for residues, of in rows.items()}

    def us(variant: str, residues: str, tile: str) -> float:
        return _products(program, TILES[variant][tile], rows[residues]) / TILES[variant][tile].rate

    least_rows = {residues: rows_of(program, of) if program.contraction.across else 1 for residues, of in rows.items()}

    def axes(variant: str, products: tuple[int, ...], block_k: tuple[int, ...], stages: tuple[int, ...]) -> list[tuple[Axis, ...]]:
        divisions = ("fast", "exact") if divides else ("exact",)
        return [
            (
                Axis("variant", (variant,)), Axis("residues", (residues,)), Axis("products", products),
                Axis("tile", tuple(sorted(TILES[variant], key=lambda tile: us(variant, residues, tile)))), Axis("block_k", block_k),
                Axis("stages", stages), Axis("division", divisions),
            )
            for residues in sorted(rows, key=lambda residues: takes_us[residues])
        ]  # fmt: skip

    half = is_narrow(program.contraction.dtype)
    products = (1,) if half else (1, 3)
    gather = axes("gather", products, (64, 32), (4, 3, 2))
    im2col = axes("im2col", products, (64, 32, 16), (6, 5, 4, 3, 2))
    variants = [*im2col, *gather] if hardware.capability == 90 else gather
    if _is_direct(program):
        # Where weights stay, two stages took 9% less time than four (level 1's problem 87 of KernelBench, H200).
        variants = [*axes("direct", products, (32,), (2, 3, 4)), *variants]
    least = {
        (v, residues): min((us(v, residues, name) for name, tile in tiles.items() if tile.rows >= least_rows[residues]), default=0.0)
        for v, tiles in TILES.items()
        for residues in rows
    }
    room = ("variant", "residues", "products", "tile", "block_k", "stages")
    constraints = (
        Constraint("one_product", ("products",),
            "one product of float16 terms is only as accurate as TF32, and PyTorch's own convolution is more exact",
            lambda s: s.products == 3 or half or task.tf32),
        Constraint("registers", ("variant", "residues", "products", "tile"),
            "so many sums leave no registers for those between promotions, or for pooled values",
            lambda s: s.sums <= s.of_tile.most_sums),
        Constraint("all_channels", ("variant", "residues", "tile"),
            "a block reduces all channels of its pixels, and the tile has fewer",
            lambda s: s.of_tile.rows >= least_rows[s.residues]),
        Constraint("partial_sectors", ("residues",),
            "the other way to store residues takes less than two thirds of the time, by its products and the sectors that it writes",
            lambda s: takes_us[s.residues] <= 1.5 * min(takes_us.values())),
        Constraint("idle_tile", ("variant", "residues", "products", "tile"),
            "another tile takes less than two thirds of the time, since less of it lies beyond the channels and pixels",
            lambda s: s.products == 3 or us(s.variant, s.residues, s.tile) <= 1.5 * least[s.variant, s.residues]),
        Constraint("window_reach", ("variant", "residues", "tile"),
            "TMA takes windows no further apart, and taps no further from each other",
            lambda s: not s.im2col or _in_reach(program, s.of_tile, s.together)),
        Constraint("idle_channels", ("variant", "block_k"), "more than a quarter of a stage's channels would be zeros",
            lambda s: not s.im2col or 4 * _multiple(window.channels_in, s.block_k) <= 5 * window.channels_in),
        Constraint("short_stages", ("variant", "block_k"), "the channels fill stages of twice the length",
            lambda s: not s.im2col or s.block_k != 16 or window.channels_in % 32 != 0),
        Constraint("short_k", ("variant", "residues", "products", "tile", "block_k"),
            "the last stage would have more zeros than elements of k",
            lambda s: s.im2col or s.block_k == 32 or replace(s, block_k=32).k > 64),
        Constraint("shared_memory", room,
            "the stages need more shared memory than the blocks on a multiprocessor can have",
            lambda s: s.fits(s.stages)),
        Constraint("more_stages", room,
            "as many blocks have room for another stage, which takes nothing from what they read again",
            lambda s: s.resident or s.stages == (6 if s.im2col else 4) or not s.fits(s.stages + 1)),
    )
    first, *others = variants
    return Space(partial(ImplicitGemm, task), first, constraints, tuple(others))


def _is_direct(program: Program) -> bool:
    """Whether each output has one element of the kernel and the input in its own place, and rows of pixels begin at 16 bytes."""
    of = program.contraction
    lines = of.window.lines
    itself = all(line.kernel == line.stride == line.pool == 1 and line.padding == 0 and line.size == line.out for line in lines)
    return itself and of.before is None and not is_narrow(of.dtype) and of.window.pixels_in % 4 == 0


def _divides(expression: Expr) -> bool:
    """Whether an expression divides, or a function that it calls."""
    return has_sign(expression, "/") or any(_divides(FUNCTIONS[name].body) for name in calls(expression) if name in FUNCTIONS)


def _in_reach(program: Program, tile: Tile, row: Together | None) -> bool:
    """Whether TMA's im2col mode takes the windows."""
    window = program.contraction.window
    taps, edge = _REACH[len(window.lines)]
    pooled = beside(window, tile) > 1
    return all(
        line.stride <= _MOST_STRIDE
        and max(0, line.taps - 1) * abs(line.offset_step) + (of.pool - 1) * shift(of, window) * pooled <= taps
        and -edge - 1 <= first <= edge
        and -edge - 1 <= last <= edge
        for residue in residues_of(program, tile, row)
        for line, of in zip(residue, window.lines)
        for first, last in [(least_offset(line), least_offset(line) + (line.count - 1) * line.stride - of.size + 1)]
    )


def shift(line: Line, window: Convolution) -> int:
    """Inputs from the window of an output to that of the next one, where both have the same weights."""
    return 1 if window.transposed else line.stride


def rows_of(program: Program, row: Together | None) -> int:
    """Rows of weights of a panel: one for each channel out; of a ``row`` that is stored together, one for each of its sides."""
    channels = program.contraction.window.channels_out
    return channels if row is None else 16 * -(-channels // row.channels)


def least_offset(line: Residue) -> int:
    """The offset of the tap that lies furthest to the front."""
    return line.offset + min(0, max(0, line.taps - 1) * line.offset_step)


def _products(program: Program, tile: Tile, row: Together | None) -> float:
    """Products of float16 that whole tiles make for one image and one element of k, those beyond the edges among them."""
    window = program.contraction.window
    pixels, pooled = max(math.prod(line.count for line in residue) for residue in residues_of(program, tile, row)), beside(window, tile)
    return float(_multiple(rows_of(program, row), tile.rows) * _multiple(pixels * pooled, tile.cols) * (window.pool // pooled))


def _microseconds(program: Program, row: Together | None) -> float:
    """Time of a multiprocessor for the products and the stores of one image, whose residues are those of a ``row`` together or apart."""
    of, window = program.contraction, program.contraction.window
    alike = window.residues if row is None else itertools.product(*(line.residues(True) for line in window.lines[:-1]), [row.line])
    products = sum(math.prod(line.count * line.taps for line in residue) for residue in alike)
    step = window.lines[-1].stride if window.transposed and row is None else 1  # outputs from a store's element to its next
    size = max((DTYPES[store.dtype].nbytes for store in program.stores if store.level == ELEMENT), default=0)
    sectors = min(1.0, size * step / _SECTOR) * window.pixels_out * window.channels_out * window.groups
    made = products * rows_of(program, row) * window.groups * window.channels_in / (_RATE * 1e6)
    return made + sectors / (_SECTORS if step == 1 else _PARTIAL_SECTORS)
