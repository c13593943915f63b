"""Einsum: sums of products of several operands, as products of two of them after one another, in the order of the
fewest operations.

    bi,ij,bj->b     (x @ a) * y, summed over j: one matrix product, and one reduction
    bhls,bhl->bhs   a product of elements, and a reduction: no matrix has one row

Tensors are torch's, as in every decomposition, or nodes of a graph that a rewrite makes. Both have the methods of
:class:`Array`.
"""

from __future__ import annotations

import itertools
import math
import string
from dataclasses import dataclass
from typing import Any, Mapping, Protocol, Sequence

MOST_ORDERED = 5  # operands of which every order is tried; of more, the cheapest pair comes first


class Array(Protocol):
    """The methods of tensors that products of pairs are made of."""

    @property
    def shape(self) -> Sequence[int]: ...
    def sum(self, dims: list[int], /) -> Any: ...
    def permute(self, dims: list[int], /) -> Any: ...
    def unsqueeze(self, dim: int, /) -> Any: ...
    def reshape(self, *sizes: int) -> Any: ...
    def transpose(self, dim: int, other: int, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...


class Products(Protocol):
    """Products of matrices: ``linear(x, w)`` has rows of ``w`` side by side, ``bmm`` batches of matrices."""

    def linear(self, x: Any, w: Any, /) -> Any: ...
    def bmm(self, x: Any, y: Any, /) -> Any: ...


@dataclass(frozen=True)
class _Operand:
    """A tensor with a letter for each dimension."""

    labels: str
    tensor: Any

    def summed(self, wanted: set[str]) -> _Operand:
        """The sum over the dimensions whose letters nothing else has."""
        dims = [d for d, label in enumerate(self.labels) if label not in wanted]
        kept = "".join(label for label in self.labels if label in wanted)
        return _Operand(kept, self.tensor.sum(dims)) if dims else self

    def ordered(self, labels: str) -> Any:
        """The tensor with its dimensions in this order, of which it may lack some: they have one element."""
        own = [label for label in labels if label in self.labels]
        order = [self.labels.index(label) for label in own]
        found = self.tensor.permute(order) if order != sorted(order) else self.tensor
        for at, label in enumerate(labels):
            found = found if label in self.labels else found.unsqueeze(at)
        return found


@dataclass(frozen=True)
class Equation:
    """The letters of each operand and of the result, without dots, and the extent of each letter."""

    labels: tuple[str, ...]
    result: str
    sizes: Mapping[str, int]

    @property
    def text(self) -> str:
        return f"{','.join(self.labels)}->{self.result}"


def equation_of(text: str, shapes: Sequence[Sequence[int]]) -> Equation | None:
    """The equation of operands of these shapes; ``None`` of diagonals, broadcast letters and single operands."""
    inputs, _, result = _without_dots(text.replace(" ", ""), [len(shape) for shape in shapes]).partition("->")
    labels = tuple(inputs.split(","))
    repeated = any(len(set(of)) < len(of) for of in (*labels, result))
    sizes: dict[str, int] = {}
    for of, shape in zip(labels, shapes):
        for label, size in zip(of, shape):
            repeated |= sizes.setdefault(label, size) != size  # a size of one is broadcast
    return None if len(shapes) < 2 or repeated else Equation(labels, result, sizes)


def einsum(of: Equation, tensors: Sequence[Array], products: Products) -> Any:
    """The equation's result as products of pairs."""
    operands = [_Operand(labels, tensor) for labels, tensor in zip(of.labels, tensors)]
    for first, second in _order(of.labels, of.result, of.sizes):
        others = [o for n, o in enumerate(operands) if n not in (first, second)]
        wanted = set(of.result).union(*(o.labels for o in others))
        a, b = operands[first], operands[second]
        a, b = _in_order(a, b, next((o.labels for o in others if _has_both(o.labels, a.labels, b.labels)), of.result))
        operands = [*others, _product(a, b, wanted, of.sizes, products)]
    (found,) = operands
    return found.ordered(of.result)


def _without_dots(equation: str, ranks: Sequence[int]) -> str:
    """The equation with letters for dots, which stand for the same last dimensions of each operand, and with its
    result."""
    inputs, arrow, result = equation.partition("->")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    meant = [rank - len(of.replace("...", "")) for of, rank in zip(inputs.split(","), ranks) if "..." in of]
    dots = "".join(free[: max(meant, default=0)])
    labels = [
        of.replace("...", dots[len(dots) - rank + len(of.replace("...", "")) :])
        for of, rank in zip(inputs.split(","), ranks)
    ]
    if not arrow:
        once = (letter for letter in set(inputs) - set(",.") if inputs.count(letter) == 1)
        result = ("..." if "..." in inputs else "") + "".join(sorted(once))
    return f"{','.join(labels)}->{result.replace('...', dots)}"


def _order(labels: Sequence[str], result: str, sizes: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """The pairs in the order of the fewest multiplications; each product stands behind the operands that are left."""

    def cost(pair: tuple[int, int], of: Sequence[str]) -> int:
        return math.prod(sizes[label] for label in {*of[pair[0]], *of[pair[1]]})

    def behind(pair: tuple[int, int], of: Sequence[str]) -> list[str]:
        others = [labels for n, labels in enumerate(of) if n not in pair]
        wanted = set(result).union(*others)
        return [*others, "".join(sorted({*of[pair[0]], *of[pair[1]]} & wanted))]

    def best(of: Sequence[str]) -> tuple[int, tuple[tuple[int, int], ...]]:
        if len(of) == 1:
            return 0, ()
        pairs = list(itertools.combinations(range(len(of)), 2))
        if len(of) > MOST_ORDERED:
            pairs = [min(pairs, key=lambda pair: cost(pair, of))]
        found = []
        for pair in pairs:
            rest, then = best(behind(pair, of))
            found.append((cost(pair, of) + rest, (pair, *then)))
        return min(found, key=lambda one: one[0])

    return best(labels)[1]


def _has_both(labels: str, a: str, b: str) -> bool:
    """Whether an operand has letters that only one of two others has, of each of them."""
    return all(any(label in labels for label in x if label not in y) for x, y in ((a, b), (b, a)))


def _in_order(a: _Operand, b: _Operand, result: str) -> tuple[_Operand, _Operand]:
    """Both operands, the one with the innermost letter of the result last: its columns lie side by side there.

    The result is that of the equation, or what the product is multiplied with, element by element.

    Only a batch of matrices is turned so. Rows of a single product stay those of the left operand, since weights stand
    on the right.
    """
    own = [
        max((result.find(label) for label in x.labels if label not in y.labels), default=-1)
        for x, y in ((a, b), (b, a))
    ]
    shared = any(label in b.labels and label in result for label in a.labels)
    return (b, a) if shared and own[0] > own[1] else (a, b)


def _product(a: _Operand, b: _Operand, wanted: set[str], sizes: Mapping[str, int], products: Products) -> _Operand:
    """The product of two operands, summed over the letters that are not wanted behind it."""
    a, b = a.summed(wanted | set(b.labels)), b.summed(wanted | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch, along = ("".join(label for label in shared if (label in wanted) == kept) for kept in (True, False))
    rows, cols = ("".join(label for label in of.labels if label not in shared) for of in (a, b))
    m, n, k, many = (math.prod(sizes[label] for label in of) for of in (rows, cols, along, batch))
    if not along or m == 1 or n == 1:
        kept = batch + rows + cols
        found = a.ordered(kept + along) * b.ordered(kept + along)
        return _Operand(kept, found.sum([*range(len(kept), len(found.shape))]) if along else found)
    left = a.ordered(batch + rows + along)
    turned = b.labels == batch + cols + along  # rows of the right operand lie side by side
    right = b.tensor if turned else b.ordered(batch + along + cols)
    if not batch:
        found = (
            products.linear(left.reshape(m, k), right.reshape(n, k))
            if turned
            else left.reshape(m, k) @ right.reshape(k, n)
        )
    else:
        right = right.reshape(many, n, k).transpose(1, 2) if turned else right.reshape(many, k, n)
        found = products.bmm(left.reshape(many, m, k), right)
    kept = batch + rows + cols
    return _Operand(kept, found.reshape([sizes[label] for label in kept]))
