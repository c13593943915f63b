"""The space of contractions in CUDA: the tiles of each variant, the time that they take, and what rules them out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Sequence

from kgen.candidate import ParamValue, Params
from kgen.codegen.space import Axis, Constraint, Space
from kgen.codegen.template import Schedule, Task, parameter
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.loops.program import Program
from kgen.devices.hardware import Hardware
from kgen.devices.roofline import Arithmetic
from kgen.protocol import Accuracy
from kgen.templates.cuda.common import BYTES_A_US

LONGEST_ROW = 32768  # elements of a row that a block splits from its registers; longer rows are read twice
WIDEST_SPAN = 64  # columns that are reduced together; a warp finishes so many at once in all but the smallest tiles
STEP = 64  # elements of k; the leading dimension of terms is a multiple of it; 128 bytes, a step of the variant sm90

#: Elements of k; the library's tensor cores promote their sums after so many. Truncation allows no more on positive data,
#: where errors do not cancel.
_LIBRARY_INTERVAL = 128

# PyTorch's own contraction of fewer rows and shorter sums is more exact than the library's over such intervals. It shares
# the sums of a few rows among many threads.
_MANY_ROWS = 512  # rows
_LONG_K = 8192  # elements of k

#: Bytes; the most that the library's sums may take. A candidate gets some GiB beside what PyTorch needs.
_SUMS_BYTES = 1 << 30


@dataclass(frozen=True)
class _WarpgroupTile:
    """A block's tile of the variant ``sm90``: ``m_tiles`` x 64 rows, and 128 columns ``halves`` times a warpgroup.

    ``blocks`` run on a multiprocessor at a time. With ``apart``, each of its two warpgroups takes a tile of its own. Three
    warpgroups multiply all of k in turns. ``step_us`` are the microseconds that 64 of k take a tile, or two apart, on a full chip,
    measured on an H200.
    """

    m_tiles: int
    halves: int
    step_us: float
    blocks: int = 1
    apart: bool = False

    @property
    def rows(self) -> int:
        return 64 * self.m_tiles

    @property
    def cols(self) -> int:
        return 128 * self.halves * (2 if self.m_tiles == 1 else 1)

    @property
    def warpgroups(self) -> int:
        """Those that multiply: two beside each other, or one to each 64 rows."""
        return max(2, self.m_tiles)

    @property
    def alternates(self) -> bool:
        """Whether one warpgroup stores while another multiplies."""
        return self.apart or self.warpgroups > 2

    @property
    def strip(self) -> int:
        """Columns that a warp finishes at once."""
        return 128

    def shared_bytes(self, stages: int, leading_dimension: int) -> int:
        """Each stage has 128 rows of 64 of k of both terms, with four barriers. Slots of one term share the same memory."""
        return stages * (2 * 128 * 64 * 2 + 32)

    def slots(self, stages: int, terms: int, cluster: int) -> int:
        """Slots of a ring: those of two terms have 128 rows, those of one have all rows of both operands.

        Behind those of one term lie the sums that a block gets from the others of its cluster.
        """
        if self.apart:
            return stages // 2
        if self.warpgroups > 2:
            return stages - 3  # whose place two tiles of x take
        if terms == 2:
            return stages
        sums = (cluster - 1) * self.rows * self.cols * 4 // cluster
        return (stages * 2 * 128 * 64 * 2 - sums) // ((self.rows + self.cols) * 64 * 2)


@dataclass(frozen=True)
class _WarpTile:
    """A block's tile of the variant ``sm80``: ``warps_m`` x ``warps_n`` warps, each 64 x 64, in ``slices`` sets.

    The sets share the ``block_k`` of k of a stage. ``blocks`` run on a multiprocessor at a time. ``step_us`` are the
    microseconds that 64 of k take them on a full chip, measured on an H200.
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
    def strip(self) -> int:
        """Columns that a warp finishes at once."""
        return 64

    def shared_bytes(self, stages: int, leading_dimension: int) -> int:
        """Each stage has both terms of both operands."""
        return stages * 2 * 2 * self.block_k * (self.rows + self.cols)


@dataclass(frozen=True)
class _WholeTile:
    """A block's tile of the variant ``whole``: ``rows`` rows of x with all of k, and 64 columns.

    ``step_us`` are the microseconds that 64 of k take on a full chip, measured on an H200.
    """

    rows: int
    step_us: float
    blocks: int
    cols: int = 64
    strip: int = 32  # columns that a warp finishes at once

    @property
    def warps(self) -> int:
        """Four sets of warps, of 32 x 32 each."""
        return 4 * self.rows * self.cols // 32**2

    def shared_bytes(self, stages: int, leading_dimension: int) -> int:
        """Both terms of whole rows of x with their exponents, and in each stage both terms of 64 of k of w.

        The sums of four quarters of k take their place later.
        """
        terms = 4 * self.rows * leading_dimension + stages * 2 * 2 * STEP * self.cols
        return max(terms, 4 * 4 * self.rows * self.cols) + 4 * self.rows


