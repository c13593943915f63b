"""The space of contractions in CUDA: the axes of each variant, the likeliest values first."""

from __future__ import annotations

import math
from functools import partial

from kgen.candidate import ParamValue
from kgen.codegen.space import Axis, Space
from kgen.codegen.template import Task
from kgen.templates.cuda import common
from kgen.templates.cuda.contraction.constraints import constraints, slow
from kgen.templates.cuda.contraction.cost import microseconds, splitting_microseconds
from kgen.templates.cuda.contraction.schedule import LIBRARY_INTERVAL, ROUNDED_TERMS, WHOLE_TERMS, Contraction, Shape
from kgen.templates.cuda.contraction.tiles import TILES

#: Elements of k. From it on, terms may be rounded. That takes 2^-19.8 of each product (root mean square), and 2^-17.1
#: in the worst case. PyTorch's sums of 32768 products lose 2^-18.2.
_ROUNDED_K = 32768

lacks = common.lacking("contractions of our own need the tensor cores of sm_80 or later", 80)


def space(task: Task) -> Space:
    shape, rough = Shape.of(task), Space(partial(Contraction, task), (), constraints(Shape.of(task), task.tf32))
    wgmma = task.hardware.capability == 90

    def fastest(axes: tuple[Axis, ...]) -> float:
        """The shortest time that is predicted for the combinations of the axes, with the splitting before them."""
        return min((microseconds(s) + splitting_microseconds(s) for s in rough.schedules(axes)), default=math.inf)

    if shape.narrow:
        variants = [
            _axes(
                "mma",
                products=(1,),
                intervals=(64,),
                stages=(4, 3, 2),
                clusters=(1,),
                multicast=(1,),
                splits=(1, 2, 4, 8),
            )
        ]
        if wgmma:
            variants.insert(
                0, _axes("sm90", products=(1,), intervals=(64,), stages=(7, 3), clusters=(1, 2, 4), multicast=(1, 2))
            )
        variants = [_likeliest_first(axes, rough) for axes in variants]
    else:
        variants = [_axes("sm80", products=(3,), intervals=(16,), stages=(4, 3, 2), clusters=(1,), multicast=(1,))]
        if wgmma:
            of_sm90 = _axes(
                "sm90", products=(3, 1), intervals=(64, 128, 16), stages=(7, 3), clusters=(1, 2, 4), multicast=(1, 2)
            )
            # Powers of two, and as many splits of k as fill the device.
            filling = task.hardware.multiprocessors // shape.tiles(TILES["slices"]["128x128"])
            slices = _axes(
                "slices",
                products=(3,),
                intervals=(64,),
                stages=(3,),
                clusters=(1,),
                multicast=(1, 2),
                splits=tuple(sorted({2, 4, 8, 16, 32} | ({filling} if filling > 1 else set()))),
                swizzle_groups=(16,),
            )
            variants = (
                [slices, of_sm90, *variants] if fastest(slices) < fastest(of_sm90) else [of_sm90, *variants, slices]
            )
        # Blocks that split whole rows themselves have all of k.
        variants.append(
            _axes(
                "whole",
                products=(3,),
                intervals=(16,),
                stages=(4, 3, 2),
                clusters=(1,),
                multicast=(1,),
                splits=(1,),
                swizzle_groups=(8, 16),
            )
        )
        variants = [
            *(_likeliest_first(_with_bits(axes, shape), rough) for axes in variants),
            _with_bits(_library_axes(shape), shape),
        ]
    first, *others = variants
    others_than_slices = min((fastest(axes) for axes in variants if axes[0].values != ("slices",)), default=0.0)
    cannot_win = slow([s for axes in variants for s in rough.schedules(axes)], others_than_slices)
    return Space(rough.schedule, first, (*rough.constraints, cannot_win), tuple(others))


def _axes(
    variant: str,
    products: tuple[int, ...],
    intervals: tuple[int, ...],
    stages: tuple[int, ...],
    clusters: tuple[int, ...],
    multicast: tuple[int, ...],
    splits: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    swizzle_groups: tuple[int, ...] = (16, 8),
) -> tuple[Axis, ...]:
    return (
        Axis("variant", (variant,)),
        Axis("products", products),
        Axis("promotion_interval", intervals),
        Axis("tile", tuple(TILES[variant])),
        Axis("splits", splits),
        Axis("cluster", clusters),
        Axis("multicast", multicast),
        Axis("stages", stages),
        Axis("swizzle_group", swizzle_groups),
    )


def _with_bits(axes: tuple[Axis, ...], shape: Shape) -> tuple[Axis, ...]:
    """The axes, with one for the bits of terms where these may be rounded: rows of inputs and of weights, which are
    long."""
    if shape.k < _ROUNDED_K or shape.turned or not shape.weight:
        return axes
    rounded = (ROUNDED_TERMS,) if axes[0].values == ("sm90",) else ()
    return (*axes, Axis("term_bits", (WHOLE_TERMS, *rounded)))


def _library_axes(shape: Shape) -> tuple[Axis, ...]:
    """The same axes for the library, most of them with one value; its splits are promotion intervals of k."""
    return (
        Axis("variant", ("library",)),
        Axis("products", (3, 1)),
        Axis("promotion_interval", (LIBRARY_INTERVAL,)),
        Axis("tile", ("library",)),
        Axis("splits", tuple(dict.fromkeys((shape.intervals, 1)))),
        Axis("cluster", (1,)),
        Axis("multicast", (1,)),
        Axis("stages", (1,)),
        Axis("swizzle_group", (1,)),
    )


def _likeliest_first(axes: tuple[Axis, ...], rough: Space[Contraction]) -> tuple[Axis, ...]:
    """The axes with their values ordered by the fastest combination of each, so that the fastest of all comes first."""
    ranked = sorted(rough.schedules(axes), key=microseconds)

    def rank(axis: str, value: ParamValue) -> int:
        return next((n for n, s in enumerate(ranked) if getattr(s, axis) == value), len(ranked))

    return tuple(Axis(a.name, tuple(sorted(a.values, key=lambda v: rank(a.name, v)))) for a in axes)
