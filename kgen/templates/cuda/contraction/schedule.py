"""The sizes of contractions in CUDA, and what their parameters decide."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kgen.codegen.template import Schedule, Task, parameter
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.loops.program import Program
from kgen.templates.cuda import common
from kgen.templates.cuda.contraction.tiles import STEP, TILES, Tile, WarpgroupTile

LONGEST_ROW = 32768  # elements of a row that a block splits from its registers; longer rows are read twice
WIDEST_SPAN = 64  # columns that are reduced together; a warp finishes 64 at once in all but the smallest tiles

#: Elements of k between promotions of the library's sums in tensor cores. Truncation allows no more on positive data,
#: where errors do not cancel.
LIBRARY_INTERVAL = 128

#: The least k of each promotion interval. In shorter float32 sums of positive products, PyTorch has less than half of
#: the interval's error.
_LEAST_K = {16: 1, 64: 96, 128: 512}
#: Elements of a result. PyTorch shares the sums of a few rows among many threads, and loses 0.7e-7 of positive sums.
#: Fewer elements are judged over several inputs, where twice that is the bound, and intervals of 64 lose 1.9e-7.
_FEW_RESULTS = 4096

#: Elements of k. Up to it, storing a tile of half types takes as long as multiplying, and a second block multiplies
#: meanwhile.
SHORT_K = 1024

WHOLE_TERMS, ROUNDED_TERMS = "11+11", "9+9"  # bits of the high and the low term


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
        return cls(
            rows, program.cols, of.k, of.matrices, grouped, weight, of.turned, ragged, is_narrow(of.dtype), program.span
        )

    @property
    def intervals(self) -> int:
        """Promotion intervals of k, for three products by the library."""
        return -(-self.k // LIBRARY_INTERVAL)

    @property
    def few(self) -> bool:
        """Whether PyTorch's sums, however long, are more exact than sums with long promotion intervals."""
        return self.matrices * self.rows * self.cols < _FEW_RESULTS

    def takes(self, interval: int) -> bool:
        """Whether sums over a promotion interval are as exact as PyTorch's, on positive data too."""
        return self.k >= _LEAST_K[interval] and (interval == 16 or not self.few)

    def tiles(self, tile: Tile) -> int:
        return self.matrices * -(-self.rows // tile.rows) * -(-self.cols // tile.cols)

    @property
    def sums_ld(self) -> int:
        """Elements between rows of sums in memory: columns are moved in pairs, the memory behind them in fours."""
        return -(-self.cols // 4) * 4


@dataclass(frozen=True, kw_only=True)
class Contraction(common.InTerms, Schedule):
    variant: str = parameter("generation of tensor cores")
    products: int = parameter("products on tensor cores that make one in float32")
    promotion_interval: int = parameter("products that tensor cores add up before their sums are added in float32")
    tile: str = parameter("elements that are worked on at a time")
    splits: int = parameter("parts that a sum is split into, for more blocks")
    cluster: int = parameter("blocks that share one tile of the result")
    multicast: int = parameter("blocks that a tile of an operand is loaded for at once")
    stages: int = parameter("tiles that are loaded ahead")
    swizzle_group: int = parameter("tiles of rows that blocks take together, for the L2 cache")
    term_bits: str = parameter("bits of the significands of the two float16 terms of an element", WHOLE_TERMS)

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
    def of_tile(self) -> Tile:
        """The tile of a variant of our own."""
        return TILES[self.variant][self.tile]

    @property
    def rounded(self) -> bool:
        """Whether the terms have fewer bits than float16 has."""
        return self.term_bits == ROUNDED_TERMS

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
        """The operand whose tiles are loaded for several blocks at once: the left one where all rows are in one tile,
        or of slices."""
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
        """Whether lanes exchange sums before they reduce spans: a warpgroup with both halves of a tile lacks registers
        for columns."""
        return self.variant == "sm90" and self.of_tile.apart

    @property
    def most_groups(self) -> int:
        """Groups of eight columns of a result that a thread has registers to finish at once, at most; moments take some
        of them."""
        if self.variant != "sm90":
            return 16
        tile = self.of_tile
        return 8 if tile.blocks > 1 or (self.program.moments_of is not None and tile.warpgroups > 2) else 16

    @property
    def reads_ahead(self) -> bool:
        """Whether registers suffice to read what belongs to the elements of a strip before the first of them is
        stored."""
        return self.shape.narrow and self.most_groups == 16

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
        """Whether a block can have ``stages`` stages, and as many neighbours on its multiprocessor as with two
        stages."""
        if self.of_tile.shared_bytes(stages, self.ld) > self.task.hardware.shared_bytes_per_block:
            return False
        alone = self.variant == "whole" and self.tiles <= self.task.hardware.multiprocessors
        return alone or self._resident(stages) == self._resident(2)

    @property
    def at_once(self) -> int:
        """Tiles that the whole device works on at a time."""
        tile = self.of_tile
        of_a_block = 2 if isinstance(tile, WarpgroupTile) and tile.apart else 1
        return max(1, self._resident(self.stages)) * self.task.hardware.multiprocessors * of_a_block

    def _resident(self, stages: int) -> int:
        """Blocks that run on a multiprocessor at a time; the system takes 1 KB of shared memory for each."""
        taken = self.of_tile.shared_bytes(stages, self.ld) + 1024
        return min(self.of_tile.blocks, self.task.hardware.shared_bytes_per_multiprocessor // taken)
