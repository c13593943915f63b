"""The space of convolutions in CUDA: tiles, the time that they take, and what rules them out."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

from kgen.candidate import Params
from kgen.compiler.convolutions import Convolution, Line, Residue
from kgen.compiler.dtypes import HALF
from kgen.compiler.loops import ELEMENT, Map, Program
from kgen.compiler.pointwise import FUNCTIONS
from kgen.compiler.schedule import schedule
from kgen.evaluator.protocol import Accuracy
from kgen.hardware import Hardware
from kgen.roofline import Arithmetic
from kgen.templates import Task
from kgen.templates.space import Axis, Constraint, Space

_WARP_COLS = 64  # pixels; a warp's tile
_LEAST_CHANNELS = 8  # channels out of a group; with fewer, most of a product of 16 rows is thrown away
_MOST_TAPS = 31  # taps of all dimensions together: bits of a window's mask
_OVER_PIXELS = {"sum", "max", "min", "moments", "softmax"}  # reductions that warps leave parts of
_OVER_CHANNELS = {"sum", "max", "min", "softmax"}  # reductions that a block finishes
_MOST_ROWS = 256  # of weights; a block's tile has no more, and it must hold all channels that it reduces
_MOST_POOLED = 64  # outputs that are pooled together; each that a tile takes by itself has a table of its own
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

#: The tiles of each variant by their names. After the bar stand the warps, where others have as large a tile. More of them hide
#: latencies of long chains behind the product. Fewer leave room for two blocks: one stores while the other multiplies.
TILES: dict[str, dict[str, Tile]] = {
    "direct": {
        "128x128": WarpTile(2, 2, 4, blocks=2, rate=0.7),
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


def tile_of(params: Params) -> Tile:
    return TILES[str(params["variant"])][str(params["tile"])]


def pair_of(program: Program) -> tuple[Residue, Residue] | None:
    """The two residues of the last dimension, where the stride is 2: their outputs are neighbours, and stored together."""
    window = program.contraction.window
    last = window.lines[-1]
    if not window.transposed or last.stride != 2 or last.out < 2 or window.pool > 1 or not _stores_pixels(program):
        return None
    left, right = last.residues(True)
    return (left, right) if left.taps + right.taps and {left.offset_step, right.offset_step} == {-1} else None


def _stores_pixels(program: Program) -> bool:
    """Whether each pixel of each channel is stored."""
    return any(store.level == ELEMENT for store in program.stores)


def beside(window: Convolution, tile: Tile) -> int:
    """Outputs of a pooling window that lie beside each other in a warp's tile, as they have the same weights; 1 where they have not."""
    alike = all(len({(of.taps, of.element) for of in line.residues(window.transposed)}) == 1 for line in window.lines)
    return window.pool if alike and tile.warp_cols // 8 % window.pool == 0 else 1


def residues_of(program: Program, tile: Tile) -> tuple[tuple[Residue, ...], ...]:
    """The residues of the outputs that share their windows: a pair counts as one, with the taps of both."""
    window, pair = program.contraction.window, pair_of(program)
    if pair is None:
        return window.residues[:1] if beside(window, tile) > 1 else window.residues
    reached = [offset for of in pair for offset in range(of.offset, of.offset - of.taps, -1)]
    both = Residue(0, 2, pair[0].count, 1, max(reached) - min(reached) + 1, max(reached), -1, 0, 0)
    return tuple(itertools.product(*(line.residues(True) for line in window.lines[:-1]), [both]))


def terms_of(params: Params) -> int:
    """Float16 terms of each operand."""
    return 2 if params["products"] == 3 else 1