@dataclass(frozen=True)
class _SliceTile:
    """A block's tile of the variant ``slices``.

    ``step_us`` are the microseconds that 64 of k take on a full chip, measured on an H200.
    """

    step_us: float
    rows: int = 128
    cols: int = 128
    blocks: int = 1
    strip: int = 128  # columns that a warp finishes at once

    def shared_bytes(self, stages: int, leading_dimension: int) -> int:
        """Slots of 64 of k of x, and one fewer of w, are float32. As many slots have terms of w, with a scale for each row.

        Each slot has two barriers.
        """
        slot = 4 * 64 * 128
        return (3 * stages - 2) * (slot + 16) + (stages - 1) * 4 * self.cols


@dataclass(frozen=True)
class _PlainTile:
    """A block's tile of the variant ``mma``: ``warps_m`` x ``warps_n`` warps, each ``16 mma_m`` x ``8 mma_n``.

    Stages have ``block_k`` of k. ``blocks`` run on a multiprocessor at a time. ``step_us`` are the microseconds that 64 of k take
    a full chip of an H200, three times over. They are estimates: two thirds of the rate of ``wgmma``, less for small tiles.
    """

    warps_m: int
    warps_n: int
    mma_m: int
    mma_n: int
    block_k: int
    blocks: int
    step_us: float

    @property
    def rows(self) -> int:
        return 16 * self.mma_m * self.warps_m

    @property
    def cols(self) -> int:
        return 8 * self.mma_n * self.warps_n

    @property
    def strip(self) -> int:
        """Columns that a warp finishes at once."""
        return 8 * self.mma_n

    def shared_bytes(self, stages: int, leading_dimension: int) -> int:
        return stages * 2 * self.block_k * (self.rows + self.cols)


_Tile = _WarpgroupTile | _WarpTile | _SliceTile | _WholeTile | _PlainTile

#: The tiles of each variant by their names; after the bar, the sets of warps that share a stage's k. Before a tile of two
#: factors stands the number of blocks that share a multiprocessor, where the variant has the same tile for one. With a plus, each
#: warpgroup has such a tile to itself.
_TILES: dict[str, dict[str, _Tile]] = {
    "sm90": {
        "128x256": _WarpgroupTile(2, 2, step_us=2.1),
        "128x128": _WarpgroupTile(2, 1, step_us=1.15),
        "64x256": _WarpgroupTile(1, 1, step_us=1.25),
        "2x128x128": _WarpgroupTile(2, 1, step_us=2.3, blocks=2),
        "192x128": _WarpgroupTile(3, 1, step_us=3.5),
        "128x128+": _WarpgroupTile(2, 1, step_us=3.5, apart=True),
    },
    "sm80": {
        "128x256": _WarpTile(2, 4, 1, block_k=32, blocks=1, step_us=4.0),
        "128x128": _WarpTile(2, 2, 1, block_k=32, blocks=2, step_us=4.2),
        "128x128/2": _WarpTile(2, 2, 2, block_k=32, blocks=1, step_us=2.1),
        "64x128/2": _WarpTile(1, 2, 2, block_k=32, blocks=2, step_us=2.0),
        "64x64/4": _WarpTile(1, 1, 4, block_k=64, blocks=2, step_us=1.25),
    },
    "mma": {
        "128x256": _PlainTile(2, 4, 4, 8, block_k=64, blocks=1, step_us=3.0),
        "128x128": _PlainTile(2, 2, 4, 8, block_k=32, blocks=2, step_us=3.2),
        "64x128": _PlainTile(2, 2, 2, 8, block_k=64, blocks=2, step_us=1.9),
        "64x64": _PlainTile(2, 2, 2, 4, block_k=64, blocks=3, step_us=1.8),
        "32x64": _PlainTile(2, 2, 1, 4, block_k=64, blocks=4, step_us=1.8),
    },
    "slices": {"128x128": _SliceTile(step_us=1.7)},
    "whole": {
        "32x64": _WholeTile(32, step_us=0.4, blocks=2),
        "64x64": _WholeTile(64, step_us=0.7, blocks=1),
    },
}

