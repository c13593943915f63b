"""The tiles of each variant of convolutions in CUDA."""

from __future__ import annotations

from dataclasses import dataclass

_WARP_COLS = 64  # pixels; a warp's tile


@dataclass(frozen=True)
class WarpTile:
    """A block's tile of the variant ``gather``: ``warps_m`` x ``warps_n`` warps, each ``16 * mma_m`` channels by 64
    pixels.

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

#: The tiles of each variant by their names. After the bar stand the warps, where others have as large a tile. More of
#: them hide latencies of long chains behind the product. Fewer leave room for two blocks: one stores while the other
#: multiplies.
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
