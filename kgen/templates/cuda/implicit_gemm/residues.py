"""Residues of a convolution's outputs: those that share their windows, and those that a warp stores together."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from kgen.compiler.graph.convolutions import Convolution, Line, Residue
from kgen.compiler.loops.program import ELEMENT, Program
from kgen.templates.cuda.implicit_gemm.tiles import Tile

MOST_TAPS = 31  # taps of all dimensions together: bits of a window's mask


@dataclass(frozen=True)
class Together:
    """Residues of the last dimension whose outputs a warp has and stores together: ``step`` neighbours for each place
    of the window.

    ``sides`` are the residues that have taps. They share the windows of all residues. 16 rows of weights are
    ``channels`` rows of each side.
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
        return Residue(
            0, self.step, max(side.count for side in self.sides), 1, (most - least) // between + 1, most, -between, 0, 0
        )


def together(program: Program) -> Together | None:
    """The residues of a transposed convolution's last dimension as one; ``None`` where they cannot be stored
    together."""
    window = program.contraction.window
    last = window.lines[-1]
    if (
        not window.transposed
        or last.stride == 1
        or last.out < last.stride
        or window.pool > 1
        or not stores_pixels(program)
    ):
        return None
    residues = last.residues(True)
    tapped = tuple(of for of in residues if of.taps)
    found = Together(last.stride, residues if last.stride == 2 and tapped else tapped)
    # A warp reduces rows of pairs alone.
    if not 1 <= len(tapped) <= 16 or (program.reductions and not found.pair):
        return None
    taps = sum(line.kernel for line in window.lines[:-1]) + found.line.taps
    return found if taps <= MOST_TAPS else None


def stores_pixels(program: Program) -> bool:
    """Whether each pixel of each channel is stored."""
    return any(store.level == ELEMENT for store in program.stores)


def beside(window: Convolution, tile: Tile) -> int:
    """Outputs of a pooling window that lie beside each other in a warp's tile, as they have the same weights; 1 where
    they have not."""
    return window.pool if window.alike and tile.warp_cols // 8 % window.pool == 0 else 1


def residues_of(program: Program, tile: Tile, row: Together | None) -> tuple[tuple[Residue, ...], ...]:
    """The residues of the outputs that share their windows. Residues of a ``row`` that is stored together are one."""
    window = program.contraction.window
    if row is None:
        return window.residues[:1] if beside(window, tile) > 1 else window.residues
    return tuple(itertools.product(*(line.residues(True) for line in window.lines[:-1]), [row.line]))


def rows_of(program: Program, row: Together | None) -> int:
    """Rows of weights of a panel: one for each channel out; of a ``row`` that is stored together, one for each of its
    sides."""
    channels = program.contraction.window.channels_out
    return channels if row is None else 16 * -(-channels // row.channels)


def shift(line: Line, window: Convolution) -> int:
    """Inputs from the window of an output to that of the next one, where both have the same weights."""
    return 1 if window.transposed else line.stride


def least_offset(line: Residue) -> int:
    """The offset of the tap that lies furthest to the front."""
    return line.offset + min(0, max(0, line.taps - 1) * line.offset_step)
