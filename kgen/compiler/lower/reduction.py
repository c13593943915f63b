"""Reductions while they are lowered: what the table's function of a reduction asks for, as steps of the builder."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Sequence

import sympy

from kgen.compiler.graph.graph import Node, Operand
from kgen.compiler.loops.expr import COLUMNS, Expr, const
from kgen.compiler.loops.indices import Size, symbols_of
from kgen.compiler.lower.builder import ProgramBuilder
from kgen.compiler.operators.op import Deferred, Index
from kgen.compiler.operators.reductions import COMBINES, LOWEST, OF_FEW, WHOLE, beside, of_few
from kgen.compiler.operators.table import OPS


@dataclass
class _Lowering:
    """The means of lowering one reduction; implements :class:`kgen.compiler.operators.op.Lowering`."""

    builder: ProgramBuilder
    node: Node
    dims: tuple[int, ...]
    sizes: tuple[Size, ...]
    two_passes: bool

    @property
    def count(self) -> Expr:
        sizes = [self.sizes[d] for d in self.dims]
        return const(float(math.prod(sizes))) if all(isinstance(s, int) for s in sizes) else COLUMNS

    @property
    def place(self) -> Deferred:
        """The number of an element among those that are reduced."""
        sizes = [self.sizes[d] for d in self.dims]
        stem = f"{self.node.name}_place"
        return lambda index: self.builder.position(
            stem, self.builder.axes.flat([index[d] for d in self.dims], sizes), "int64"
        )

    def map(self, expression: Expr, *values: Deferred, name: str = "", dtype: str = "float32") -> Deferred:
        stem = f"{self.node.name}_{name}" if name else self.node.name
        return lambda index: self.builder.map(stem, expression, [v(index) for v in values], dtype)

    def reduce(self, kind: str, *values: Deferred) -> Deferred | tuple[Deferred, ...]:
        def part(number: int) -> Deferred:
            return lambda index: self.builder.reduce(
                self.node.name,
                kind,
                values,
                self.builder.reduced_index(self.node, index, self.dims, self.sizes),
                self.dims,
            )[number]

        parts = tuple(part(number) for number in range(len(COMBINES[kind])))
        return parts if len(parts) > 1 else parts[0]


@dataclass
class _LoweringOfFew(_Lowering):
    """The means of lowering a reduction of few elements, which are values beside each other: it makes maps alone."""

    def reduce(self, kind: str, *values: Deferred) -> Deferred | tuple[Deferred, ...]:
        def part(number: int) -> Deferred:
            return lambda index: self._found(kind, values, index)[number]

        parts = tuple(part(number) for number in range(len(COMBINES[kind])))
        return parts if len(parts) > 1 else parts[0]

    def _found(self, kind: str, values: Sequence[Deferred], index: Index) -> tuple[str, ...]:
        """The results, from the first element on; of interleaved products, those of each, then of all."""
        every, apart = (
            list(itertools.product(*(range(int(self.sizes[d])) for d in self.dims))),
            dict(self.node.attrs).get("interleaved", 1),
        )
        if kind != "product" or len(every) <= apart:
            return self._taken(kind, values, index, every)
        first, *others = (self._taken(kind, values, index, every[start::apart])[0] for start in range(apart))
        for other in others:
            first = self.builder.map(f"{self.node.name}_{kind}", OF_FEW[kind][0], [first, other])
        return (first,)

    def _taken(
        self, kind: str, values: Sequence[Deferred], index: Index, every: Sequence[tuple[int, ...]]
    ) -> tuple[str, ...]:
        """The results of some elements, from the first one on."""
        builder, found = self.builder, ()
        for at in every:
            places = dict(zip(self.dims, at))
            one = tuple(
                value(tuple(builder.axes.constant(places[d]) if d in places else i for d, i in enumerate(index)))
                for value in values
            )
            dtypes = ["int64" if part == "at" or kind in WHOLE else "float32" for part in COMBINES[kind]]
            if not found:
                lowest = builder.number(f"{self.node.name}_lowest", LOWEST, "float32")
                found = (
                    (builder.map(f"{self.node.name}_max", OF_FEW[kind][0], [lowest, *one]),)
                    if kind == "max_finite"
                    else one
                )
            else:
                merged = zip(COMBINES[kind], OF_FEW[kind], dtypes)
                found = tuple(
                    builder.map(f"{self.node.name}_{part}", how, [*found, *one], dtype) for part, how, dtype in merged
                )
        return found


def reduction(builder: ProgramBuilder, node: Node, index: Index) -> str:
    """The value of a reduction at an index of its result."""
    source = builder.graph.type(node.inputs[0])
    rank = len(source.shape)
    dims = tuple(sorted(d % rank for d in node["dims"]))
    if len(node.type.shape) != rank:  # reduced dimensions are dropped: they stand as 0
        rest = iter(index)
        index = tuple(sympy.Integer(0) if d in dims else next(rest) for d in range(rank))
    if of_few(node):
        along = (*dims, max(d for d in range(rank) if d not in dims)) if beside(node) else dims
        builder.apart |= frozenset().union(*(symbols_of(index[d]) for d in along))
        ctx = _LoweringOfFew(builder, node, dims, source.sizes(), True)
    else:
        ctx = _Lowering(builder, node, dims, source.sizes(), builder.two_passes)

    def operand(name: Operand) -> Deferred:
        return lambda at: builder.value(name, builder.broadcast(name, source, at))

    return OPS[node.op].lower(ctx, node, *map(operand, node.inputs))(index)