@dataclass(frozen=True)
class Sizes:
    """The sizes of a convolution's kernels for one combination of parameters.

    Channels of a group are copied in ``chunk`` at once, ``chunks`` of them; ``k`` is the length of all products with its padding.
    """

    program: Program
    params: Params

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
    def half(self) -> bool:
        """Whether operands are of a half type, and multiplied as they are."""
        return self.program.contraction.dtype in HALF

    @property
    def residues(self) -> tuple[tuple[Residue, ...], ...]:
        return residues_of(self.program, self.tile)

    @property
    def pair(self) -> tuple[Residue, Residue] | None:
        return pair_of(self.program)

    @property
    def rows(self) -> int:
        """Rows of weights of a panel."""
        return rows_of(self.program)

    @property
    def beside(self) -> int:
        return beside(self.window, self.tile)

    @property
    def passes(self) -> int:
        """Sums that a tile takes one after another, as they are pooled."""
        return self.window.pool // self.beside

    @property
    def pixels(self) -> int:
        """Pixels of the output that a tile has."""
        return self.tile.cols // self.beside

    @property
    def warp_pixels(self) -> int:
        return self.tile.warp_cols // self.beside

    @property
    def sums(self) -> int:
        """Sets of sums that a thread holds."""
        return 1 + (self.params["products"] == 3) + (self.passes > 1)

    @property
    def tile(self) -> Tile:
        return tile_of(self.params)

    @property
    def staged(self) -> bool:
        """Whether images are staged before they are multiplied."""
        return self.params["variant"] != "direct"

    @property
    def scaled(self) -> bool:
        """Whether factors are scaled to float16, instead of multiplied as they are."""
        return self.staged and not self.half

    @property
    def chunk(self) -> int:
        return 4 if self.window.channels_in <= 4 and self.params["variant"] == "gather" else 8

    @property
    def chunks(self) -> int:
        if self.params["variant"] == "im2col":  # a stage has channels of one tap
            return _multiple(self.window.channels_in, int(self.params["block_k"])) // self.chunk
        return -(-self.window.channels_in // self.chunk)

    @property
    def channels_out(self) -> int:
        return self.window.groups * self.window.channels_out

    @property
    def k(self) -> int:
        most = max(math.prod(line.taps for line in residue) for residue in self.residues)
        products = int(self.params["products"]) if self.staged else 1  # those of TF32 terms come from one stage
        return _multiple(products * most * self.chunks * self.chunk, int(self.params["block_k"]))

    @property
    def panels(self) -> int:
        """Matrices of weights: one for each group and residue."""
        return self.window.groups * len(self.residues)

    @property
    def packed_rows(self) -> int:
        return self.panels * _multiple(self.rows, self.tile.rows)

    @property
    def packed_elements(self) -> int:
        """Elements of the operands' dtype that packed weights take; those of float32 have exponents."""
        return self.packed_rows * (self.k // 2 + 1 if self.scaled else self.k)

    @property
    def most_pixels(self) -> int:
        """Pixels of the largest residue."""
        return max(math.prod(line.count for line in residue) for residue in self.residues)

    @property
    def pixels_at_once(self) -> int:
        return next(width for width in (8 if self.half else 4, 4, 2, 1) if self.window.pixels_in % width == 0)

    @property
    def chunk_lanes(self) -> int:
        """Lanes of a warp that stage neighbouring chunks of channels."""
        return min(4, 1 << (self.window.groups * self.chunks - 1).bit_length())

    @property
    def staged_halves(self) -> int:
        """Elements of a staged image."""
        return terms_of(self.params) * self.window.pixels_in * self.window.groups * self.chunks * self.chunk

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
    def exchange_floats(self) -> int:
        """Elements of shared memory that a warp exchanges sums by: 16 rows of 64 sums or of all that it has, or 8 of 128."""
        return 16 * (min(self.warp_pixels, 64) + 8) if self.exchanges else 0

    @property
    def rows_of_image(self) -> int:
        """Rows of the program that belong to an image."""
        return self.window.pixels_out if self.across else self.channels_out

    @property
    def found_floats(self) -> int:
        """Elements of shared memory for what warps find of all channels: of each strip of rows, result and output."""
        sides = 1 if self.pair is None else 2
        return self.tile.warp_strips * self.results * sides * self.pixels if self.across else 0

    @property
    def slots(self) -> int:
        """Parts of an image whose pixels one warp reduces."""
        return len(self.residues) // self.passes * -(-self.most_pixels // self.pixels) * (self.pixels // self.warp_pixels)

    @property
    def vec(self) -> int:
        """Neighbouring pixels that one instruction stores: four, where all images and rows begin at multiples of that."""
        if self.pair:
            return 4 if self.window.lines[-1].out % 4 == 0 else 1
        whole = not self.scattered and self.warp_pixels % 16 == 0 and self.window.pixels_out % 4 == 0
        return 4 if whole else 1

    def shared_bytes(self, stages: int) -> int:
        stage = 2 * int(self.params["block_k"]) * (self.tile.rows + self.tile.cols)
        exchange = 4 * self.exchange_floats
        if self.params["variant"] == "im2col":
            return stages * (stage + 16) + 1024 + self.tile.warps * exchange + 4 * self.found_floats
        warps = self.tile.warps_m * self.tile.warps_n
        if not self.staged:
            block_k = int(self.params["block_k"])
            stage = 4 * (self.tile.rows * (block_k + 4) + block_k * (self.tile.cols + 8))
            return stages * stage + warps * exchange + 4 * self.found_floats
        return stages * stage + len(self.residues) * self.k // self.chunk * 8 + warps * exchange + 4 * self.found_floats

    @property
    def scattered(self) -> bool:
        """Whether a tile's pixels do not lie beside each other in the image."""
        return len(self.residues) > self.passes or self.pair is not None

    @property
    def blocks(self) -> int:
        """Blocks on a multiprocessor; sums between promotions take registers."""
        small = isinstance(self.tile, WarpTile) and self.tile.mma_m == 1
        promoted = self.params["products"] == 3 and not small
        return max(1, self.tile.blocks - 1) if self.passes > 1 or promoted else self.tile.blocks

    def fits(self, stages: int, hardware: Hardware) -> bool:
        """Whether as many blocks as the tile's registers allow have room for so many stages."""
        taken = self.shared_bytes(stages)
        room = hardware.shared_bytes_per_multiprocessor // self.blocks - _ROOM
        return taken <= min(room, hardware.shared_bytes_per_block)


def _multiple(value: int, of: int) -> int:
    return -(-value // of) * of


def takes(program: Program) -> bool:
    """Convolutions of more than a few channels out a group, with maps behind them, and reductions over pixels or channels."""
    of = program.contraction
    if of is None or of.window is None or program.moments_of or not program.floats:
        return False
    if of.before is not None and pair_of(program) is not None:
        return False  # pixels that are NaN are computed again from x itself
    if not _pools(program):
        return False
    kinds = _OVER_CHANNELS if of.across else _OVER_PIXELS
    passes = schedule(program, keep=True).passes
    if not kinds.issuperset(r.kind for r in program.reductions) or len(passes) > (2 if of.across else 1):
        return False
    if any(later.reductions for later in passes[1:]) or (of.across and (of.window.groups > 1 or rows_of(program) > _MOST_ROWS)):
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
    others = {x.name for x in program.loads if x.level == ELEMENT and (not of.across or "row" in x.access.index())}
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
    program, hardware, accuracy = task.plan.program(task.kernel), task.hardware, task.accuracy
    window = program.contraction.window
    divides = any(_divides(step.expression) for step in program.steps if isinstance(step, Map))

    def us(variant: str, tile: str) -> float:
        return _products(program, TILES[variant][tile]) / TILES[variant][tile].rate

    least_rows = rows_of(program) if program.contraction.across else 1

    def axes(variant: str, products: tuple[int, ...], block_k: tuple[int, ...], stages: tuple[int, ...]) -> tuple[Axis, ...]:
        tiles = tuple(sorted(TILES[variant], key=lambda tile: us(variant, tile)))
        return (
            Axis("variant", (variant,)), Axis("products", products), Axis("tile", tiles), Axis("block_k", block_k),
            Axis("stages", stages), Axis("division", ("fast", "exact") if divides else ("exact",)),
        )  # fmt: skip

    half = program.contraction.dtype in HALF
    products = (1,) if half else (1, 3)
    gather = axes("gather", products, (64, 32), (4, 3, 2))
    im2col = axes("im2col", products, (64, 32, 16), (6, 5, 4, 3, 2))
    variants = [im2col, gather] if hardware.capability == 90 else [gather]
    if _is_direct(program):
        variants.insert(0, axes("direct", products, (32,), (4, 3, 2)))
    least = {v: min((us(v, name) for name, tile in tiles.items() if tile.rows >= least_rows), default=0.0) for v, tiles in TILES.items()}
    constraints = (
        Constraint(
            "one_product",
            "one product of float16 terms is only as accurate as TF32, and the accuracy class asks for more",
            lambda p: p["products"] == 3 or half or accuracy in (Accuracy.TF32, Accuracy.PYTORCH),
        ),
        Constraint(
            "registers",
            "so many sums leave no registers for those between promotions, or for pooled values",
            lambda p: Sizes(program, p).sums <= tile_of(p).most_sums,
        ),
        Constraint(
            "all_channels",
            "a block reduces all channels of its pixels, and the tile has fewer",
            lambda p: tile_of(p).rows >= least_rows,
        ),
        Constraint(
            "idle_tile",
            "another tile takes less than two thirds of the time, since less of it lies beyond the channels and pixels",
            lambda p: p["products"] == 3 or us(str(p["variant"]), str(p["tile"])) <= 1.5 * least[str(p["variant"])],
        ),
        Constraint(
            "window_reach",
            "TMA takes windows no further apart, and taps no further from each other",
            lambda p: p["variant"] != "im2col" or _in_reach(program, tile_of(p)),
        ),
        Constraint(
            "idle_channels",
            "more than a quarter of a stage's channels would be zeros",
            lambda p: p["variant"] != "im2col" or 4 * _multiple(window.channels_in, int(p["block_k"])) <= 5 * window.channels_in,
        ),
        Constraint(
            "short_stages",
            "the channels fill stages of twice the length",
            lambda p: p["variant"] != "im2col" or p["block_k"] != 16 or window.channels_in % 32 != 0,
        ),
        Constraint(
            "short_k",
            "the last stage would have more zeros than elements of k",
            lambda p: p["variant"] == "im2col" or p["block_k"] == 32 or Sizes(program, {**p, "block_k": 32}).k > 64,
        ),
        Constraint(
            "shared_memory",
            "the stages need more shared memory than the blocks on a multiprocessor can have",
            lambda p: Sizes(program, p).fits(int(p["stages"]), hardware),
        ),
        Constraint(
            "more_stages",
            "as many blocks have room for another stage",
            lambda p: int(p["stages"]) == (6 if p["variant"] == "im2col" else 4) or not Sizes(program, p).fits(int(p["stages"]) + 1, hardware),
        ),
    )
    first, *others = variants
    return Space(first, constraints, tuple(others))


def _is_direct(program: Program) -> bool:
    """Whether each output has one element of the kernel and the input in its own place, and rows of pixels begin at 16 bytes."""
    of = program.contraction
    lines = of.window.lines
    itself = all(line.kernel == line.stride == line.pool == 1 and line.padding == 0 and line.size == line.out for line in lines)
    return itself and of.before is None and of.dtype not in HALF and of.window.pixels_in % 4 == 0


def _divides(expression: str) -> bool:
    """Whether an expression divides, or a function that it calls."""
    called = re.findall(r"\w+(?=\()", expression)
    return "/" in expression or any(_divides(FUNCTIONS[name].body) for name in called if name in FUNCTIONS)


def _in_reach(program: Program, tile: Tile) -> bool:
    """Whether TMA's im2col mode takes the windows."""
    window = program.contraction.window
    taps, edge = _REACH[len(window.lines)]
    together = beside(window, tile) > 1
    return all(
        line.stride <= _MOST_STRIDE
        and max(0, line.taps - 1) * abs(line.offset_step) + (of.pool - 1) * shift(of, window) * together <= taps
        and -edge - 1 <= first <= edge
        and -edge - 1 <= last <= edge
        for residue in residues_of(program, tile)
        for line, of in zip(residue, window.lines)
        for first, last in [(least_offset(line), least_offset(line) + (line.count - 1) * line.stride - of.size + 1)]
    )


def shift(line: Line, window: Convolution) -> int:
    """Inputs from the window of an output to that of the next one, where both have the same weights."""
    return 1 if window.transposed else line.stride


def rows_of(program: Program) -> int:
    """Rows of weights of a panel: one for each channel out; of a pair 16 for each 8 channels."""
    channels = program.contraction.window.channels_out
    return channels if pair_of(program) is None else 2 * _multiple(channels, 8)


def least_offset(line: Residue) -> int:
    """The offset of the tap that lies furthest to the front."""
    return line.offset + min(0, max(0, line.taps - 1) * line.offset_step)


def _products(program: Program, tile: Tile) -> float:
    """Products of float16 that whole tiles make for one image and one element of k, those beyond the edges among them."""
    window = program.contraction.window
    pixels, together = max(math.prod(line.count for line in residue) for residue in residues_of(program, tile)), beside(window, tile)
    return float(_multiple(rows_of(program), tile.rows) * _multiple(pixels * together, tile.cols) * (window.pool // together))