#: Of k, by promotion interval: in shorter float32 sums of positive products, PyTorch has less than half of the interval's error.
_LEAST_K = {16: 1, 64: 96, 128: 512}
#: Elements of a result. PyTorch shares the sums of a few rows among many threads, and loses 0.7e-7 of positive sums. Fewer elements are
#: judged over several inputs, where twice that is the bound, and intervals of 64 lose 1.9e-7.
_FEW_RESULTS = 4096

#: Of k; from it on, terms may be rounded. That takes 2^-19.8 of each product (root mean square), and 2^-17.1 in the worst case.
#: PyTorch's sums of so many products lose 2^-18.2.
_ROUNDED_K = 32768
_WHOLE_TERMS, _ROUNDED_TERMS = "11+11", "9+9"  # bits of the high and the low term

#: Of k; up to it, storing a tile of half types takes as long as multiplying, and a second block multiplies meanwhile.
_SHORT_K = 1024

# Measured on an H200.
_FIXED_US = 4.0  # microseconds of a contraction of any size
_CLUSTER_US = 1.5  # microseconds to add up splits of k within a cluster
_WIDE_SPANS_US = 30.0  # microseconds to reduce spans of a tile 128x256, whose sums leave few registers for that
_SPLITS_US = 4.0  # microseconds to add up splits of k in a kernel of its own
_WHOLE_US = 6.0  # microseconds of a contraction of any size whose blocks split whole rows themselves
_CACHE_BYTES_A_US = 45e3  # bytes a microsecond and multiprocessor from the L2 cache
_SHARED_TILES = 0.99  # of the time, where two blocks share the tiles of x, or small ones of w
_ROUNDED_SHARE = 0.965  # of the time, since short factors take less of the power that bounds these kernels
_MMA_SHARE = 0.65  # of the time of wgmma; with the factor of "slow", mma may be predicted to take 1.3 times as long
_LIBRARY_PRODUCTS_A_US = 2.5e6  # float16 products that the library adds up, a microsecond and multiprocessor


