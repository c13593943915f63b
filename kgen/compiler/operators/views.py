"""Views as functions of indices: where the operand is read for an element of the result.

Each function takes the axes of the program, the type of the operand, the node, and the indices of an element of the
result. It returns the indices of the operand's element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence

import sympy

from kgen.compiler.graph.graph import Node, Tensor
from kgen.compiler.loops.indices import Axes

Index = Sequence[sympy.Expr]
IndexFunction = Callable[[Axes, Tensor, Node, Index], Index]


def reshape(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """The element at the same position of the contiguous tensor, or of each run of dimensions that stay together."""
    if not (any(source.multiples[1:]) or any(node.type.multiples[1:])):
        return axes.unflat(axes.flat(index, node.type.sizes()), source.sizes())
    found: list[sympy.Expr] = []
    for before, after in runs(source, node.type):
        position = axes.flat(index[after], node.type.sizes()[after])
        found += axes.unflat(position, source.sizes()[before])
    return found


def runs(a: Tensor, b: Tensor) -> list[tuple[slice, slice]]:
    """The shortest runs of dimensions of two shapes that have as many elements as each other, at any batch.

    ``(batch, 8, 4, 2)`` and ``(batch * 8, 2, 4)``: the first two and the first one, then the last two of both.
    """
    found, starts = [], (0, 0)
    ends, counts = [0, 0], [_Count(), _Count()]
    while ends[0] < len(a.shape) or ends[1] < len(b.shape):
        behind = [n for n, of in enumerate((a, b)) if ends[n] < len(of.shape)]
        at = min(behind, key=lambda n: counts[n].elements)
        of = (a, b)[at]
        counts[at] = counts[at].times(of.shape[ends[at]], of.multiples[ends[at]])
        ends[at] += 1
        if counts[0] == counts[1]:
            found.append((slice(starts[0], ends[0]), slice(starts[1], ends[1])))
            starts, counts = (ends[0], ends[1]), [_Count(), _Count()]
    if starts != (len(a.shape), len(b.shape)):
        found.append((slice(starts[0], None), slice(starts[1], None)))
    return found


@dataclass(frozen=True)
class _Count:
    """A number of elements: ``elements`` at the captured batch, ``factor`` times the ``power`` of any batch."""

    elements: int = 1
    factor: int = 1
    power: int = 0

    def times(self, size: int, multiple: int) -> _Count:
        return _Count(self.elements * size, self.factor * (multiple or size), self.power + bool(multiple))


def permute(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """Dimension ``i`` of the result is dimension ``dims[i]`` of the operand."""
    return [i for _, i in sorted(zip(node["dims"], index))]


def expand(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """A dimension of one element is repeated; new dimensions stand in front."""
    behind = index[len(index) - len(source.shape) :] if source.shape else ()
    return [axes.constant(0) if size == 1 else i for size, i in zip(source.sizes(), behind)]


def cut(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """Every ``step``-th element of a dimension from ``start`` on."""
    return [i * node["step"] + node["start"] if d == node["dim"] else i for d, i in enumerate(index)]


def select(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """One element of a dimension, which the result lacks."""
    return [*index[: node["dim"]], axes.constant(node["at"]), *index[node["dim"] :]]


def diagonal(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """Two dimensions read along their diagonal, which is the last dimension of the result."""
    (first, second), offset, rest = node["dims"], node["offset"], iter(index[:-1])
    along = {first: index[-1] + max(-offset, 0), second: index[-1] + max(offset, 0)}
    return [along[d] if d in along else next(rest) for d in range(len(source.shape))]


def unfold(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """Windows of a dimension, whose elements are the last dimension of the result."""
    return [i * node["step"] + index[-1] if d == node["dim"] else i for d, i in enumerate(index[:-1])]
