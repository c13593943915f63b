"""Recurrent layers in a loop program: the steps of a sequence, each from the state that the one before it left.

    x products   [steps, batch, gates * hidden]    one contraction in front of the program, with the bias
    h products   state . weight^T + bias           at every step
    cell         gates, state -> state             maps of both, element by element

Layers above each other are a wavefront: a layer's step needs the step before it, and the same step of the layer below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable

from kgen.compiler.loops.expr import Expr
from kgen.compiler.loops.indices import Size

#: The results, in the order in which the library has them: the output of the last layer at each step, and the last
#: states.
OUTPUT, HIDDEN, CELL = range(3)


@dataclass(frozen=True)
class CellStep:
    """``name = expression`` over ``args``: ``x0``, ``h0``, ... are the gates' products, the rest states and earlier
    values."""

    name: str
    expression: Expr
    args: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One step of one element: the state is ``hidden``, with ``cell`` behind it where there are two. Steps name the
    next ``next_hidden``."""

    gates: int
    steps: tuple[CellStep, ...]
    states: tuple[str, ...] = ("hidden",)


@dataclass(frozen=True)
class Layer:
    """A layer in one direction. ``weight`` is ``[gates * hidden, hidden]``, ``bias`` ``[gates * hidden]``; empty where
    there is none.

    A layer above another one of the program multiplies that one's output by ``inner_weight`` itself.
    """

    weight: str
    bias: str = ""
    inner_weight: str = ""
    inner_bias: str = ""

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.weight, self.bias, self.inner_weight, self.inner_bias)))


@dataclass(frozen=True)
class Recurrence:
    """Layers of a ``cell``, all steps of them.

    ``products`` are the first layers' input products: ``[steps, batch, directions * gates * hidden]``, or with the
    batch first. ``states`` are the initial ones ``[all layers, batch, hidden]``, which begin at layer ``first``; zeros
    where there are none. With two directions, the second one goes from the last step back. ``results`` are stored, each
    with what it is. All tensors are of ``dtype``. The owner of a state keeps it in float32.
    """

    cell: Cell
    products: str
    hidden: int
    steps: Size
    batch: Size
    batch_first: bool
    directions: int
    layers: tuple[Layer, ...]
    states: tuple[str, ...]
    first: int
    results: tuple[tuple[str, int], ...]
    dtype: str = "float32"

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that are read."""
        return tuple(
            dict.fromkeys((self.products, *self.states, *(name for layer in self.layers for name in layer.tensors)))
        )

    @property
    def depth(self) -> int:
        """Layers above each other."""
        return len(self.layers) // self.directions

    @property
    def rows(self) -> int:
        """Rows of a weight."""
        return self.cell.gates * self.hidden

    def result(self, kind: int) -> str:
        """The name of a result; empty where it is not stored."""
        return next((name for name, of in self.results if of == kind), "")

    def at(self, step: str, row: str, steps: str, batch: str, width: int) -> str:
        """The index in C of the first of ``width`` elements of one step and one row of the batch."""
        outer, inner, count = (row, step, steps) if self.batch_first else (step, row, batch)
        return f"({outer} * {count} + {inner}) * {width}"

    def renamed(self, name: Callable[[str], str]) -> Recurrence:
        """The recurrence with other names for its tensors; the empty name stays."""
        layers = tuple(Layer(*map(name, (x.weight, x.bias, x.inner_weight, x.inner_bias))) for x in self.layers)
        results = tuple((name(result), kind) for result, kind in self.results)
        return replace(
            self, products=name(self.products), layers=layers, states=tuple(map(name, self.states)), results=results
        )
