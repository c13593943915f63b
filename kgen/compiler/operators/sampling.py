"""Values between the elements of an image: bicubic resizing, and samples at the points of a grid.

    bicubic   y[i] = sum of weight(i, tap) * x[floor(at(i)) - 1 + tap] over four taps in each dimension
    grid      y[n, c, ..] = the value of x[n, c] at the point grid[n, ..], between its neighbours in each dimension

Points and weights are values of the program; places of neighbours are too, as those of a gather. A function of a
dimension is one of each of its neighbours: where it lies, its weight, and whether it lies inside.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from kgen.compiler.graph.graph import Node
from kgen.compiler.loops.expr import Cast, Expr, both, equal, function, where, x, y
from kgen.compiler.loops.functions import absolute, clamp_to, fmax, fmin, fmod, rint
from kgen.compiler.operators.op import Builder, Captured, Index

floor = function("FLOOR")

#: The names of what ATen has numbers for.
MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
#: The attribute of a sample whose image and result have channels last.
CHANNELS_LAST = ("channels_last", True)
_WHOLE = 2147483520.0  # the largest float32 that is a whole number of 32 bits
_MOST_ELEMENTS = 1 << 30  # of an image: places are integers of 32 bits
_SHARPNESS = -0.75  # of cubic convolution, as PyTorch has it


# Attributes of calls


def _fixed(call: Captured, argument: str, rank: int) -> bool:
    """Whether the last dimensions of an argument keep their sizes at any batch."""
    return not any(call.types[call.arguments[argument].name].multiples[-rank:])


def resized(call: Captured) -> dict[str, Any] | None:
    """For each dimension, the input's step from one output to the next, and whether corners lie on corners."""
    given, sizes = call.arguments, call.shape("input")[2:]
    if (
        call.type is None
        or not _fixed(call, "input", len(sizes))
        or any(call.type.multiples[2:])
        or not call.type.numel
        or math.prod(sizes) > _MOST_ELEMENTS
    ):
        return None
    corners, factors = bool(given["align_corners"]), given.get("scale_factors") or (None,) * len(sizes)
    steps = []
    for size, out, factor in zip(sizes, call.type.shape[2:], factors):
        steps.append(
            (size - 1) / (out - 1) if corners and out > 1 else 0.0 if corners else 1 / factor if factor else size / out
        )
    return {"corners": corners, "steps": tuple(steps)}


def sampled(call: Captured) -> dict[str, Any] | None:
    """How values are found between elements and beyond the border.

    A point that is no number spoils results on the CPU, where images have zeros around them. It lies outside on a GPU,
    and of volumes. Other images have its value at their first element, volumes on the CPU at the last.
    """
    given, rank = call.arguments, len(call.shape("input")) - 2
    mode, padding = MODES[given["interpolation_mode"]], PADDINGS[given["padding_mode"]]
    if (
        call.type is None
        or not _fixed(call, "input", rank)
        or not call.type.numel
        or (mode == "bicubic" and rank != 2)
        or math.prod(call.shape("input")[2:]) > _MOST_ELEMENTS
    ):
        return None
    return {
        "mode": mode,
        "padding": padding,
        "corners": bool(given["align_corners"]),
        "lost_outside": call.elsewhere or rank > 2,
        "lost_at_end": rank > 2 and not call.elsewhere,
    }


# Lowerings


@dataclass(frozen=True)
class _Neighbour:
    """One neighbour along a dimension: its place, its weight, and whether it lies inside; ``None`` where it always
    does."""

    place: Any
    weight: str | None
    inside: str | None


def _cubic(t: Expr) -> tuple[Expr, ...]:
    """The weights of four neighbours, of which the second lies ``t`` before the point."""
    a = _SHARPNESS

    def near(d: Expr) -> Expr:
        return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0

    def far(d: Expr) -> Expr:
        return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a

    return far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)


def _neighbours(
    b: Builder, stem: str, point: str, size: int, cubic: bool, at: Callable[[Expr], Expr], bounded: bool
) -> list[_Neighbour]:
    """The neighbours of a point along a dimension; ``at`` moves the place of one, and ``bounded`` says that it then
    lies inside."""
    low = b.map(f"{stem}_low", floor(x), [point])
    t = b.map(f"{stem}_part", x - y, [point, low])
    weights = _cubic(x) if cubic else (1.0 - x, x)
    found = []
    for number, weight in enumerate(weights):
        place = b.map(f"{stem}_at", at(x + float(number - cubic)), [low])
        inside = None if bounded else b.map(f"{stem}_inside", both(x >= 0.0, x < float(size)), [place], "bool")
        found.append(_Neighbour(_as_place(b, stem, place, size), b.map(f"{stem}_weight", weight, [t]), inside))
    return found


def _as_place(b: Builder, stem: str, value: str, size: int) -> Any:
    """The element that lies at a whole number; an image has fewer than integers of 32 bits, which a GPU converts four
    times as fast."""
    return b.place(f"{stem}_place", b.map(f"{stem}_index", Cast(x, "int32"), [value], "int32"), size, "int32")


