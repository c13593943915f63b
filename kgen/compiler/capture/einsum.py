"""Einsum: sums of products of several operands, as products of two of them after one another, in the order of the fewest operations.

    bi,ij,bj->b     (x @ a) * y, summed over j: one matrix product, and one reduction
    bhls,bhl->bhs   a product of elements, and a reduction: no matrix has one row

Each function takes ATen's operators to ATen's operators, as every decomposition does.
"""

from __future__ import annotations

import itertools
import math
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Sequence

if TYPE_CHECKING:
    import torch

MOST_ORDERED = 5  # operands of which every order is tried; of more, the cheapest pair comes first


@dataclass(frozen=True)
class _Operand:
    """A tensor with a letter for each dimension."""

    labels: str
    tensor: torch.Tensor

    def summed(self, wanted: set[str]) -> _Operand:
        """The sum over the dimensions whose letters nothing else has."""
        dims = [d for d, label in enumerate(self.labels) if label not in wanted]
        kept = "".join(label for label in self.labels if label in wanted)
        return _Operand(kept, self.tensor.sum(dims)) if dims else self

    def ordered(self, labels: str) -> torch.Tensor:
        """The tensor with its dimensions in this order, of which it may lack some: they have one element."""
        own = [label for label in labels if label in self.labels]
        order = [self.labels.index(label) for label in own]
        found = self.tensor.permute(order) if order != sorted(order) else self.tensor
        for at, label in enumerate(labels):
            found = found if label in self.labels else found.unsqueeze(at)
        return found


def einsum(equation: str, tensors: Sequence[torch.Tensor]) -> Any:
    """``torch.einsum`` as products of pairs; ``NotImplemented`` for diagonals, broadcast letters and single operands."""
    equation = _without_dots(equation.replace(" ", ""), [tensor.dim() for tensor in tensors])
    inputs, _, result = equation.partition("->")
    labels = inputs.split(",")
    repeated = any(len(set(of)) < len(of) for of in (*labels, result))
    sizes: dict[str, int] = {}
    for of, tensor in zip(labels, tensors):
        for label, size in zip(of, tensor.shape):
            repeated |= sizes.setdefault(label, size) != size  # a size of one is broadcast
    if len(tensors) < 2 or repeated or not all(tensor.is_floating_point() for tensor in tensors):
        return NotImplemented
    operands = [_Operand(of, tensor) for of, tensor in zip(labels, tensors)]
    for first, second in _order([of.labels for of in operands], result, sizes):
        others = [of for n, of in enumerate(operands) if n not in (first, second)]
        wanted = set(result).union(*(of.labels for of in others))
        operands = [*others, _product(operands[first], operands[second], wanted, sizes)]
    (found,) = operands
    return found.ordered(result)


def _without_dots(equation: str, ranks: Sequence[int]) -> str:
    """The equation with letters for dots, which stand for the same last dimensions of each operand, and with its result."""
    inputs, arrow, result = equation.partition("->")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    meant = [rank - len(of.replace("...", "")) for of, rank in zip(inputs.split(","), ranks) if "..." in of]
    dots = "".join(free[: max(meant, default=0)])
    labels = [of.replace("...", dots[len(dots) - rank + len(of.replace("...", "")) :]) for of, rank in zip(inputs.split(","), ranks)]
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


def _product(a: _Operand, b: _Operand, wanted: set[str], sizes: Mapping[str, int]) -> _Operand:
    """The product of two operands, summed over the letters that are not wanted behind it."""
    import torch

    a, b = a.summed(wanted | set(b.labels)), b.summed(wanted | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch, along = ("".join(label for label in shared if (label in wanted) == kept) for kept in (True, False))
    rows, cols = ("".join(label for label in of.labels if label not in shared) for of in (a, b))
    m, n, k, many = (math.prod(sizes[label] for label in of) for of in (rows, cols, along, batch))
    if not along or m == 1 or n == 1:
        kept = batch + rows + cols
        found = a.ordered(kept + along) * b.ordered(kept + along)
        return _Operand(kept, found.sum([*range(len(kept), found.dim())]) if along else found)
    left = a.ordered(batch + rows + along)
    turned = b.labels == batch + cols + along  # rows of the right operand lie side by side
    right = b.tensor if turned else b.ordered(batch + along + cols)
    if not batch:
        found = torch.ops.aten.linear.default(left.reshape(m, k), right.reshape(n, k)) if turned else left.reshape(m, k) @ right.reshape(k, n)
    else:
        right = right.reshape(many, n, k).transpose(1, 2) if turned else right.reshape(many, k, n)
        found = torch.ops.aten.bmm.default(left.reshape(many, m, k), right)
    kept = batch + rows + cols
    return _Operand(kept, found.reshape([sizes[label] for label in kept]))
