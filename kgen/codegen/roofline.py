"""Roofline: the least work of a problem, and how close to a device's ceilings a time for it comes.

    graph  -> Work       operations of its contractions, bytes that must be moved   once for a sweep
    device -> Ceilings   measured rates of large contractions and of a copy         once for a sweep
    Basis (both, as the database keeps them) + a time -> Roofline                   for each candidate and baseline

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009. Only contractions
count as operations: memory bounds pointwise operators and reductions on every device.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Mapping

from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.operators.facts import flops
from kgen.devices.hardware import Ceilings
from kgen.protocol import Accuracy


@dataclass(frozen=True)
class Work:
    """The least work of a forward.

    ``flops`` counts its contractions as they are written, a multiplication and an addition as two. ``nbytes`` are bytes
    moved where inputs, weights and outputs are each read or written once. ``half`` says that most operations are of
    half types, which the library multiplies as they are.
    """

    flops: int
    nbytes: int
    half: bool = False

    @classmethod
    def of(cls, graph: OpGraph) -> Work:
        """The work of a graph at the captured batch. Buffers that it changes are read and written."""
        read = sum(v.type.nbytes for v in (*graph.inputs, *graph.weights))
        changed = {v for n in graph.nodes if n.effect for v in n.values if graph.is_weight(v)}
        buffers = sum(w.type.nbytes for w in graph.weights if w.buffer and w.name in changed)
        written = sum(t.nbytes for name in dict.fromkeys(graph.returns) if (t := graph.known_type(name)))
        counted = [(count, n.values[0]) for n in graph.nodes if (count := flops(graph, n))]
        half = sum(count for count, operand in counted if is_narrow(graph.type(operand).dtype))
        total = sum(count for count, _ in counted)
        return cls(total, read + buffers + written, 2 * half > total)


@dataclass(frozen=True)
class Arithmetic:
    """How contractions are multiplied: in float32, or by ``products`` of a type that tensor cores multiply.

    :func:`kgen.codegen.registry.arithmetic` has that of a candidate.
    """

    type: str
    products: int = 1

    def __str__(self) -> str:
        return self.type if self.products == 1 else f"{self.products} products of {self.type}"

    @classmethod
    def of_library(cls, accuracy: Accuracy) -> Arithmetic:
        """That of PyTorch's contractions for an accuracy class; results in ``pytorch`` have convolutions in TF32."""
        return cls("tf32" if accuracy in (Accuracy.TF32, Accuracy.PYTORCH) else "float32")


@dataclass(frozen=True)
class Basis:
    """The facts from which rooflines of one sweep are drawn."""

    work: Work
    ceilings: Ceilings

    def arithmetic(self, of: Arithmetic) -> Arithmetic:
        """The arithmetic of a candidate or the library; products of half types are of float16's rate in any case."""
        return Arithmetic("float16") if self.work.half else of

    def plain(self) -> dict[str, Any]:
        """As JSON values; :meth:`read` is the way back."""
        return {**asdict(self.work), **asdict(self.ceilings)}

    @classmethod
    def read(cls, plain: Mapping[str, Any] | None) -> Basis | None:
        """The inverse of :meth:`plain`; ``None`` for a sweep that kept nothing."""
        if not plain:
            return None
        work = Work(plain["flops"], plain["nbytes"], plain.get("half", False))
        return cls(work, Ceilings(**{name: plain[name] for name in Ceilings.__dataclass_fields__}))


@dataclass(frozen=True)
class Roofline:
    """The rates of one run, and their shares of the ceilings.

    ``tflops`` and ``gbytes_per_second`` are the work over the time. ``of_contractions`` and ``of_copy`` are their
    shares of the ceilings; the ceiling of contractions is divided by the products that the arithmetic takes.
    ``fraction`` is the larger share: the part of the time that the work must take on this device. A figure is ``None``
    without contractions, or without a known ceiling.
    """

    arithmetic: Arithmetic
    tflops: float | None
    gbytes_per_second: float
    of_contractions: float | None
    of_copy: float | None

    @property
    def fraction(self) -> float | None:
        return max((x for x in (self.of_contractions, self.of_copy) if x is not None), default=None)

    @property
    def bound(self) -> str | None:
        """The ceiling that bounds the time from below: ``contractions`` or ``memory``."""
        if self.fraction is None:
            return None
        return "contractions" if self.fraction == self.of_contractions else "memory"

    def __str__(self) -> str:
        """One line: ``198 TFLOP/s, 77% of 3 products of float16; 0.6 TB/s, 14% of a copy``."""
        parts = []
        if self.tflops is not None:
            parts.append(f"{self.tflops:.3g} TFLOP/s, {_share(self.of_contractions)} {self.arithmetic}")
        parts.append(f"{self.gbytes_per_second / 1e3:.3g} TB/s, {_share(self.of_copy)} a copy")
        return "; ".join(parts)


def of(basis: Basis, ms: float, arithmetic: Arithmetic) -> Roofline:
    """The roofline of one run that takes ``ms`` milliseconds and computes its products by ``arithmetic``."""
    work, ceilings, arithmetic = basis.work, basis.ceilings, basis.arithmetic(arithmetic)
    tflops = work.flops / ms / 1e9 if work.flops else None
    gbytes = work.nbytes / ms / 1e6
    peak = ceilings.tflops(arithmetic.type)
    copy = ceilings.copy_gbytes_per_second
    return Roofline(
        arithmetic,
        tflops,
        gbytes,
        tflops * arithmetic.products / peak if tflops is not None and peak else None,
        gbytes / copy if copy else None,
    )


def _share(fraction: float | None) -> str:
    return "no ceiling known for" if fraction is None else f"{fraction:.0%} of"
