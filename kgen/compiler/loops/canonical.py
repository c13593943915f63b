"""The canonical form of a loop program: the same for two kernels that differ in names alone, as layers that a model
repeats do.

    load x_3 at row * 512 + col      load t0 at a0 * 512 + a1
    gelu_7 = gelu(x_3)               v1 = gelu(v0)

Values, tensors and axes are numbered as they occur. The hash of the canonical form names a kernel task.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Iterable

import sympy

from kgen.compiler.loops.access import Loop, Place, Within
from kgen.compiler.loops.program import (
    Contraction,
    Load,
    Map,
    Program,
    Reduce,
    Scan,
    Scatter,
    Slide,
    SmallProduct,
    Store,
    Window,
)


def canonical(program: Program) -> Program:
    """The program with names that say only where each value, tensor and axis first occurs."""
    known = program.__dict__  # each of many plans asks for it
    if "_canonical" not in known:
        known["_canonical"] = _Renaming().program(program)
    return known["_canonical"]


def digest(program: Program) -> str:
    """SHA-256 of the canonical form, in hexadecimal: the same in every process."""
    return hashlib.sha256(repr(canonical(program)).encode()).hexdigest()


class _Renaming:
    """The new names of one program, given as they are asked for."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.tensors: dict[str, str] = {}
        self.symbols: dict[sympy.Symbol, sympy.Symbol] = {}

    def value(self, name: str) -> str:
        return self.values.setdefault(name, f"v{len(self.values)}")

    def tensor(self, name: str) -> str:
        return self.tensors.setdefault(name, f"t{len(self.tensors)}") if name else ""

    def symbol(self, symbol: sympy.Symbol) -> sympy.Symbol:
        """The new symbol of an axis, or of a value that an index holds."""
        if symbol not in self.symbols:
            name = self.values.get(symbol.name) or f"a{len(self.symbols)}"
            self.symbols[symbol] = sympy.Symbol(name, **symbol.assumptions0)
        return self.symbols[symbol]

    def index(self, of: sympy.Expr) -> sympy.Expr:
        """An index expression, whose axes all have their names by now but for those of values."""
        return of.xreplace({symbol: self.symbol(symbol) for symbol in sorted(of.free_symbols, key=str)})

    def loops(self, loops: Iterable[Loop]) -> tuple[Loop, ...]:
        return tuple(replace(loop, symbol=self.symbol(loop.symbol)) for loop in loops)

    def place(self, place: Place) -> Place:
        mask = tuple(self._within(within) for within in place.mask)
        spelled = tuple((self.symbol(symbol), self.value(text)) for symbol, text in place.spelled)
        return Place(self.index(place.offset), self.loops(place.row_loops), self.loops(place.col_loops), mask, spelled)

    def _within(self, within: Within) -> Within:
        return replace(within, index=self.index(within.index))

    def step(self, step: Load | Map | Window | Scan | Reduce) -> Load | Map | Window | Scan | Reduce:
        if isinstance(step, Window):
            slides = tuple(map(self._slide, step.slides))
            body = tuple(self.step(inner) for inner in step.body)
            step = replace(step, slides=slides, body=body, arg=self.value(step.arg))
        args = tuple(map(self.value, step.args))
        if isinstance(step, Reduce):
            return replace(step, args=args, names=tuple(map(self.value, step.names)))
        if isinstance(step, Load):
            step = replace(step, tensor=self.tensor(step.tensor), access=self.place(step.access))
        return replace(step, args=args, name=self.value(step.name))

    def _slide(self, slide: Slide) -> Slide:
        symbols = {"position": self.symbol(slide.position), "tap": self.symbol(slide.tap)}
        return replace(slide, output=self.index(slide.output), **symbols)

    def contraction(self, of: Contraction) -> Contraction:
        before = _Renaming() if of.before else None
        inner = before.program(of.before) if before and of.before else None
        # The tensors of the program in front are this one's, too.
        x = "before" if of.before else self.tensor(of.x)
        for name in before.tensors if before else ():
            self.tensor(name)
        return replace(of, name=self.value(of.name), x=x, weight=self.tensor(of.weight), before=inner)

    def store(self, store: Store) -> Store:
        return replace(
            store,
            tensor=self.tensor(store.tensor),
            arg=self.value(store.arg),
            access=self.place(store.access),
            into="into" if store.into else "",
        )

    def scatter(self, of: Scatter) -> Scatter:
        return replace(of, tensor=self.tensor(of.tensor), arg=self.value(of.arg), access=self.place(of.access),
                       places=tuple(map(self.value, of.places)), source=self.tensor(of.source))  # fmt: skip

    def product(self, of: SmallProduct) -> SmallProduct:
        parts = []
        for part in of.parts:  # values are those of a part, tensors those of all parts
            renaming = _Renaming()
            renaming.tensors = self.tensors
            parts.append(renaming.program(part))
        return replace(of, **dict(zip(("left", "right", "behind"), parts)), sums=self.tensor(of.sums))

    def program(self, of: Program) -> Program:
        row_loops, col_loops = self.loops(of.row_loops), self.loops(of.col_loops)
        contraction = self.contraction(of.contraction) if of.contraction else None
        loads, steps = tuple(map(self.step, of.loads)), tuple(map(self.step, of.steps))
        stores, scatters = tuple(map(self.store, of.stores)), tuple(map(self.scatter, of.scatters))
        moments = self.value(of.moments_of) if of.moments_of else None
        recurrence = of.recurrence.renamed(self.tensor) if of.recurrence else None
        product = self.product(of.product) if of.product else None
        return replace(
            of,
            row_loops=row_loops,
            col_loops=col_loops,
            loads=loads,
            steps=steps,
            stores=stores,
            scatters=scatters,
            moments_of=moments,
            contraction=contraction,
            recurrence=recurrence,
            product=product,
        )
