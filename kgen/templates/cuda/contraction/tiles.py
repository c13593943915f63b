"""The tiles of each variant of contractions in CUDA, with their shared memory and the time of a step."""

from __future__ import annotations

from dataclasses import dataclass

STEP = 64  # elements of k; the leading dimension of terms is a multiple of it; 128 bytes, a step of the variant sm90


@dataclass(frozen=True)
class WarpgroupTile:
    """A block's tile of the variant ``sm90``: ``m_tiles`` x 64 rows, and ``part_cols`` columns ``parts`` times a
    warpgroup.

    ``blocks`` run on a multiprocessor at a time. With ``apart``, each of its two warpgroups takes a tile of its own.
    Three warpgroups multiply all of k in turns. ``step_us`` are the microseconds that 64 of k take a tile, or two
    apart, on a full chip, measured on an H200.
    """

    m_tiles: int
    parts: int
    step_us: float
    blocks: int = 1
    apart: bool = False
    part_cols: int = 128

    @property
    def rows(self) -> int:
        return 64 * self.m_tiles

    @property
    def cols(self) -> int:
        return self.part_cols * self.parts * (2 if self.m_tiles == 1 else 1)

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
        return self.part_cols

    def shared_bytes(self, stages: int, leading_dimension: int) -> int:
        """Each stage has 128 rows of 64 of k of both terms, with four barriers. Slots of one term share the same
        memory."""
        return stages * (2 * 128 * 64 * 2 + 32)

    def slots(self, stages: int, terms: int, cluster: int) -> int:
        """Slots of a ring: slots of two terms have 128 rows, slots of one term have all rows of both operands.

        Behind slots of one term lie the sums that a block gets from the others of its cluster.
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
class WarpTile:
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
class WholeTile:
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
class SliceTile:
    """A block's tile of the variant ``slices``.

    ``step_us`` are the microseconds that 64 of k take on a full chip, measured on an H200.
    """

    step_us: float
    rows: int = 128
    cols: int = 128
    blocks: int = 1
    strip: int = 128  # columns that a warp finishes at once

    def shared_bytes(self, stages: int, leading_dimension: int) -> int:
        """Slots of 64 of k of x, and one fewer of w, are float32. As many slots have terms of w, with a scale for each
        row.

        Each slot has two barriers.
        """
        slot = 4 * 64 * 128
        return (3 * stages - 2) * (slot + 16) + (stages - 1) * 4 * self.cols


@dataclass(frozen=True)
class PlainTile:
    """A block's tile of the variant ``mma``: ``warps_m`` x ``warps_n`` warps, each ``16 mma_m`` x ``8 mma_n``.

    Stages have ``block_k`` of k. ``blocks`` run on a multiprocessor at a time. ``step_us`` are the microseconds that 64
    of k take a full chip of an H200, three times over. They are estimates: two thirds of the rate of ``wgmma``, less
    for small tiles.
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


Tile = WarpgroupTile | WarpTile | SliceTile | WholeTile | PlainTile

#: The tiles of each variant by their names; after the bar, the sets of warps that share a stage's k. Before a tile of
#: two factors stands the number of blocks that share a multiprocessor, where the variant has the same tile for one.
#: With a plus, each warpgroup has such a tile to itself.
TILES: dict[str, dict[str, Tile]] = {
    "sm90": {
        "128x256": WarpgroupTile(2, 2, step_us=2.1),
        "128x192": WarpgroupTile(2, 3, step_us=1.6, part_cols=64),
        "128x128": WarpgroupTile(2, 1, step_us=1.15),
        "64x256": WarpgroupTile(1, 1, step_us=1.25),
        "2x128x128": WarpgroupTile(2, 1, step_us=2.3, blocks=2),
        "192x128": WarpgroupTile(3, 1, step_us=3.5),
        "128x128+": WarpgroupTile(2, 1, step_us=3.5, apart=True),
    },
    "sm80": {
        "128x256": WarpTile(2, 4, 1, block_k=32, blocks=1, step_us=4.0),
        "128x128": WarpTile(2, 2, 1, block_k=32, blocks=2, step_us=4.2),
        "128x128/2": WarpTile(2, 2, 2, block_k=32, blocks=1, step_us=2.1),
        "64x128/2": WarpTile(1, 2, 2, block_k=32, blocks=2, step_us=2.0),
        "64x64/4": WarpTile(1, 1, 4, block_k=64, blocks=2, step_us=1.25),
    },
    "mma": {
        "128x256": PlainTile(2, 4, 4, 8, block_k=64, blocks=1, step_us=3.0),
        "128x128": PlainTile(2, 2, 4, 8, block_k=32, blocks=2, step_us=3.2),
        "64x128": PlainTile(2, 2, 2, 8, block_k=64, blocks=2, step_us=1.9),
        "64x64": PlainTile(2, 2, 2, 4, block_k=64, blocks=3, step_us=1.8),
        "32x64": PlainTile(2, 2, 1, 4, block_k=64, blocks=4, step_us=1.8),
    },
    "slices": {"128x128": SliceTile(step_us=1.7)},
    "whole": {
        "32x64": WholeTile(32, step_us=0.4, blocks=2),
        "64x64": WholeTile(64, step_us=0.7, blocks=1),
    },
}
