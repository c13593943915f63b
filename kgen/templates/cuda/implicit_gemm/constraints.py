"""The combinations of parameters that cannot work for a convolution in CUDA, or cannot win."""

from __future__ import annotations

from dataclasses import replace

from kgen.codegen.space import Constraint
from kgen.codegen.template import Task
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.loops.program import Program
from kgen.templates.cuda.implicit_gemm.cost import Costs
from kgen.templates.cuda.implicit_gemm.residues import Together, beside, least_offset, residues_of, shift
from kgen.templates.cuda.implicit_gemm.schedule import ImplicitGemm, multiple
from kgen.templates.cuda.implicit_gemm.tiles import Tile

#: Reach of TMA's im2col mode, by the dimensions of an image: of taps from a window's first element, and of windows from
#: the image's edges.
_REACH = {1: (65535, 32767), 2: (255, 127), 3: (31, 15)}
_MOST_STRIDE = 8  # elements; between windows, for TMA


def constraints(task: Task, costs: Costs) -> tuple[Constraint[ImplicitGemm], ...]:
    program = task.program()
    window, half = program.contraction.window, is_narrow(program.contraction.dtype)
    room = ("variant", "residues", "products", "tile", "block_k", "stages")
    return (
        Constraint(
            "one_product",
            ("products",),
            "one product of float16 terms is only as accurate as TF32, and PyTorch's own convolution is more exact",
            lambda s: s.products == 3 or half or task.tf32,
        ),
        Constraint(
            "registers",
            ("variant", "residues", "products", "tile"),
            "so many sums leave no registers for those between promotions, or for pooled values",
            lambda s: s.sums <= s.of_tile.most_sums,
        ),
        Constraint(
            "all_channels",
            ("variant", "residues", "tile"),
            "a block reduces all channels of its pixels, and the tile has fewer",
            lambda s: s.of_tile.rows >= costs.least_rows[s.residues],
        ),
        Constraint(
            "partial_sectors",
            ("residues",),
            "the other way to store residues takes less than two thirds of the time, by its products and the sectors "
            "that it writes",
            lambda s: costs.takes_us[s.residues] <= 1.5 * min(costs.takes_us.values()),
        ),
        Constraint(
            "idle_tile",
            ("variant", "residues", "products", "tile"),
            "another tile takes less than two thirds of the time, since less of it lies beyond the channels and pixels",
            lambda s: (
                s.products == 3
                or costs.us(s.variant, s.residues, s.tile) <= 1.5 * costs.least_us[s.variant, s.residues]
            ),
        ),
        Constraint(
            "window_reach",
            ("variant", "residues", "tile"),
            "TMA takes windows no further apart, and taps no further from each other",
            lambda s: not s.im2col or _in_reach(program, s.of_tile, s.together),
        ),
        Constraint(
            "idle_channels",
            ("variant", "block_k"),
            "more than a quarter of a stage's channels would be zeros",
            lambda s: not s.im2col or 4 * multiple(window.channels_in, s.block_k) <= 5 * window.channels_in,
        ),
        Constraint(
            "short_stages",
            ("variant", "block_k"),
            "the channels fill stages of twice the length",
            lambda s: not s.im2col or s.block_k != 16 or window.channels_in % 32 != 0,
        ),
        Constraint(
            "short_k",
            ("variant", "residues", "products", "tile", "block_k"),
            "the last stage would have more zeros than elements of k",
            lambda s: s.im2col or s.block_k == 32 or replace(s, block_k=32).weights.k > 64,
        ),
        Constraint(
            "shared_memory",
            room,
            "the stages need more shared memory than the blocks on a multiprocessor can have",
            lambda s: s.room.fits(s.stages),
        ),
        Constraint(
            "more_stages",
            room,
            "as many blocks have room for another stage, which takes nothing from what they read again",
            lambda s: s.weights.resident or s.stages == (6 if s.im2col else 4) or not s.room.fits(s.stages + 1),
        ),
    )


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
