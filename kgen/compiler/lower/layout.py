"""The layout of a loop program: the axes of what was built, as rows and columns, and its steps in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Iterable, Iterator, Sequence

import sympy

from kgen.compiler.graph.graph import NotFusable
from kgen.compiler.loops.access import Loop, Place
from kgen.compiler.loops.indices import COLUMNS, step_of, symbols_of, times
from kgen.compiler.loops.program import ELEMENT, ROW, Load, Map, Program, Reduce, Scan, Scatter, Store, Window
from kgen.compiler.lower.builder import ProgramBuilder, Step
from kgen.compiler.lower.joined_axes import JoinedAxes
from kgen.compiler.operators.op import Index
from kgen.compiler.operators.reductions import COMBINES
from kgen.compiler.operators.scatters import Scattered, looped

MOST_VISITS = 2  # visits of an element by the loops of a reduction; more are work that is done again

MOST_MADE = 1 << 16  # elements of a reduction that reads no tensor


@dataclass(frozen=True)
class Output:
    """A tensor that is stored: the value, and the index that it is stored at."""

    tensor: str
    value: str
    index: Index


class Layout:
    """A built program: its axes as rows and columns, its steps in order."""

    def __init__(self, builder: ProgramBuilder, outputs: Sequence[Output], moments_of: str | None) -> None:
        self.builder, self.outputs, self.moments_of = builder, outputs, moments_of
        self.graph, self.extents = builder.graph, builder.axes.extents
        self.needed = self._needed()
        self.pool = self._pool()
        self.last = builder.last.subs(self.pool)
        types = {o.tensor: self.graph.type(o.tensor) for o in outputs}
        strides = {
            name: of.shape if of.batch_inside else of.sizes() for name, of in types.items()
        }  # those of the captured batch
        self.offsets = {o: builder.axes.flat(o.index, strides[o.tensor]) for o in outputs}
        self.looped = {
            s.node: builder.axes.flat(s.loops, looped(self.graph, self.graph.node(s.node)).sizes())
            for s in builder.scatters
        }
        self.taken_in = {s.node: builder.axes.flat(s.index, self.graph.type(s.node).sizes()) for s in builder.scatters}
        self.rows, self.cols = self._loops()

    def program(self) -> Program:
        loads, steps = [], []
        reduced: set[Step] = set()
        for name, step in self.needed.items():
            whole = self.builder.part_of(step, 0) if step.kind == "reduce" else step
            if step.varies & self._inner or step.kind == "sums" or whole in reduced:
                continue
            if step.kind == "reduce":
                reduced.add(whole)
                parts = [self.builder.part_of(step, part) for part in range(len(COMBINES[step.text]))]
                steps.append(
                    Reduce(
                        tuple(map(self.builder.known.get, parts)), step.text, step.args, tuple(p.dtype for p in parts)
                    )
                )
            else:
                (loads if step.kind == "load" and not step.args else steps).append(self._value(name, step))
        stores = tuple(self._store(o) for o in self.outputs)
        sizes = [reduce(times, (loop.extent for loop in loops), 1) for loops in (self.rows, self.cols)]
        rows, cols = (size if isinstance(size, int) else size.multiple * (self.graph.batch or 1) for size in sizes)
        self._check_work(rows * cols)
        contraction = self.builder.contraction
        stored = frozenset().union(*(symbols_of(offset) for offset in self.offsets.values()))
        if contraction and not (self._varying() | stored) - self.pool.keys() <= frozenset(self._of_contraction()):
            ahead = "what is in front of a convolution is stored too"
            raise NotFusable(ahead if contraction.before else "the sums of a contraction are repeated along other axes")
        if contraction and not self._takes_all_sums():
            raise NotFusable("a kernel reads a part of the sums of a contraction, or has other values beside them")
        if contraction and contraction.window and self._reduced:
            contraction = replace(contraction, across=self._reduced != symbols_of(self.last))
        if contraction and self.pool:
            taps = {s.position: s.taps for step in self.needed.values() for s in step.slides}
            positions = self.builder.contraction_index[2:]
            lines = (replace(line, pool=taps.get(at, 1)) for line, at in zip(contraction.window.lines, positions))
            contraction = replace(contraction, window=replace(contraction.window, lines=tuple(lines)))
        scatters = tuple(map(self._scatter, self.builder.scatters))
        return Program(
            rows,
            cols,
            *sizes,
            self.rows,
            self.cols,
            tuple(loads),
            tuple(steps),
            stores,
            self.moments_of,
            contraction,
            scatters,
            self.span,
        )

    def _value(self, name: str, step: Step) -> Load | Map | Scan | Window:
        level = ROW if name in self._ahead else self._level(step.varies)
        if step.kind == "load":
            return Load(name, step.text, self._place(step), level, step.dtype, step.fill, step.args)
        if step.kind == "map":
            return Map(name, step.expr, step.args, level, step.dtype)
        if step.kind == "running":
            return Scan(name, step.text, step.args, step.reverse, level, step.dtype)
        inner = {at: inside for at, inside in self.needed.items() if inside.varies & self._inner}
        body = tuple(self._value(at, inside) for at, inside in inner.items() if inside.kind in ("load", "map"))
        outside = dict.fromkeys(
            a for inside in inner.values() if inside.kind == "map" for a in inside.args if a not in inner
        )
        slides = tuple(replace(s, output=self._axes.index(s.output)) for s in step.slides)
        return Window(name, step.text, step.args[0], slides, body, tuple(outside), level, step.fill)

    def _check_work(self, elements: int) -> None:
        """Raise where the loops visit elements far more often than each tensor has them: two results may share no
        axis."""
        loads = [s for s in self.needed.values() if s.kind == "load" and s.text]
        largest = max(
            (self.graph.type(t).numel for t in (*(s.text for s in loads), *(o.tensor for o in self.outputs))), default=0
        )
        beside = sum(self.graph.type(t).numel for t in {s.text for s in loads if s.mask})  # parts of a concatenation
        largest = max(largest, beside) if loads else MOST_MADE  # numbers that are made of indices alone
        if not (self.builder.contraction or self.builder.scatters) and elements > MOST_VISITS * largest:
            again = "a reduction would be computed again for elements that share its result"
            raise NotFusable(again if self._reduced else "its results have no axes in common")

    @cached_property
    def _ahead(self) -> frozenset[str]:
        """The values that a window takes from outside: they are there before its loops."""
        windows = [] if self.pool else [a for s in self.needed.values() if s.kind == "taps" for a in s.args]
        return frozenset(name for name in self._leading_to(windows) if not self.needed[name].varies & self._inner)

    def _needed(self) -> dict[str, Step]:
        """The steps that outputs depend on, in the order in which they were made."""
        taken_in = [name for s in self.builder.scatters for name in (s.value, *s.places)]
        found = self._leading_to(
            taken_in + [o.value for o in self.outputs] + ([self.moments_of] if self.moments_of else [])
        )
        return {name: step for name, step in self.builder.steps.items() if name in found}

    def _leading_to(self, waiting: list[str]) -> set[str]:
        """The steps, and those that they depend on."""
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.builder.steps[name].args
        return found

    def _level(self, varies: Iterable[sympy.Symbol]) -> str:
        cols = self._reduced if self.span else {loop.symbol for loop in self.cols}
        return ELEMENT if not cols or not cols.union(self._inner).isdisjoint(varies) else ROW

    def _place(self, step: Step) -> Place:
        mask = tuple(replace(w, index=self._axes.index(w.index)) for w in step.mask) if self._axes.lost else step.mask
        return Place(self._axes.index(step.offset), self.rows, self.cols, mask)

    def _store(self, output: Output) -> Store:
        offset = self._axes.index(self.offsets[output])
        varies = self.builder.steps[output.value].varies
        level = self._level(symbols_of(self.offsets[output]))
        if level == ROW and not self._depends(output.value):
            raise NotFusable(f"{output.tensor} is a row value that needs no reduction")
        if not varies <= symbols_of(offset) | self._axes.lost:
            raise NotFusable(f"{output.tensor} varies over more axes than it is stored at")
        dtypes, node = (
            (self.graph.type(output.tensor).dtype, self.needed[output.value].dtype),
            self.graph.node(output.tensor),
        )
        into = node.values[0] if node.effect else ""
        if batch := self.graph.type(output.tensor).batch_inside:
            (loop, *others), inner = self.cols, step_of(self.offsets[output], self.cols[0].symbol)
            if others or isinstance(loop.extent, int) or inner != 1:
                raise NotFusable(f"{output.tensor} follows the batch within rows that do not")
            offset = sympy.expand((offset - loop.symbol) / batch * COLUMNS + loop.symbol)
        return Store(output.tensor, output.value, level, Place(offset, self.rows, self.cols), *dtypes, into)

    def _depends(self, name: str) -> bool:
        """Whether a reduction leads to the value."""
        step = self.needed[name]
        return step.kind == "reduce" or any(self._depends(a) for a in step.args)

    # Rows and columns

    def _loops(self) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
        """The axes of rows and of columns, neighbours that run through memory as one joined."""
        symbols = frozenset().union(
            *(s.varies for s in self.needed.values()),
            *(symbols_of(o) for o in (*self.offsets.values(), *self.looped.values())),
        )
        self._reduced = frozenset().union(*(s.axes for s in self.needed.values() if s.kind == "reduce"))
        around = self._around()
        symbols -= self._inner
        for name, step in self.needed.items():
            if step.kind == "reduce" and frozenset(step.axes) != self._reduced:
                raise NotFusable(f"{name} reduces other axes than another reduction of the kernel")
            if step.kind == "reduce" and self._reduced and not symbols - self._reduced <= step.varies:
                raise NotFusable(f"{name} would be computed again along other axes")
        order = self._of_contraction() if self.builder.strided else self._order()
        self.span = self._span()
        if self._reduced:
            if self.moments_of or (self.builder.contraction and not (self.span or self._reduces_convolution())):
                raise NotFusable("a reduction along rows and a contraction, or moments over the batch, are two kernels")
            order = self._of_contraction() or order
            along = symbols_of(self.last) if self.span else self._reduced
            rows = [s for s in order if s in symbols - along]
            cols = [s for s in order if s in along]
        elif self.builder.scatters:
            rows, cols = self._of_scatters([s for s in order if s in symbols])
        elif around is not None:
            if any(not symbols <= symbols_of(offset) for offset in self.offsets.values()):
                raise NotFusable("a window or a scan is stored along all axes of its kernel")
            rows = [s for s in order if s in symbols and s not in around]
            cols = [s for s in around if s in symbols]
        else:
            rows, cols = self._pointwise([s for s in order if s in symbols])
        if any(
            not isinstance(self.extents[s], int)
            for s in (*cols[1:], *(rows if cols and not isinstance(self.extents[cols[0]], int) else ()))
        ):
            raise NotFusable("a dimension that follows the batch is reduced inside of others")
        self._axes = JoinedAxes(self.extents, tuple(self._indices()))
        return self._axes.loops(rows), self._axes.loops(cols)

    def _indices(self) -> Iterator[tuple[int, sympy.Expr]]:
        """All indices that the kernel computes, each as a multiple of an expression."""
        for step in self.needed.values():
            if step.kind != "sums":
                yield 1, step.offset
            yield from ((1, w.index) for w in step.mask)
            yield from ((s.stride, s.output) for s in step.slides if not self.pool)
        for offset in (*self.offsets.values(), *self.looped.values(), *self.taken_in.values()):
            yield 1, offset

    def _of_contraction(self) -> list[sympy.Symbol]:
        """The axes of a contraction's sums in their own order, of those that are pooled the windows'; none without a
        contraction."""
        index = [at.subs(self.pool) for at in self.builder.contraction_index]
        return [symbol for at in index for symbol in sorted(symbols_of(at), key=lambda s: -step_of(at, s))]

    def _takes_all_sums(self) -> bool:
        """Whether the kernel's axes run over each sum of the contraction once: its operands lie as its axes say."""
        (name,) = {s.text for s in self.needed.values() if s.kind == "sums"}
        index, sizes = self.builder.contraction_index, self.graph.type(name).sizes()
        return all(self.builder.axes.covers(at, size) is not None for at, size in zip(index, sizes))

    def _span(self) -> int:
        """How many neighbouring columns of a contraction a reduction takes together; 0 where it takes others, or there
        is none."""
        places, columns = [s for s in self.needed.values() if s.kind == "sums"], 1
        for symbol in sorted(self._reduced, key=lambda s: step_of(self.last, s)):
            whole = step_of(self.last, symbol) == columns and isinstance(self.extents[symbol], int)
            columns *= self.extents[symbol] if whole else 0
        span = columns if places and self._reduced and not self.builder.contraction.window else 0
        *outer, last = self.builder.contraction_index or (0,)
        if self.builder.strided and len(places) == 1:
            return span
        if len(places) > 1 or any(
            not isinstance(i, sympy.Symbol) and i != 0 for i in (*outer, *(() if span else (last,)))
        ):
            raise NotFusable("a kernel reads the sums of a contraction at one place, and through no view")
        if span and self.builder.axes.covers(last, self.graph.type(places[0].text).sizes()[-1]) is None:
            raise NotFusable("a reduction behind a contraction takes neighbouring columns of all columns")
        return span

    def _pool(self) -> dict[sympy.Symbol, sympy.Expr]:
        """The output of each position of a window of sums; empty where sums are not pooled."""
        slides = [s for step in self.needed.values() if step.kind == "taps" for s in step.slides]
        beside = all(s.stride == s.taps and not s.padding and s.dilation == 1 for s in slides)
        if not self.builder.contraction or not slides:
            return {}
        places = set(self.builder.contraction_index[2:])
        if self.builder.contraction.window is None or not beside or not places.issuperset(s.position for s in slides):
            raise NotFusable("the windows of a contraction's sums lie side by side in images")
        return {s.position: s.output for s in slides}

    def _reduces_convolution(self) -> bool:
        """Whether all pixels or all channels of a convolution are reduced, and nothing else varies."""
        if self.builder.contraction.window is None or self._varying() != frozenset(self._of_contraction()):
            return False
        return self._reduced in (symbols_of(self.last), symbols_of(self.builder.contraction_index[1]))

    def _varying(self) -> frozenset[sympy.Symbol]:
        """The axes that a value varies over outside of windows."""
        return frozenset().union(*(s.varies for s in self.needed.values())) - self._inner

    def _around(self) -> list[sympy.Symbol] | None:
        """The axes that a window moves along, or that scans run along; ``None`` where the program has neither."""
        found = [s for s in self.needed.values() if s.kind in ("taps", "running")]
        self._inner = frozenset().union(*(s.axes for s in found if s.kind == "taps"))
        if not found:
            return None
        if (
            (len(found) > 1 and not self._runs_together(found))
            or (self._reduced and not self.pool)
            or self.moments_of
            or (self.builder.contraction and not self.pool)
        ):
            raise NotFusable("a window or a scan and another one, a reduction or a contraction are two kernels")
        step = found[0]
        if any(not isinstance(s.output, sympy.Symbol) and s.output != 0 for s in step.slides):
            raise NotFusable("the result of a window is read through a view")
        if self.pool:
            return None
        return list(step.axes) if step.kind == "running" else [s.output for s in step.slides if s.output != 0]

    def _runs_together(self, found: list[Step]) -> bool:
        """Whether steps are scans of one kind along the same axes, none of which runs over values of another one."""
        kinds = {(s.kind, s.text, s.axes, s.reverse, s.dtype) for s in found}
        before = self._leading_to([a for s in found for a in s.args])
        return len(kinds) == 1 and found[0].kind == "running" and not any(self.needed[name] in found for name in before)

    def _pointwise(self, order: list[sympy.Symbol]) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
        """Rows and columns without a reduction: contractions and moments have one dimension of columns."""
        if self.builder.contraction or self.moments_of:
            if self.builder.contraction and not self.builder.contraction.window:
                order = [s for s in self._of_contraction() if s in order]  # the sums' own, wherever they are stored
            cols = symbols_of(self.last)
            return [s for s in order if s not in cols], [s for s in order if s in cols]
        if len(order) > 1 and not isinstance(self.extents[order[-1]], int):
            return order[:-1], order[-1:]
        first = order and (len(order) > 1 or not isinstance(self.extents[order[0]], int))
        return (order[:1], order[1:]) if first else ([], order)

    def _of_scatters(self, order: list[sympy.Symbol]) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
        """Rows are the axes that places vary over, columns the others: a row of values is taken in at one place."""
        varying = frozenset().union(*(self.needed[name].varies for s in self.builder.scatters for name in s.places))
        rows, cols = [s for s in order if s in varying], [s for s in order if s not in varying]
        return (
            (rows, cols)
            if cols
            and rows
            and cols[-1] is order[-1]
            and all(isinstance(self.extents[s], int) for s in (*rows[1:], *cols))
            else self._pointwise(order)
        )

    def _scatter(self, of: Scattered) -> Scatter:
        """The scatter with its place; each of its loops' elements is taken in once."""
        loops, rows = symbols_of(self._axes.index(self.looped[of.node])), {loop.symbol for loop in self.rows}
        every = rows | {loop.symbol for loop in self.cols}
        if loops not in (every, rows):
            raise NotFusable(f"{of.node} takes in other elements than another scatter of the kernel")
        level = ELEMENT if loops == every else ROW
        offset, sizes = self._axes.index(self.taken_in[of.node]), self.graph.type(of.node).sizes()
        elements, value = reduce(times, sizes, 1), self.needed[of.value]
        if not isinstance(elements, int) and all(isinstance(loop.extent, int) for loop in (*self.rows, *self.cols)):
            raise NotFusable(f"{of.node} follows the batch where its loops do not")
        return Scatter(
            of.node,
            of.value,
            of.kind,
            level,
            Place(offset, self.rows, self.cols),
            of.places,
            of.size,
            elements,
            self.graph.type(of.node).dtype,
            value.dtype,
            of.source,
            of.start,
            of.ordered,
            of.period,
            of.sorted,
        )

    def _order(self) -> list[sympy.Symbol]:
        """All axes, those with the largest strides first: in what is stored, in what is loaded, and in the masks of
        loads."""
        offsets = [*self.offsets.values(), *self.looped.values()]
        if self.moments_of and not offsets:
            source = self.builder.steps[self.moments_of]
            offsets += [s.offset for s in self.needed.values() if s.kind == "load" and s.varies >= source.varies]
        offsets += sorted(
            (s.offset for s in self.needed.values() if s.kind == "load"), key=lambda e: -len(symbols_of(e))
        )
        offsets += [s.offset for s in self.needed.values() if s.kind == "sums"]
        offsets += [within.index for s in self.needed.values() for within in s.mask]
        order: list[sympy.Symbol] = []
        for offset in offsets:
            strides = {s: abs(step_of(offset, s)) for s in symbols_of(offset).difference(order)}
            order += sorted(strides, key=lambda s: (-strides[s], s.name))
        return order