@dataclass(frozen=True)
class Shape:
    """The sizes of a contraction at the captured batch. ``rows`` share one of the ``matrices`` of the right operand."""

    rows: int
    cols: int
    k: int
    matrices: int
    grouped: bool
    weight: bool  # whether the right operand is a weight, which is split once
    turned: bool  # whether rows of the left operand are columns in memory
    ragged: bool  # whether rows of an operand in memory do not begin at multiples of 16 bytes
    narrow: bool  # whether operands are of a half type, and multiplied as they are
    span: int  # columns that are reduced together; 0 where none are

    @classmethod
    def of(cls, task: Task) -> Shape:
        program = task.program()
        of = program.contraction
        rows, grouped = of.group or program.rows, of.group is not None
        weight = task.plan.graph.is_weight(of.weight)
        ragged = of.k % 4 != 0 or (of.transposed and program.cols % 4 != 0)
        return cls(rows, program.cols, of.k, of.matrices, grouped, weight, of.turned, ragged, is_narrow(of.dtype), program.span)

    @property
    def intervals(self) -> int:
        """Promotion intervals of k, for three products by the library."""
        return -(-self.k // _LIBRARY_INTERVAL)

    @property
    def few(self) -> bool:
        """Whether PyTorch's sums are more exact than those of long promotion intervals, however long they are."""
        return self.matrices * self.rows * self.cols < _FEW_RESULTS

    def takes(self, interval: int) -> bool:
        """Whether sums over a promotion interval are as exact as PyTorch's, on positive data too."""
        return self.k >= _LEAST_K[interval] and (interval == 16 or not self.few)

    def tiles(self, tile: _Tile) -> int:
        return self.matrices * -(-self.rows // tile.rows) * -(-self.cols // tile.cols)

    @property
    def sums_ld(self) -> int:
        """Elements between rows of sums in memory: columns are moved in pairs, the memory behind them in fours."""
        return -(-self.cols // 4) * 4


@dataclass(frozen=True, kw_only=True)
class Contraction(Schedule):
    variant: str = parameter("generation of tensor cores")
    products: int = parameter("products on tensor cores that make one in float32")
    promotion_interval: int = parameter("products that tensor cores add up before their sums are added in float32")
    tile: str = parameter("elements that are worked on at a time")
    splits: int = parameter("parts that a sum is split into, for more blocks")
    cluster: int = parameter("blocks that share one tile of the result")
    multicast: int = parameter("blocks that a tile of an operand is loaded for at once")
    stages: int = parameter("tiles that are loaded ahead")
    swizzle_group: int = parameter("tiles of rows that blocks take together, for the L2 cache")
    term_bits: str = parameter("bits of the significands of the two float16 terms of an element", _WHOLE_TERMS)

    @cached_property
    def program(self) -> Program:
        return self.task.program(two_passes=self.shape.span > 0)

    @cached_property
    def shape(self) -> Shape:
        return Shape.of(self.task)

    @property
    def library(self) -> bool:
        """Whether the library multiplies the terms."""
        return self.variant == "library"

    @property
    def of_tile(self) -> _Tile:
        """The tile of a variant of our own."""
        return _TILES[self.variant][self.tile]

    @property
    def terms(self) -> int:
        """Float16 terms of each operand."""
        return 2 if self.products == 3 else 1

    @property
    def rounded(self) -> bool:
        """Whether the terms have fewer bits than float16 has."""
        return self.term_bits == _ROUNDED_TERMS

    @property
    def ld(self) -> int:
        """Elements of a row of terms: whole steps, and for the library intervals of the same length."""
        intervals = self.splits if self.library else 1
        return -(-self.shape.k // (STEP * intervals)) * STEP * intervals

    @property
    def parts(self) -> int:
        """Parts of k."""
        return self.splits * self.cluster

    @property
    def slots(self) -> int:
        """Slots of the ring of the variant ``sm90``; 0 for any other."""
        return self.of_tile.slots(self.stages, self.terms, self.cluster) if self.variant == "sm90" else 0

    @property
    def shares_terms(self) -> bool:
        """Whether several blocks get the tiles of terms that are loaded once."""
        return self.multicast != 1 and self.variant != "slices"

    @property
    def shared_operand(self) -> str:
        """The operand whose tiles are loaded for several blocks at once: the left one where all rows are in one tile, or of slices."""
        if self.multicast == 1:
            return ""
        return "w" if self.shares_terms and not self.one_row_of_tiles else "x"

    @property
    def partials(self) -> int:
        """Matrices of sums in memory that are added up at the end; 0 where blocks keep their sums."""
        if self.library:
            return self.splits + 2 * (self.terms - 1)
        return self.splits if self.splits > 1 else 0

    @property
    def exchanges_for_spans(self) -> bool:
        """Whether lanes exchange sums before they reduce spans: a warpgroup with both halves of a tile lacks registers for columns."""
        return self.variant == "sm90" and self.of_tile.apart

    @property
    def most_groups(self) -> int:
        """Groups of eight columns of a result that a thread has registers to finish at once, at most; moments take some of them."""
        if self.variant != "sm90":
            return 16
        tile = self.of_tile
        return 8 if tile.blocks > 1 or (self.program.moments_of is not None and tile.warpgroups > 2) else 16

    @property
    def tiles(self) -> int:
        return self.shape.tiles(self.of_tile)

    @property
    def one_row_of_tiles(self) -> bool:
        return self.shape.rows <= self.of_tile.rows

    @property
    def holds_spans(self) -> bool:
        """Whether a warp finishes whole spans; sums in memory are finished by as many columns as that takes."""
        if not self.shape.span or self.partials:
            return True
        return self.of_tile.strip // self.cluster % self.shape.span == 0

    def fits(self, stages: int) -> bool:
        """Whether a block can have so many stages, and with them as many neighbours as with two."""
        if self.of_tile.shared_bytes(stages, self.ld) > self.task.hardware.shared_bytes_per_block:
            return False
        alone = self.variant == "whole" and self.tiles <= self.task.hardware.multiprocessors
        return alone or self._resident(stages) == self._resident(2)

    @property
    def at_once(self) -> int:
        """Tiles that the whole device works on at a time."""
        tile = self.of_tile
        of_a_block = 2 if isinstance(tile, _WarpgroupTile) and tile.apart else 1
        return max(1, self._resident(self.stages)) * self.task.hardware.multiprocessors * of_a_block

    def _resident(self, stages: int) -> int:
        """Blocks that run on a multiprocessor at a time; the system takes 1 KB of shared memory for each."""
        taken = self.of_tile.shared_bytes(stages, self.ld) + 1024
        return min(self.of_tile.blocks, self.task.hardware.shared_bytes_per_multiprocessor // taken)

    @cached_property
    def microseconds(self) -> float:
        """The predicted time: waves of tiles as on an H200, but no less than the time to read the weight and write the result.

        It is right within a quarter on that device. On others it ranks the combinations.
        """
        if self.library:
            return self._library_microseconds
        if self.variant == "whole":
            return self._whole_microseconds
        shape, tile, blocks = self.shape, self.of_tile, self.tiles * self.parts
        multiprocessors, bandwidth = self.task.hardware.multiprocessors, BYTES_A_US * self.task.hardware.multiprocessors
        waves = -(-blocks // self.at_once)
        if isinstance(tile, _PlainTile):  # neighbours share the time of a multiprocessor
            waves = -(-blocks // multiprocessors) / tile.blocks
        steps = self.ld / STEP / self.parts
        adding_up = _CLUSTER_US if self.cluster > 1 else 0.0
        if self.splits > 1:
            adding_up += _SPLITS_US + 8 * self.splits * shape.matrices * shape.rows * shape.cols / bandwidth
        multiplying = waves * steps * tile.step_us * self.products / 3
        moved = shape.matrices * shape.cols * (2 * self.terms * self.ld + 4 * shape.rows)
        if self.multicast > 1 and (self.one_row_of_tiles or tile.cols < 256):
            multiplying *= _SHARED_TILES
        if self.rounded:
            multiplying *= _ROUNDED_SHARE
        alone = isinstance(tile, _WarpgroupTile) and tile.blocks == 1 and not tile.alternates
        if alone and (self.terms == 2 or shape.span) and shape.k <= _SHORT_K:
            multiplying += 4 * shape.matrices * shape.rows * shape.cols / bandwidth  # the warpgroups store at the same time
        if isinstance(tile, _WarpgroupTile) and tile.halves == 2 and shape.span:
            multiplying += waves * _WIDE_SPANS_US
        if isinstance(tile, _SliceTile):
            moved = 4 * self.ld * (shape.rows + shape.cols)
        return _FIXED_US + max(multiplying, moved / bandwidth) + adding_up

    @property
    def splitting_microseconds(self) -> float:
        """The predicted time to split the operands beforehand, a weight not among them; very long rows are read twice."""
        if self.variant in ("slices", "whole"):
            return 0.0
        shape = self.shape
        elements = shape.matrices * shape.k * (shape.rows + (0 if shape.weight else shape.cols))
        bytes_of_each = (4 if shape.k <= LONGEST_ROW else 8) + 2 * self.terms
        return bytes_of_each * elements / (BYTES_A_US * self.task.hardware.multiprocessors)

    @property
    def _whole_microseconds(self) -> float:
        """The predicted time of the variant ``whole``: each tile reads whole rows of both operands from the cache."""
        tile = self.of_tile
        moving = 4 * self.tiles * (tile.rows + tile.cols) * self.ld
        multiplying = -(-self.tiles // self.at_once) * self.ld / STEP * tile.step_us
        return _WHOLE_US + max(multiplying, moving / (_CACHE_BYTES_A_US * self.task.hardware.multiprocessors))

    @property
    def _library_microseconds(self) -> float:
        """The predicted time of the library at the rate of a full chip, with its sums written and read."""
        elements, multiprocessors = self.shape.rows * self.shape.cols, self.task.hardware.multiprocessors
        multiplying = self.products * elements * self.shape.k / (_LIBRARY_PRODUCTS_A_US * multiprocessors)
        moving = 8 * self.partials * elements / (BYTES_A_US * multiprocessors)
        return self.products * _FIXED_US + multiplying + moving


def lacks(hardware: Hardware) -> str:
    return "" if hardware.capability >= 80 else "contractions of our own need the tensor cores of sm_80 or later"


def space(task: Task) -> Space:
    shape, rough = Shape.of(task), Space(partial(Contraction, task), (), _constraints(Shape.of(task), task.accuracy))
    wgmma = task.hardware.capability == 90

    def fastest(axes: tuple[Axis, ...]) -> float:
        """The shortest time that is predicted for the combinations of the axes, with the splitting before them."""
        return min((s.microseconds + s.splitting_microseconds for s in rough.schedules(axes)), default=math.inf)

    if shape.narrow:
        variants = [_axes("mma", products=(1,), intervals=(64,), stages=(4, 3, 2), clusters=(1,), multicast=(1,), splits=(1, 2, 4, 8))]
        if wgmma:
            variants.insert(0, _axes("sm90", products=(1,), intervals=(64,), stages=(7, 3), clusters=(1, 2, 4), multicast=(1, 2)))
        variants = [_likeliest_first(axes, rough) for axes in variants]
    else:
        variants = [_axes("sm80", products=(3,), intervals=(16,), stages=(4, 3, 2), clusters=(1,), multicast=(1,))]
        if wgmma:
            of_sm90 = _axes("sm90", products=(3, 1), intervals=(64, 128, 16), stages=(7, 3), clusters=(1, 2, 4), multicast=(1, 2))
            # Powers of two, and as many splits of k as fill the device.
            filling = task.hardware.multiprocessors // shape.tiles(_TILES["slices"]["128x128"])
            slices = _axes(
                "slices", products=(3,), intervals=(64,), stages=(3,), clusters=(1,), multicast=(1, 2),
                splits=tuple(sorted({2, 4, 8, 16, 32} | ({filling} if filling > 1 else set()))), swizzle_groups=(16,)
            )
            variants = [slices, of_sm90, *variants] if fastest(slices) < fastest(of_sm90) else [of_sm90, *variants, slices]
        # Blocks that split whole rows themselves have all of k.
        variants.append(_axes(
            "whole", products=(3,), intervals=(16,), stages=(4, 3, 2), clusters=(1,), multicast=(1,), splits=(1,), swizzle_groups=(8, 16)
        ))  # fmt: skip
        variants = [*(_likeliest_first(_with_bits(axes, shape), rough) for axes in variants), _with_bits(_library_axes(shape), shape)]
    first, *others = variants
    others_than_slices = min((fastest(axes) for axes in variants if axes[0].values != ("slices",)), default=0.0)
    slow = _slow([s for axes in variants for s in rough.schedules(axes)], others_than_slices)
    return Space(rough.schedule, first, (*rough.constraints, slow), tuple(others))


def arithmetic(params: Params) -> Arithmetic:
    """One or three products of float16 terms."""
    return Arithmetic("float16", int(params["products"]))


def _axes(
    variant: str, products: tuple[int, ...], intervals: tuple[int, ...], stages: tuple[int, ...],
    clusters: tuple[int, ...], multicast: tuple[int, ...], splits: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    swizzle_groups: tuple[int, ...] = (16, 8),
) -> tuple[Axis, ...]:
    return (
        Axis("variant", (variant,)),
        Axis("products", products),
        Axis("promotion_interval", intervals),
        Axis("tile", tuple(_TILES[variant])),
        Axis("splits", splits),
        Axis("cluster", clusters),
        Axis("multicast", multicast),
        Axis("stages", stages),
        Axis("swizzle_group", swizzle_groups),
    )


def _with_bits(axes: tuple[Axis, ...], shape: Shape) -> tuple[Axis, ...]:
    """The axes, with one for the bits of terms where these may be rounded: rows of inputs and of weights, which are long."""
    if shape.k < _ROUNDED_K or shape.turned or not shape.weight:
        return axes
    rounded = (_ROUNDED_TERMS,) if axes[0].values == ("sm90",) else ()
    return (*axes, Axis("term_bits", (_WHOLE_TERMS, *rounded)))


def _library_axes(shape: Shape) -> tuple[Axis, ...]:
    """The same axes for the library, most of them with one value; its splits are promotion intervals of k."""
    return (
        Axis("variant", ("library",)),
        Axis("products", (3, 1)),
        Axis("promotion_interval", (_LIBRARY_INTERVAL,)),
        Axis("tile", ("library",)),
        Axis("splits", tuple(dict.fromkeys((shape.intervals, 1)))),
        Axis("cluster", (1,)),
        Axis("multicast", (1,)),
        Axis("stages", (1,)),
        Axis("swizzle_group", (1,)),
    )


def _likeliest_first(axes: tuple[Axis, ...], rough: Space[Contraction]) -> tuple[Axis, ...]:
    """The axes with their values ordered by the fastest combination of each, so that the fastest of all comes first."""
    ranked = sorted(rough.schedules(axes), key=lambda s: s.microseconds)

    def rank(axis: str, value: ParamValue) -> int:
        return next((n for n, s in enumerate(ranked) if getattr(s, axis) == value), len(ranked))

    return tuple(Axis(a.name, tuple(sorted(a.values, key=lambda v: rank(a.name, v)))) for a in axes)


def _slow(allowed: Sequence[Contraction], others_than_slices: float) -> Constraint[Contraction]:
    """The constraint that rules out combinations that cannot win."""
    fastest: dict[str, float] = {}
    for s in allowed:
        fastest[s.variant] = min(s.microseconds, fastest.get(s.variant, s.microseconds))
    own = min((us for variant, us in fastest.items() if variant != "library"), default=0.0)
    fastest["whole"] = own  # that variant is for small contractions alone
    fastest["slices"] = others_than_slices / 2
    if "mma" in fastest and "sm90" in fastest:  # and mma, beside wgmma, for those of so few tiles that its small ones win
        fastest["mma"] = min(fastest["mma"], _MMA_SHARE * fastest["sm90"])
    return Constraint("slow", ("variant", "products", "tile", "splits", "cluster", "multicast", "stages", "term_bits"),
        "by waves of tiles, another combination of the variant (for whole rows, of any of ours) takes less than half the time;"
        " slices of k, which blocks split themselves, are to be faster than anything else",
        lambda s: s.microseconds <= 2.0 * fastest.get(s.variant, 0.0))


def _constraints(shape: Shape, accuracy: Accuracy) -> tuple[Constraint[Contraction], ...]:
    one_product = Constraint("one_product", ("products",),
        "one product of float16 terms is only as accurate as TF32, and the accuracy class asks for more",
        lambda s: s.products == 3 or accuracy is Accuracy.TF32 or shape.narrow)
    return (one_product, *(_of_variants(False, c) for c in _own_constraints(shape)), *(_of_variants(True, c) for c in _library_constraints(shape)))


def _of_variants(library: bool, of: Constraint[Contraction]) -> Constraint[Contraction]:
    """The constraint for the library alone, or for all other variants alone."""
    return replace(of, reads=("variant", *of.reads), holds=lambda s: s.library is not library or of.holds(s))


def _library_constraints(shape: Shape) -> tuple[Constraint[Contraction], ...]:
    return (
        Constraint("matrices", (),
            "the library is given one matrix on the right; batches of them are left to kernels of our own",
            lambda s: not shape.grouped),
        Constraint("few_rows", (),
            f"short sums of {shape.rows} rows are more exact in PyTorch than the library's over {_LIBRARY_INTERVAL} of k",
            lambda s: not shape.few and (shape.rows >= _MANY_ROWS or shape.k >= _LONG_K)),
        Constraint("promotion_intervals", ("splits", "products"),
            "three products are promoted after short intervals of k; one product, as accurate as TF32, is not",
            lambda s: s.splits == (shape.intervals if s.products == 3 else 1)),
        Constraint("sums_memory", ("splits", "products"), "the sums of so many intervals would take more than a GiB",
            lambda s: 4 * s.partials * shape.rows * shape.cols <= _SUMS_BYTES),
    )


def _own_constraints(shape: Shape) -> tuple[Constraint[Contraction], ...]:
    rows, cols = shape.rows, shape.cols
    shared = ("128x256", "128x128") if shape.k <= _SHORT_K else ("128x256",)  # tiles, where there are many rows of them

    room = ("variant", "tile", "stages", "splits")  # that shared memory is taken by
    return (
        Constraint("spans", ("variant", "tile", "splits", "cluster"),
            f"a warp does not finish whole spans of the {shape.span} columns that are reduced together",
            lambda s: s.holds_spans),
        Constraint("promotion_of_one_product", ("products", "promotion_interval"),
            "the sums of one product of float16 terms stay in the tensor cores' accumulators to the end",
            lambda s: s.products == 3 or s.promotion_interval == 64),
        Constraint("registers", ("promotion_interval", "tile"),
            "sums of 256 columns leave no registers for accumulators of their own for the small products",
            lambda s: s.promotion_interval != 128 or s.tile != "128x256"),
        Constraint("rounded_terms", ("term_bits", "products"), "one product has one term, which is not rounded",
            lambda s: not s.rounded or s.products == 3),
        Constraint("short_sums", ("variant", "products", "promotion_interval"),
            "PyTorch's sums over so few of k, or of so few results, are more exact than a promotion interval, in which positive products lose to"
            " truncation",
            lambda s: s.variant != "sm90" or s.products == 1 or shape.takes(s.promotion_interval)),
        Constraint("idle_promotions", ("variant", "promotion_interval"),
            "sums over so many of k need no promotion after every 16",
            lambda s: s.variant != "sm90" or s.promotion_interval != 16 or not shape.takes(64)),
        Constraint("one_promotion", ("promotion_interval", "splits", "cluster"),
            "sums over no more than 64 of k are promoted once in any case",
            lambda s: s.promotion_interval != 128 or s.ld > STEP * s.parts),
        Constraint("whole_rows", ("variant",),
            "blocks that split whole rows of x themselves need those in memory, and a w that was split beforehand: a weight of one matrix",
            lambda s: s.variant != "whole" or (shape.weight and not shape.grouped and not shape.turned)),
        Constraint("slices_of_inputs", ("variant",),
            "blocks split slices of k of inputs whose rows lie in memory in groups of 16 bytes; a weight is split once",
            lambda s: s.variant != "slices" or not (shape.weight or shape.grouped or shape.turned or shape.ragged)),
        Constraint("more_stages", ("variant", "stages"), f"k = {shape.k} has no step for a fourth stage",
            lambda s: s.variant != "whole" or s.stages <= max(3, -(-shape.k // STEP))),
        Constraint("shared_memory", room,
            "the stages, and whole rows, need more shared memory than a block, or its neighbours on a multiprocessor, can have",
            lambda s: s.fits(s.stages)),
        Constraint("short_ring", room, "seven stages fit",
            lambda s: s.variant != "sm90" or s.stages == 7 or not s.fits(7)),
        Constraint("two_blocks", (*room, "products", "cluster"),
            f"two blocks of a multiprocessor have registers for the sums of one product, and pay off where k <= {_SHORT_K} and the chip is full",
            lambda s: s.tile != "2x128x128"
            or (s.products == 1 and s.parts == 1 and shape.k <= _SHORT_K and s.tiles >= s.at_once)),
        Constraint("tiles_apart", (*room, "products", "cluster", "promotion_interval"),
            f"one warpgroup stores while another multiplies three products, which pays off where {STEP} < k <= {_SHORT_K} and the chip is full",
            lambda s: s.tile != "128x128+"
            or (s.products == 3 and s.stages == 7 and s.parts == 1 and s.promotion_interval != 128 and STEP < shape.k <= _SHORT_K and s.tiles >= 2 * s.at_once)),
        Constraint("tiles_in_turns", (*room, "products", "cluster", "promotion_interval"),
            f"two warpgroups store while a third multiplies three products of all of k, which pays off where k <= {STEP} and the chip is full",
            lambda s: s.tile != "192x128"
            or (s.products == 3 and s.stages == 7 and s.parts == 1 and s.promotion_interval == 16 and shape.k <= STEP and s.tiles >= 2 * s.at_once)),
        Constraint("shallow_pipeline", room, "one stage is filled while the other is used, where three stages fit",
            lambda s: s.stages != 2 or not s.fits(3)),
        Constraint("idle_rows", ("variant", "tile"), f"half of a tile's rows or more would lie beyond {rows}",
            lambda s: s.of_tile.rows < 2 * rows or s.of_tile.rows == min(t.rows for t in _TILES[s.variant].values())),
        Constraint("idle_columns", ("variant", "tile"), f"half of a tile's columns or more would lie beyond {cols}",
            lambda s: s.of_tile.cols < 2 * cols or s.of_tile.cols == 64),
        Constraint("two_ways_to_split", ("splits", "cluster"),
            "k is split over the blocks of a cluster, or over independent blocks",
            lambda s: s.splits == 1 or s.cluster == 1),
        Constraint("splits_of_large_tiles", ("splits", "cluster", "tile"),
            "a smaller tile gives as many blocks as half the k of this one would, with nothing to add up",
            lambda s: s.parts == 1 or s.tile != "128x256"),
        Constraint("short_splits", ("splits", "cluster"),
            f"splits of k = {shape.k} so short that filling the pipeline is most of their time",
            lambda s: s.parts == 1 or s.ld >= (512 if s.splits > 1 else 128) * s.parts),
        Constraint("splits_to_fill", (*room, "cluster"), "the chip is full without so many splits of k",
            lambda s: s.parts == 1 or s.tiles * s.parts <= s.at_once),
        Constraint("multicast_of_splits", ("variant", "multicast", "splits", "cluster"),
            "blocks that share tiles have all of k, and the same matrix",
            lambda s: not s.shares_terms or (s.parts == 1 and not shape.grouped)),
        Constraint("multicast_of_full_chips", (*room, "multicast"),
            "only with a chip full of the largest tiles, or of those for short sums, is sharing those of w faster than anything else",
            lambda s: not s.shares_terms or s.one_row_of_tiles or (s.tile in shared and s.tiles >= s.at_once)),
        Constraint("multicast_of_slices", ("variant", "multicast", "tile"),
            "blocks side by side share slices of x in pairs of tiles",
            lambda s: s.multicast == 1 or s.variant != "slices" or -(-cols // s.of_tile.cols) % 2 == 0),
        Constraint("multicast_along_columns", (*room, "multicast"),
            "blocks side by side share tiles of x in pairs of whole tiles, of the largest, where there are nearly enough for the chip",
            lambda s: not s.shares_terms or not s.one_row_of_tiles
            or (s.tile == "128x256" and cols % (2 * s.of_tile.cols) == 0 and 4 * s.tiles >= 3 * s.at_once)),
        Constraint("wide_clusters", (*room, "cluster"),
            "clusters of four find room for themselves on three quarters of the chip",
            lambda s: s.cluster < 4 or s.tiles * s.cluster <= s.at_once * 3 // 4),
        Constraint("one_swizzle_group", ("variant", "tile", "swizzle_group"),
            "all tiles of rows are in one swizzle group, as they are with 16, or blocks go along rows of tiles",
            lambda s: s.swizzle_group == 16 or (-(-rows // s.of_tile.rows) > s.swizzle_group and s.tile != "192x128")),
    )
