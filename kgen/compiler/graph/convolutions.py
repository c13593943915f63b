"""Convolutions: contractions of a window that moves over an image.

    y[n, m, o] = sum over taps t and channels c of  x[n, c, q * stride + offset[t]] * w[m, c, t]
    o = first + step * q

An ordinary convolution is one such sum, with first 0 and step 1. A transposed one of stride s is s sums along each
dimension: one for each *residue* of the output's index. None of them multiplies by zeros. Outputs that are pooled p at
a time are p sums, whose values come together in one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kgen.compiler.graph.graph import Node, OpGraph

#: The operators that are convolutions, with the ATen operators that each covers.
TARGETS = {
    **{f"conv{rank}d": (f"aten.conv{rank}d.default", f"aten.conv{rank}d.padding") for rank in (1, 2, 3)},
    "conv_transpose1d": ("aten.conv_transpose1d.default",),
    "conv_transpose2d": ("aten.conv_transpose2d.input",),
    "conv_transpose3d": ("aten.conv_transpose3d.input",),
}


@dataclass(frozen=True)
class Residue:
    """Outputs ``first``, ``first + step``, ... of a dimension, ``count`` of them.

    Output q reads input ``q * stride + offset + tap * offset_step`` for each tap below ``taps``. It takes that times
    the kernel's element ``element + tap * element_step``. Inputs that lie outside are 0.
    """

    first: int
    step: int
    count: int
    stride: int
    taps: int
    offset: int
    offset_step: int
    element: int
    element_step: int


@dataclass(frozen=True)
class Line:
    """One dimension that a window moves along. ``pool`` outputs side by side are pooled; ``out`` counts all that there
    are."""

    size: int
    out: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    pool: int = 1

    def residues(self, transposed: bool) -> tuple[Residue, ...]:
        """The residues of the dimension that have an output: those of a pooling window, or of a transposed
        convolution's stride.

        Raises :class:`ValueError` where a window of outputs is no multiple of that stride.
        """
        step = self.pool if self.pool > 1 or not transposed else self.stride
        if transposed and step % self.stride:
            raise ValueError("a window of outputs has residues of the stride that another lacks")
        return tuple(self._residue(first, step, transposed) for first in range(min(step, self.out)))

    def _residue(self, first: int, step: int, transposed: bool) -> Residue:
        """Input i and element k of a transposed convolution meet in output ``i * stride - padding + k * dilation``."""
        count = self.out // self.pool if self.pool > 1 else -(-(self.out - first) // step)
        if not transposed:
            return Residue(
                first,
                step,
                count,
                step * self.stride,
                self.kernel,
                first * self.stride - self.padding,
                self.dilation,
                0,
                1,
            )
        between = self.stride // math.gcd(self.stride, self.dilation)
        found = [k for k in range(self.kernel) if (first + self.padding - k * self.dilation) % self.stride == 0]
        element = found[0] if found else 0
        offset = (first + self.padding - element * self.dilation) // self.stride
        return Residue(
            first,
            step,
            count,
            step // self.stride,
            len(found),
            offset,
            -self.dilation * between // self.stride,
            element,
            between,
        )


@dataclass(frozen=True)
class Convolution:
    """The window of a contraction: ``groups`` convolutions of ``channels_in`` by ``channels_out`` channels each."""

    groups: int
    channels_in: int
    channels_out: int
    lines: tuple[Line, ...]
    transposed: bool

    @property
    def taps(self) -> int:
        """Elements of the kernel for one channel."""
        return math.prod(line.kernel for line in self.lines)

    @property
    def pixels_in(self) -> int:
        return math.prod(line.size for line in self.lines)

    @property
    def pool(self) -> int:
        """Outputs that are pooled together."""
        return math.prod(line.pool for line in self.lines)

    @property
    def pixels_out(self) -> int:
        return math.prod(line.out // line.pool for line in self.lines)

    @cached_property
    def alike(self) -> bool:
        """Whether all residues of a dimension have the same weights."""
        return all(len({(of.taps, of.element) for of in line.residues(self.transposed)}) == 1 for line in self.lines)

    @cached_property
    def residues(self) -> tuple[tuple[Residue, ...], ...]:
        """The convolutions that make up this one, each as a residue of every dimension, the last dimension's first."""
        return tuple(itertools.product(*(line.residues(self.transposed) for line in self.lines)))


def attributes(call: Any) -> dict[str, Any] | None:
    """The attributes of a captured call of :data:`TARGETS`: the same for all of them."""
    x, weight = call.shape("input"), call.shape("weight")
    rank = len(weight) - 2
    arguments = call.arguments
    stride, dilation = (_each(arguments.get(name, 1), rank) for name in ("stride", "dilation"))
    padding = arguments.get("padding", 0)
    if padding == "same":
        padding = tuple(d * (k - 1) // 2 for d, k in zip(dilation or (), weight[2:]))
    padding = _each(0 if padding == "valid" else padding, rank)
    if len(x) != rank + 2 or not stride or not dilation or padding is None or min(padding, default=0) < 0:
        return None
    transposed = "conv_transpose" in call.target
    return {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": arguments["groups"],
        "transposed": transposed,
    }


def _each(value: Any, rank: int) -> tuple[int, ...] | None:
    """A number for each dimension; a single one counts for all."""
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    found = found * rank if len(found) == 1 else found
    return found if len(found) == rank and all(isinstance(v, int) for v in found) else None


def convolution(graph: OpGraph, node: Node) -> Convolution | None:
    """The convolution that a node is; ``None`` for another operator."""
    if node.op not in TARGETS:
        return None
    x, weight = (graph.type(name).shape for name in node.values[:2])
    sizes = zip(x[2:], node.type.shape[2:], weight[2:], node["stride"], node["padding"], node["dilation"])
    groups = node["groups"]
    lines = tuple(Line(*line) for line in sizes)
    return Convolution(groups, x[1] // groups, node.type.shape[1] // groups, lines, node["transposed"])
