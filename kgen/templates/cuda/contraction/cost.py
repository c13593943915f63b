"""The predicted time of contractions in CUDA: waves of tiles, as measured on an H200."""

from __future__ import annotations

from kgen.templates.cuda.common import BYTES_A_US
from kgen.templates.cuda.contraction.schedule import LONGEST_ROW, SHORT_K, Contraction
from kgen.templates.cuda.contraction.tiles import STEP, PlainTile, SliceTile, WarpgroupTile

# Measured on an H200.
_FIXED_US = 4.0  # microseconds of a contraction of any size
_CLUSTER_US = 1.5  # microseconds to add up splits of k within a cluster
_WIDE_SPANS_US = 30.0  # microseconds to reduce spans of a tile 128x256, whose sums leave few registers for that
_SPLITS_US = 4.0  # microseconds to add up splits of k in a kernel of its own
_WHOLE_US = 6.0  # microseconds of a contraction of any size whose blocks split whole rows themselves
_CACHE_BYTES_A_US = 45e3  # bytes a microsecond and multiprocessor from the L2 cache
_SHARED_TILES = 0.99  # of the time, where two blocks share the tiles of x, or small ones of w
# The factor of the time where blocks share tiles of half types: they wait, and the cache is fast enough anyway.
_SHARED_HALVES = 1.03
_ROUNDED_SHARE = 0.965  # of the time, since short factors take less of the power that bounds these kernels
_LIBRARY_PRODUCTS_A_US = 2.5e6  # float16 products that the library adds up, a microsecond and multiprocessor


def microseconds(of: Contraction) -> float:
    """The predicted time: waves of tiles as on an H200, but no less than the time to read the weight and write the
    result.

    It is right within a quarter on that device. On others it ranks the combinations.
    """
    if of.library:
        return _library_microseconds(of)
    if of.variant == "whole":
        return _whole_microseconds(of)
    shape, tile, blocks = of.shape, of.of_tile, of.tiles * of.parts
    multiprocessors, bandwidth = of.task.hardware.multiprocessors, BYTES_A_US * of.task.hardware.multiprocessors
    if of.shared_operand == "w":  # blocks come in pairs below each other
        below = -(-shape.rows // tile.rows)
        blocks = blocks // below * (-(-below // of.multicast) * of.multicast)
    waves = -(-blocks // of.at_once)
    if isinstance(tile, PlainTile):  # neighbours share the time of a multiprocessor
        waves = -(-blocks // multiprocessors) / tile.blocks
    steps = of.ld / STEP / of.parts
    adding_up = _CLUSTER_US if of.cluster > 1 else 0.0
    if of.splits > 1:
        adding_up += _SPLITS_US + 8 * of.splits * shape.matrices * shape.rows * shape.cols / bandwidth
    multiplying = waves * steps * tile.step_us * of.products / 3
    moved = shape.matrices * shape.cols * (2 * of.terms * of.ld + 4 * shape.rows)
    if of.multicast > 1 and shape.narrow:
        multiplying *= _SHARED_HALVES
    elif of.multicast > 1 and (of.one_row_of_tiles or tile.cols < 256):
        multiplying *= _SHARED_TILES
    if of.rounded:
        multiplying *= _ROUNDED_SHARE
    alone = isinstance(tile, WarpgroupTile) and tile.blocks == 1 and not tile.alternates
    if alone and (of.terms == 2 or shape.span) and shape.k <= SHORT_K:
        multiplying += 4 * shape.matrices * shape.rows * shape.cols / bandwidth  # the warpgroups store at the same time
    if isinstance(tile, WarpgroupTile) and tile.parts == 2 and shape.span:
        multiplying += waves * _WIDE_SPANS_US
    if isinstance(tile, SliceTile):
        moved = 4 * of.ld * (shape.rows + shape.cols)
    return _FIXED_US + max(multiplying, moved / bandwidth) + adding_up


def splitting_microseconds(of: Contraction) -> float:
    """The predicted time to split the operands beforehand, a weight not among them; very long rows are read twice."""
    if of.variant in ("slices", "whole"):
        return 0.0
    shape = of.shape
    elements = shape.matrices * shape.k * (shape.rows + (0 if shape.weight else shape.cols))
    bytes_of_each = (4 if shape.k <= LONGEST_ROW else 8) + 2 * of.terms
    return bytes_of_each * elements / (BYTES_A_US * of.task.hardware.multiprocessors)


def _whole_microseconds(of: Contraction) -> float:
    """The predicted time of the variant ``whole``: each tile reads whole rows of both operands from the cache."""
    tile = of.of_tile
    moving = 4 * of.tiles * (tile.rows + tile.cols) * of.ld
    multiplying = -(-of.tiles // of.at_once) * of.ld / STEP * tile.step_us
    return _WHOLE_US + max(multiplying, moving / (_CACHE_BYTES_A_US * of.task.hardware.multiprocessors))


def _library_microseconds(of: Contraction) -> float:
    """The predicted time of the library at the rate of a full chip, with its sums written and read."""
    elements, multiprocessors = of.shape.rows * of.shape.cols, of.task.hardware.multiprocessors
    multiplying = of.products * elements * of.shape.k / (_LIBRARY_PRODUCTS_A_US * multiprocessors)
    moving = 8 * of.partials * elements / (BYTES_A_US * multiprocessors)
    return of.products * _FIXED_US + multiplying + moving
