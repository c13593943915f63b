"""The schedule of convolutions in CUDA: pixels, weights, staged images and outputs as its parameters make them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from kgen.codegen.template import Schedule, parameter
from kgen.compiler.graph.convolutions import Convolution, Residue
from kgen.compiler.graph.dtypes import DTYPES, is_narrow
from kgen.compiler.loops.program import ELEMENT
from kgen.templates.cuda import common
from kgen.templates.cuda.implicit_gemm.residues import Together, beside, residues_of, rows_of, stores_pixels, together
from kgen.templates.cuda.implicit_gemm.tiles import TILES, Tile, WarpTile

_MOST_EXCHANGED = 2048  # sums of a warp in shared memory at a time, so that blocks keep room for their stages
SECTOR = 32  # bytes
_MOST_RESIDENT = 40 << 10  # bytes of weights that stay in a block's shared memory; twice that leaves stages no room
_ROOM = 4096  # bytes of shared memory of a block beside its stages: the system's, and values of rows


def multiple(value: int, of: int) -> int:
    return -(-value // of) * of


@dataclass(frozen=True, kw_only=True)
class ImplicitGemm(common.InTerms, Schedule):
    """The sizes of a convolution's kernels.

    Channels of a group are copied in ``chunk`` at once, ``chunks`` of them; ``k`` is the length of all products with
    its padding.
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
    def window(self) -> Convolution:
        return self.program.contraction.window

    @property
    def stored(self) -> bool:
        """Whether each pixel of each channel is stored."""
        return stores_pixels(self.program)

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
    def sums(self) -> int:
        """Sets of sums that a thread holds."""
        return 1 + (self.products == 3) + (self.pixels.passes > 1)

    @property
    def of_tile(self) -> Tile:
        return TILES[self.variant][self.tile]

    @property
    def staged(self) -> bool:
        """Whether images are staged before they are multiplied."""
        return self.variant != "direct"

    @property
    def scaled(self) -> bool:
        """Whether factors are scaled to float16, instead of multiplied as they are."""
        return self.staged and not self.narrow

    @property
    def paired(self) -> bool:
        """Whether both terms of x lie beside each other, in 16 bytes, and a row of weights has ``w_hi`` twice and
        ``w_lo`` once.

        Copies bound a gather of few channels: level 1's problem 54 of KernelBench took 1.02 instead of 1.26 ms (H200).
        With eight channels products bound it, and the terms apart are 5 to 10% faster.
        """
        return self.variant == "gather" and self.terms == 2 and self.chunk == 4

    @property
    def chunk(self) -> int:
        return 4 if self.window.channels_in <= 4 and self.variant == "gather" else 8

    @property
    def chunks(self) -> int:
        if self.im2col:  # a stage has channels of one tap
            return multiple(self.window.channels_in, self.block_k) // self.chunk
        return -(-self.window.channels_in // self.chunk)

    @property
    def channels_out(self) -> int:
        return self.window.groups * self.window.channels_out

    @cached_property
    def pixels(self) -> Pixels:
        return Pixels(self)

    @cached_property
    def weights(self) -> Weights:
        return Weights(self)

    @cached_property
    def staging(self) -> Staging:
        return Staging(self)

    @cached_property
    def outputs(self) -> Outputs:
        return Outputs(self)

    @cached_property
    def room(self) -> Room:
        return Room(self)


@dataclass(frozen=True)
class Pixels:
    """The outputs that a tile has."""

    of: ImplicitGemm

    @property
    def beside(self) -> int:
        return beside(self.of.window, self.of.of_tile)

    @property
    def passes(self) -> int:
        """Sums that a tile takes one after another, as they are pooled."""
        return self.of.window.pool // self.beside

    @property
    def count(self) -> int:
        """Pixels of the output that a tile has."""
        return self.of.of_tile.cols // self.beside

    @property
    def of_warp(self) -> int:
        return self.of.of_tile.warp_cols // self.beside

    @property
    def most(self) -> int:
        """Pixels of the largest residue."""
        return max(math.prod(line.count for line in residue) for residue in self.of.all_residues)

    @property
    def scattered(self) -> bool:
        """Whether a tile's pixels do not lie beside each other in the image."""
        return len(self.of.all_residues) > self.passes or self.of.together is not None


@dataclass(frozen=True)
class Weights:
    """Weights as they are packed: rows of ``k`` for each channel out of each panel."""

    of: ImplicitGemm

    @property
    def rows(self) -> int:
        """Rows of weights of a panel."""
        return rows_of(self.of.program, self.of.together)

    @property
    def k(self) -> int:
        most = max(math.prod(line.taps for line in residue) for residue in self.of.all_residues)
        if self.of.paired:  # two terms of x, by three halves as many of w
            return multiple(2 * most * self.of.chunks * self.of.chunk, self.of.block_k) * 3 // 2
        products = self.of.products if self.of.staged else 1  # all products of TF32 terms come from one stage
        return multiple(products * most * self.of.chunks * self.of.chunk, self.of.block_k)

    @property
    def panels(self) -> int:
        """Matrices of weights: one for each group and residue."""
        return self.of.window.groups * len(self.of.all_residues)

    @property
    def all_rows(self) -> int:
        return self.panels * multiple(self.rows, self.of.of_tile.rows)

    @property
    def elements(self) -> int:
        """Elements of the operands' dtype that packed weights take; weights of float32 have exponents."""
        return self.all_rows * (self.k // 2 + 1 if self.of.scaled else self.k)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory for the weights of a tile's rows of the variant ``direct``, of all steps."""
        block_k = self.of.block_k
        return 4 * self.of.of_tile.rows * (block_k + 4) * (self.k // block_k)

    @property
    def resident(self) -> bool:
        """Whether all weights stay in a block's shared memory, beside the stages of images."""
        return not self.of.staged and self.all_rows == self.of.of_tile.rows and self.shared_bytes <= _MOST_RESIDENT


@dataclass(frozen=True)
class Staging:
    """How images are staged, and their memory."""

    of: ImplicitGemm

    @property
    def pixels_at_once(self) -> int:
        return next(width for width in (8 if self.of.narrow else 4, 4, 2, 1) if self.of.window.pixels_in % width == 0)

    @property
    def chunk_lanes(self) -> int:
        """Lanes of a warp that stage neighbouring chunks of channels."""
        return min(4, 1 << (self.of.window.groups * self.of.chunks - 1).bit_length())

    @property
    def halves(self) -> int:
        """Elements of a staged image."""
        return self.of.terms * self.of.window.pixels_in * self.of.window.groups * self.of.chunks * self.of.chunk

    @property
    def image_floats(self) -> int:
        """Float32 elements of the workspace for an image: staged, and of float32 the largest magnitudes of its parts,
        and its exponent."""
        if not self.of.scaled:
            return self.halves // 2 if self.of.staged else 0
        lanes = self.chunk_lanes
        warps = -(-(self.of.window.pixels_in // self.pixels_at_once) // (32 // lanes)) * -(
            -(self.of.window.groups * self.of.chunks) // lanes
        )
        return -(-self.halves // 2) + -(-warps // 8) + 1


@dataclass(frozen=True)
class Exchange:
    """Sums that a warp exchanges at a time: ``lines`` channels of ``outputs`` neighbours, from ``pieces`` pieces of 8
    windows."""

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


@dataclass(frozen=True)
class Outputs:
    """How sums become results: what warps exchange, store, and find by reductions."""

    of: ImplicitGemm

    @property
    def vec(self) -> int:
        """Neighbouring pixels that one instruction stores: four, where all images and rows begin at multiples of
        that."""
        if self.of.together is not None:
            return 4 if self.of.pair and self.of.window.lines[-1].out % 4 == 0 else 1
        whole = not self.of.pixels.scattered and self.of.pixels.of_warp % 16 == 0 and self.of.window.pixels_out % 4 == 0
        return 4 if whole else 1

    @property
    def exchanges(self) -> bool:
        """Whether lanes exchange sums by way of shared memory, since neighbouring pixels are not aligned for
        vectors."""
        return self.of.stored and not self.of.across and self.vec == 1

    @property
    def exchange(self) -> Exchange:
        row = self.of.together
        lines, step = (16, 1) if row is None else (row.channels, row.step)
        most = min(self.of.pixels.of_warp // 8, 8)
        pieces = next(
            some for some in (8, 4, 2, 1) if some <= most and (some == 1 or lines * 8 * some * step <= _MOST_EXCHANGED)
        )
        return Exchange(lines, pieces, 8 * pieces * step, 16 if self.of.pair else 8)

    @property
    def exchange_floats(self) -> int:
        """Elements of shared memory that a warp exchanges sums by."""
        return self.exchange.lines * self.exchange.pitch if self.exchanges else 0

    @property
    def sector(self) -> int:
        """Elements of an output in a sector of memory."""
        stored = [store for store in self.of.program.stores if store.level == ELEMENT]
        return SECTOR // DTYPES[stored[0].dtype].nbytes if stored else SECTOR

    @property
    def classes(self) -> int:
        """Classes of channels by the place in a sector where their pixels begin, where stores of a class begin with a
        sector.

        0 where they do not: neighbours lie in one lane, or there are so many classes that lanes would look up pixels
        for each channel. At stride 2 few sectors are written in parts as it is; looking up took 7% of a transposed
        convolution with GELU (H100).
        """
        found = self.sector // math.gcd(self.sector, self.of.window.pixels_out)
        return (
            found if self.exchanges and self.of.together is not None and self.of.together.step > 2 and found <= 2 else 0
        )

    @property
    def rows_of_image(self) -> int:
        """Rows of the program that belong to an image."""
        return self.of.window.pixels_out if self.of.across else self.of.channels_out

    @property
    def found_floats(self) -> int:
        """Elements of shared memory for what warps find of all channels: of each strip of rows, result and output."""
        sides = 2 if self.of.pair else 1
        return self.of.of_tile.warp_strips * self.of.results * sides * self.of.pixels.count if self.of.across else 0

    @property
    def slots(self) -> int:
        """Parts of an image whose pixels one warp reduces."""
        return (
            len(self.of.all_residues)
            // self.of.pixels.passes
            * -(-self.of.pixels.most // self.of.pixels.count)
            * (self.of.pixels.count // self.of.pixels.of_warp)
        )


@dataclass(frozen=True)
class Room:
    """The blocks of a multiprocessor, and their shared memory."""

    of: ImplicitGemm

    @property
    def blocks(self) -> int:
        """Blocks on a multiprocessor; sums between promotions take registers."""
        small = isinstance(self.of.of_tile, WarpTile) and self.of.of_tile.mma_m == 1
        promoted = self.of.products == 3 and not small
        return max(1, self.of.of_tile.blocks - 1) if self.of.pixels.passes > 1 or promoted else self.of.of_tile.blocks

    def shared_bytes(self, stages: int) -> int:
        stage = 2 * self.of.block_k * (self.of.of_tile.rows + self.of.of_tile.cols)
        exchange = 4 * self.of.outputs.exchange_floats
        if self.of.im2col:
            return stages * (stage + 16) + 1024 + self.of.of_tile.warps * exchange + 4 * self.of.outputs.found_floats
        warps = self.of.of_tile.warps_m * self.of.of_tile.warps_n
        if not self.of.staged:
            block_k = self.of.block_k
            stage = 4 * block_k * (self.of.of_tile.cols + 8)
            weights = (
                self.of.weights.shared_bytes
                if self.of.weights.resident
                else stages * 4 * self.of.of_tile.rows * (block_k + 4)
            )
            return weights + stages * stage + warps * exchange + 4 * self.of.outputs.found_floats
        stage += self.of.block_k * self.of.of_tile.rows if self.of.paired else 0
        entries = self.of.weights.k // (3 * self.of.chunk if self.of.paired else self.of.chunk)
        return (
            stages * stage
            + len(self.of.all_residues) * entries * 8
            + warps * exchange
            + 4 * self.of.outputs.found_floats
        )

    def fits(self, stages: int) -> bool:
        """Whether as many blocks as the tile's registers allow have room for ``stages`` stages."""
        taken, hardware = self.shared_bytes(stages), self.of.task.hardware
        room = hardware.shared_bytes_per_multiprocessor // self.blocks - _ROOM
        return taken <= min(room, hardware.shared_bytes_per_block)
