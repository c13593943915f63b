"""The space of convolutions in CUDA: which programs it takes, and the axes of each variant."""

from __future__ import annotations

from functools import partial

from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Task
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.loops.expr import Expr, calls, has_sign
from kgen.compiler.loops.functions import FUNCTIONS
from kgen.compiler.loops.passes import passes_of
from kgen.compiler.loops.program import ELEMENT, Map, Program
from kgen.templates.cuda import common
from kgen.templates.cuda.implicit_gemm.constraints import constraints
from kgen.templates.cuda.implicit_gemm.cost import Costs
from kgen.templates.cuda.implicit_gemm.residues import MOST_TAPS, rows_of, together
from kgen.templates.cuda.implicit_gemm.schedule import ImplicitGemm, multiple
from kgen.templates.cuda.implicit_gemm.tiles import TILES

_LEAST_CHANNELS = 8  # channels out of a group; with fewer, most of a product of 16 rows is thrown away
_OVER_PIXELS = {"sum", "max", "min", "moments", "softmax"}  # reductions that warps leave parts of
_OVER_CHANNELS = {"sum", "max", "min", "softmax"}  # reductions that a block finishes
_MOST_ROWS = 256  # of weights; a block's tile has no more, and it must hold all channels that it reduces
_MOST_POOLED = 64  # outputs that are pooled together; each that a tile takes by itself has a table of its own

lacks = common.lacking("convolutions of our own need the tensor cores of sm_80 or later", 80)


def takes(program: Program) -> bool:
    """Convolutions of more than a few channels out a group, with maps behind them, and reductions over pixels or
    channels."""
    of = program.contraction
    if of is None or of.window is None or program.moments_of or not program.floats:
        return False
    if of.before is not None and together(program) is not None:
        return False  # pixels that are NaN are computed again from x itself
    if not _pools(program):
        return False
    kinds = _OVER_CHANNELS if of.across else _OVER_PIXELS
    passes = passes_of(program, keep=True).passes
    if not kinds.issuperset(r.kind for r in program.reductions) or len(passes) > (2 if of.across else 1):
        return False
    if any(later.reductions for later in passes[1:]) or (
        of.across and (of.window.groups > 1 or rows_of(program, together(program)) > _MOST_ROWS)
    ):
        return False
    if of.across and any(store.level == ELEMENT for store in passes[0].stores):
        return False  # the block stores channels only behind what it found of all of them
    window = of.window
    staged = 2 * window.pixels_in * window.groups * multiple(window.channels_in, 64)
    return (
        window.channels_out >= _LEAST_CHANNELS
        and sum(line.kernel for line in window.lines) <= MOST_TAPS
        and max(staged, window.pixels_out * window.groups * window.channels_out) < 1 << 31
    )


def _pools(program: Program) -> bool:
    """Whether pooled values are maxima or sums of what becomes of sums by values of their channels alone."""
    of, window = program.contraction, program.contraction.window
    if window.pool > _MOST_POOLED:
        return False
    if window.transposed and window.pool > 1 and any(line.pool % line.stride for line in window.lines):
        return False
    others = {x.name for x in program.loads if x.level == ELEMENT and (not of.across or x.access.takes_row)}
    for step in program.steps:
        others |= {step.name} if isinstance(step, Map) and others & set(step.args) else set()
    return all(
        pool.kind in ("sum", "max")
        and all(isinstance(step, Map) for step in pool.body)
        and others.isdisjoint(pool.args)
        for pool in program.windows
    )


def space(task: Task) -> Space:
    program = task.program()
    costs = Costs(program)
    divides = any(_divides(step.expression) for step in program.steps if isinstance(step, Map))

    def axes(
        variant: str, products: tuple[int, ...], block_k: tuple[int, ...], stages: tuple[int, ...]
    ) -> list[tuple[Axis, ...]]:
        divisions = ("fast", "exact") if divides else ("exact",)
        return [
            (
                Axis("variant", (variant,)),
                Axis("residues", (residues,)),
                Axis("products", products),
                Axis("tile", tuple(sorted(TILES[variant], key=lambda tile: costs.us(variant, residues, tile)))),
                Axis("block_k", block_k),
                Axis("stages", stages),
                Axis("division", divisions),
            )
            for residues in sorted(costs.rows, key=lambda residues: costs.takes_us[residues])
        ]

    products = (1,) if is_narrow(program.contraction.dtype) else (1, 3)
    gather = axes("gather", products, (64, 32), (4, 3, 2))
    im2col = axes("im2col", products, (64, 32, 16), (6, 5, 4, 3, 2))
    variants = [*im2col, *gather] if task.hardware.capability == 90 else gather
    if _is_direct(program):
        # Where weights stay, two stages took 9% less time than four (level 1's problem 87 of KernelBench, H200).
        variants = [*axes("direct", products, (32,), (2, 3, 4)), *variants]
    first, *others = variants
    return Space(partial(ImplicitGemm, task), first, constraints(task, costs), tuple(others))


def _is_direct(program: Program) -> bool:
    """Whether each output has one element of the kernel and the input in its own place, and rows of pixels begin at 16
    bytes."""
    of = program.contraction
    lines = of.window.lines
    itself = all(
        line.kernel == line.stride == line.pool == 1 and line.padding == 0 and line.size == line.out for line in lines
    )
    return itself and of.before is None and not is_narrow(of.dtype) and of.window.pixels_in % 4 == 0


def _divides(expression: Expr) -> bool:
    """Whether an expression divides, or a function that it calls."""
    return has_sign(expression, "/") or any(
        _divides(FUNCTIONS[name].body) for name in calls(expression) if name in FUNCTIONS
    )