def _blended(
    b: Builder, node: Node, source: str, front: Index, dims: Sequence[Sequence[_Neighbour]], behind: Index = ()
) -> str:
    """The sum of an image's elements at all neighbours, each by its weights; 0 outside. The last dimension is summed
    first."""
    names = itertools.count()

    def along(places: Index, weight: str | None, inside: str | None, rest: Sequence[Sequence[_Neighbour]]) -> str:
        found = None
        for one in rest[0] if rest else ():
            held = [v for v in (inside, one.inside) if v is not None]
            both_in = (
                held[0] if len(held) == 1 else b.map(f"{node.name}_inside", both(x, y), held, "bool") if held else None
            )
            part = along((*places, one.place), one.weight, both_in, rest[1:])
            found = part if found is None else b.map(f"{node.name}_sum_{next(names)}", x + y, [found, part])
        if found is None:
            found = b.value(source, (*front, *places, *behind))
            found = b.map(f"{node.name}_found", where(x, y, 0.0), [inside, found]) if inside is not None else found
        return b.map(f"{node.name}_part", x * y, [found, weight]) if weight is not None else found

    return along((), None, None, dims)


def resize(b: Builder, node: Node, index: Index) -> str:
    """Cubic convolution of four elements in each dimension; beyond the border, elements of the border count."""
    sizes, dims = b.graph.type(node.inputs[0]).shape[2:], []
    for d, (size, step, i) in enumerate(zip(sizes, node["steps"], index[2:])):
        stem = f"{node.name}_{d}"
        number = b.position(f"{stem}_number", i, "float32")
        point = b.map(f"{stem}_point", x * step if node["corners"] else (x + 0.5) * step - 0.5, [number])
        dims.append(
            _neighbours(b, stem, point, size, True, lambda at, size=size: clamp_to(at, 0.0, float(size - 1)), True)
        )
    return _blended(b, node, node.inputs[0], index[:2], dims)


def _in_elements(of: Expr, size: int, corners: bool) -> Expr:
    """A coordinate from -1 to 1 in numbers of elements."""
    return (of + 1.0) / 2.0 * float(size - 1) if corners else ((of + 1.0) * float(size) - 1.0) / 2.0


def _padded(of: Expr, size: int, padding: str, corners: bool, lost_at_end: bool) -> Expr:
    """A coordinate beyond the border, or one that is no number, moved to where its value is taken."""
    if padding == "reflection":
        least, span = (0.0, float(size - 1)) if corners else (-0.5, float(size))
        distance = absolute(of - least)
        turned = fmod(floor(distance / span), 2.0)
        of = (
            where(equal(turned, 0.0), fmod(distance, span) + least, span - fmod(distance, span) + least)
            if span
            else of * 0.0
        )
    if padding == "zeros":
        return of
    return (
        fmax(fmin(of, float(size - 1)), 0.0) if lost_at_end else fmin(fmax(of, 0.0), float(size - 1))
    )  # each leaves out no number


def _outside_if_lost(of: Expr) -> Expr:
    """A coordinate, or one outside where it is not finite, or no whole number of 32 bits."""
    return where(absolute(of) < _WHOLE, of, -100.0)


def grid_sample(b: Builder, node: Node, index: Index) -> str:
    """The value of an image at a point of the grid; the last of a point's coordinates belongs to the first
    dimension."""
    source, grid = node.inputs
    last = CHANNELS_LAST in node.attrs
    (image, channel, *at) = (index[0], index[-1], *index[1:-1]) if last else index
    shape = b.graph.type(source).shape
    sizes, mode, padding, corners = shape[1:-1] if last else shape[2:], node["mode"], node["padding"], node["corners"]
    dims = []
    for d, size in enumerate(sizes):
        stem, coordinate = f"{node.name}_{d}", b.axes.constant(len(sizes) - 1 - d)
        given = b.value(grid, (image, *at, coordinate))
        point = _in_elements(x, size, corners)
        moved = (
            (lambda at, size=size: _padded(at, size, padding, corners, False)) if mode == "bicubic" else lambda at: at
        )
        point = point if mode == "bicubic" else _padded(point, size, padding, corners, node["lost_at_end"])
        lost = node["lost_outside"] and mode == "bilinear" and padding == "zeros"
        found = b.map(f"{stem}_point", _outside_if_lost(point) if lost else point, [given])
        if mode == "nearest":
            nearest = b.map(f"{stem}_nearest", rint(x), [found])
            inside = (
                b.map(f"{stem}_inside", both(x >= 0.0, x < float(size)), [nearest], "bool")
                if padding == "zeros"
                else None
            )
            dims.append([_Neighbour(_as_place(b, stem, nearest, size), None, inside)])
        else:
            bounded = mode == "bicubic" and padding != "zeros"
            dims.append(_neighbours(b, stem, found, size, mode == "bicubic", moved, bounded))
    front, behind = ((image,), (channel,)) if last else ((image, channel), ())
    return _blended(b, node, source, front, dims, behind)
