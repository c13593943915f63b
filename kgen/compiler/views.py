"""Views as functions of indices: where the operand is read for an element of the result.

Each function takes the axes of the program, the type of the operand, the node, and the indices of an element of the
result. It returns the indices of the operand's element.
"""

from __future__ import annotations

from typing import Callable, Sequence

import sympy

from kgen.compiler.graph import Node, Tensor
from kgen.compiler.indices import Axes

Index = Sequence[sympy.Expr]
IndexFunction = Callable[[Axes, Tensor, Node, Index], Index]


def reshape(axes: Axes, source: Tensor, node: Node, index: Index) -> Index:
    """The element at the same position of the contiguous tensor."""
    return axes.unflat(axes.flat(index, node.type.sizes()), source.sizes())


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
