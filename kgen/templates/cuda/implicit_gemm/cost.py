"""The predicted time of convolutions in CUDA, by their products and the sectors that they write."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.loops.program import ELEMENT, Program
from kgen.templates.cuda.implicit_gemm.residues import Together, beside, residues_of, rows_of, together
from kgen.templates.cuda.implicit_gemm.schedule import SECTOR, multiple
from kgen.templates.cuda.implicit_gemm.tiles import TILES, Tile

_RATE = 2.0  # millions of products a microsecond and multiprocessor; about that of all large tiles
#: Sectors that a multiprocessor stores a microsecond, whole and in parts. Whole sectors come at the rate of a copy. The
#: rate of parts is from level 1's problem 81 (benchmarks/results/kernelbench.md), measured on an H200 with elements 20
#: bytes apart.
_SECTORS, _PARTIAL_SECTORS = 1000.0, 600.0


@dataclass(frozen=True)
class Costs:
    """The times of a convolution by its tiles, and by whether residues are stored ``together``, where they can be, or
    ``apart``."""

    program: Program

    @cached_property
    def rows(self) -> Mapping[str, Together | None]:
        row = together(self.program)
        return {"apart": None} if row is None else {"together": row, "apart": None}

    @cached_property
    def takes_us(self) -> Mapping[str, float]:
        """Microseconds of an image on a multiprocessor, whatever the tile."""
        return {residues: _microseconds(self.program, of) for residues, of in self.rows.items()}

    @cached_property
    def least_rows(self) -> Mapping[str, int]:
        """Rows of weights that a tile must have: all channels, where they are reduced."""
        across = self.program.contraction.across
        return {residues: rows_of(self.program, of) if across else 1 for residues, of in self.rows.items()}

    def us(self, variant: str, residues: str, tile: str) -> float:
        """The time of a tile's products, those beyond the edges among them; times of one convolution compare with each
        other."""
        return _products(self.program, TILES[variant][tile], self.rows[residues]) / TILES[variant][tile].rate

    @cached_property
    def least_us(self) -> Mapping[tuple[str, str], float]:
        """The time of the fastest tile of a variant."""
        return {
            (variant, residues): min(
                (
                    self.us(variant, residues, name)
                    for name, tile in tiles.items()
                    if tile.rows >= self.least_rows[residues]
                ),
                default=0.0,
            )
            for variant, tiles in TILES.items()
            for residues in self.rows
        }


def _products(program: Program, tile: Tile, row: Together | None) -> float:
    """Products of float16 that whole tiles make for one image and one element of k, those beyond the edges among
    them."""
    window = program.contraction.window
    pixels, pooled = (
        max(math.prod(line.count for line in residue) for residue in residues_of(program, tile, row)),
        beside(window, tile),
    )
    return float(
        multiple(rows_of(program, row), tile.rows) * multiple(pixels * pooled, tile.cols) * (window.pool // pooled)
    )


def _microseconds(program: Program, row: Together | None) -> float:
    """Time of a multiprocessor for the products and the stores of one image, whose residues are those of a ``row``
    together or apart."""
    window = program.contraction.window
    alike = (
        window.residues
        if row is None
        else itertools.product(*(line.residues(True) for line in window.lines[:-1]), [row.line])
    )
    products = sum(math.prod(line.count * line.taps for line in residue) for residue in alike)
    step = (
        window.lines[-1].stride if window.transposed and row is None else 1
    )  # outputs from a store's element to its next
    size = max((DTYPES[store.dtype].nbytes for store in program.stores if store.level == ELEMENT), default=0)
    sectors = min(1.0, size * step / SECTOR) * window.pixels_out * window.channels_out * window.groups
    made = products * rows_of(program, row) * window.groups * window.channels_in / (_RATE * 1e6)
    return made + sectors / (_SECTORS if step == 1 else _PARTIAL_SECTORS)
