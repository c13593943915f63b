"""The statements of reductions along rows in CUDA, by where they stand; the texts have the loops around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence

from kgen.codegen.arguments import sources, written
from kgen.codegen.c_printer import describe, load_value, spell, store_statement, store_value
from kgen.codegen.combines import PLACE, SPELLED
from kgen.codegen.symbols import symbol
from kgen.codegen.template import Argument
from kgen.compiler.graph.dtypes import DTYPES, loaded, value_type
from kgen.compiler.loops.passes import Pass
from kgen.compiler.loops.program import ROW, Load, Map, Reduce, Step, by_col, by_row
from kgen.templates.cuda import common
from kgen.templates.cuda.inner_reduction.exchange import Exchange, Partial, Result
from kgen.templates.cuda.inner_reduction.schedule import STRIP, InnerReduction, follows_row

_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Reduction:
    """The statements of one reduction: around the columns, before and in the loop over a vector, and behind them.

    ``kept`` adds up exponentials of a row in registers. ``call`` is the function that reduces over a block.
    """

    before: list[str]
    outer: list[str]
    inner: list[str]
    close: list[str]
    kept: str
    call: str


@dataclass(frozen=True)
class Rows:
    """Statements for each of a block's rows, behind those that find the row."""

    head: list[str]
    lines: list[str]


@dataclass(frozen=True)
class Columns:
    """The statements of a thread's columns, from the outside: of all rows, of one row around a vector, and of one
    element."""

    outer: list[str]
    head: list[str]
    before: list[str]
    inner: list[str]
    stored: list[str]
    after: list[str]
    store: list[str]
    behind: list[str]
    takes_column: bool

    @property
    def empty(self) -> bool:
        return not (self.inner or self.outer or self.before or self.stored or self.store)


@dataclass(frozen=True)
class Whole:
    """Values of a whole row: the same for all rows of a block, and arrays with an element for each."""

    same: list[str]
    rows: Rows


@dataclass(frozen=True)
class PassText:
    """One pass over the row. ``met`` merges both kinds of pairs, ``merges`` what another block found; ``again`` reduces
    that."""

    number: int
    comment: str
    stores: bool
    reductions: list[Reduction]
    columns: Columns
    results: list[Result]
    partials: list[Partial]
    met: list[str]
    merges: list[str]
    again: list[str]
    values: Whole
    row_stores: Rows

    @property
    def backwards(self) -> bool:
        """Whether the columns come against the order of memory: the caches have the last ones of the pass before."""
        return self.number % 2 == 1


class Statements:
    """Spells the values of one kernel. With several rows to a block, a row value is an array with one for each."""

    def __init__(self, schedule: InnerReduction, args: list[Argument]) -> None:
        program, plan = schedule.program, schedule.passes
        self.schedule, self.program, self.arguments = schedule, program, args
        self.sources = sources(args) | {one.load.tensor: f"{one.load.tensor}_part" for one in schedule.concatenations}
        self.vec, self.rows = schedule.vec, schedule.rows
        self.store_vector = "stream_vector" if common.streams(schedule.task) else "store_vector"
        self._once = common.read_once(schedule.task, [x for x in program.loads if not x.access.spelled])
        self._last_pass = {x.name: of.number for of in plan.passes for x in of.loads}
        self._row_level = {x.name for x in plan.row_loads if follows_row(x)}
        self._row_level |= {n for r in program.reductions for n in r.names}
        self._row_level |= {s.name for s in program.steps if isinstance(s, (Map, Load)) and s.level == ROW}
        self._sites = 0
        self.exchange = Exchange(schedule, self.results(program.reductions))

    def passes(self, interleaved: bool) -> list[PassText]:
        return [self._pass(of, interleaved and of.number == 0) for of in self.schedule.passes.passes]

    def _pass(self, of: Pass, interleaved: bool) -> PassText:
        stored = () if interleaved else tuple(s.tensor for s in (*of.stores, *of.row_stores))
        reductions = [
            self._reduction(r, *((False,) if interleaved else (r.arg in (*of.keeps, *of.held), self._in_order(of, r))))
            for r in of.reductions
        ]
        results, blocks = self.results(of.reductions), self.schedule.blocks
        shared = bool(of.reductions) and blocks > 1
        stores = [store_statement(s, written(s, self.arguments), value=self.at(s.arg)) for s in of.row_stores]
        return PassText(
            of.number,
            describe(of, stored),
            bool(of.stores),
            reductions,
            self._columns(of, reductions),
            results,
            partials=self.exchange.partials(results) if shared else [],
            met=self._met(of.reductions) if self.schedule.paired else [],
            merges=[
                SPELLED[r.kind].merged(r.names, [f"__ldcg({name}_partial + other * rows)" for name in r.names])
                for r in of.reductions
            ],
            again=[*map(self._call, of.reductions)] if shared else [],
            values=self.row_values((), of.row_maps),
            row_stores=Rows(self._head(of.row_stores, guard=True), stores),
        )

    def row_values(self, loads: Sequence[Load], maps: Sequence[Map | Load]) -> Whole:
        """Values of the whole row, from memory or from other values of the row."""
        texts = {x.name: load_value(x, self.sources, "row", "0") for x in loads} | {
            m.name: spell(m, "cuda", self.at) for m in maps
        }
        own = [x for x in (*loads, *maps) if self.rows > 1 and x.name in self._row_level]
        same = [f"const {self.type(x.name)} {x.name} = {texts[x.name]};" for x in (*loads, *maps) if x not in own]
        declared = [f"{self.type(x.name)} {x.name}[{self.rows}];" for x in own]
        return Whole([*same, *declared], Rows(self._head(own), [f"{x.name}[r] = {texts[x.name]};" for x in own]))

    # Names and types

    def type(self, name: str) -> str:
        return value_type(self.program.dtypes[name])

    def at(self, name: str) -> str:
        """A value as a row's statements name it."""
        return f"{name}[r]" if self.rows > 1 and name in self._row_level else name

    def _kept(self, name: str) -> str:
        return f"{name}_kept{'[r]' if self.rows > 1 else ''}[step]{'[j]' if self.vec > 1 else '[0]'}"

    @property
    def kept(self) -> list[str]:
        """The arrays that keep the row."""
        names = dict.fromkeys(k for s in self.schedule.passes.passes for k in s.keeps)
        rows = f"[{self.rows}]" if self.rows > 1 else ""
        return [f"{self.type(name)} {name}_kept{rows}[{self.schedule.steps}][{self.vec}];" for name in names]

    @property
    def integer(self) -> str:
        """The C type of a column's number."""
        beyond = self.program.cols + self.schedule.lanes * self.vec
        return "long long" if self.program.wide or beyond > _INT_MAX else "int"

    def results(self, reductions: Sequence[Reduce]) -> list[Result]:
        """Each result with its C type and that of no values. Places fit an ``int`` where columns do."""
        found = [part for r in reductions for part in zip(r.names, SPELLED[r.kind].types, SPELLED[r.kind].starts)]
        if self.integer != "int":
            return found
        return [
            (name, "int", str(_INT_MAX)) if type_ == PLACE else (name, type_, start) for name, type_, start in found
        ]

    # Columns

    def _columns(self, of: Pass, reductions: list[Reduction]) -> Columns:
        schedule, vec = self.schedule, self.vec
        if schedule.paired:
            return self._pairs(of, reductions)
        across = self.rows if schedule.neighbours else 1
        own, shared = ([x for x in of.loads if follows_row(x) == is_own] for is_own in (True, False))
        together = [
            x
            for x in own
            if across > 1
            and x.level != ROW
            and x.tensor
            and not x.access.mask
            and x.access.mode(across, "row") == "vector"
        ]
        ringed = [x for x in schedule.ring.loads if x in own] if schedule.ring else []
        single = [x for x in own if x not in together and (not schedule.ring or x not in schedule.ring.loads)]
        # Loads past the cache stay behind the stores in front of them: beside stores, too few would be in flight.
        once = {x.name for x in own if x.name in self._once and self._last_pass[x.name] == of.number and not of.stores}
        outer, inner = common.load_statements(shared, vec, self.sources)
        before, row_inner = common.load_statements(single, vec, self.sources, once)
        before += [
            f"const auto {x.name}_vector = slots[{schedule.ring.slot('slot', x)} * {schedule.block}];" for x in ringed
        ]
        row_inner += [
            f"const {self.type(x.name)} {x.name} = {loaded(f'{x.name}_vector.v[j]', x.dtype)};" for x in ringed
        ]
        outer += [
            f"const auto {x.name}_rows = {symbol('load_vector')}<{across}>({self.sources[x.tensor]} + "
            f"{x.access.index('first_row')});"
            for x in together
        ]
        row_inner += [
            f"const {self.type(x.name)} {x.name} = {loaded(f'{x.name}_rows.v[r]', x.dtype)};" for x in together
        ]
        inner += row_inner + [f"const {self.type(name)} {name} = {self._kept(name)};" for name in of.held]
        maps_before, maps = common.map_statements(of, vec, self.at)
        inner += (
            maps
            + [f"{self._kept(name)} = {name};" for name in of.keeps]
            + [line for r in reductions for line in r.inner]
        )
        stored = [s for s in of.stores if across > 1 and s.access.mode(across, "row") == "vector"]
        gather, store_inner, store = common.store_statements(
            [s for s in of.stores if s not in stored], vec, self.arguments, self.store_vector
        )
        outer += [f"Vector<{DTYPES[s.dtype].memory}, {across}> {s.tensor}_result;" for s in stored]
        inner += [f"{s.tensor}_result.v[r] = {store_value(s)};" for s in stored]
        behind = [
            f"{self.store_vector}<{across}>({written(s, self.arguments)} + {s.access.index('first_row')}, "
            f"{s.tensor}_result);"
            for s in stored
        ]
        chunks = [line for r in reductions for line in r.outer]
        return Columns(
            outer,
            self._head((*shared, *single, *of.maps, *(s for s in of.stores if s not in stored))),
            [*before, *maps_before, *chunks, *gather],
            inner,
            store_inner,
            [line for r in reductions for line in r.close],
            store,
            behind,
            by_col((*shared, *single, *of.maps, *together, *of.stores)),
        )

    def _pairs(self, of: Pass, reductions: list[Reduction]) -> Columns:
        """The columns of a thread whose loads take two rows each."""
        loads, beside = [x for x in of.loads if x.tensor], self.program.row_loops[-1]
        # The first of the rows side by side, in that column.
        starts = {x: replace(x.access, offset=x.access.offset.subs(beside.symbol, 0)).index("first_row") for x in loads}
        pairs = [
            f"const auto {x.name}_pair = {symbol('load_vector')}<2>({self.sources[x.tensor]} + {starts[x]} + place);"
            for x in loads
        ]
        inner = [f"const {self.type(x.name)} {x.name} = {loaded(f'{x.name}_pair.v[j]', x.dtype)};" for x in loads]
        inner += [
            f"const {self.type(x.name)} {x.name} = {load_value(x, self.sources, 'row', 'col')};"
            for x in of.loads
            if not x.tensor
        ]
        inner += [f"const {value_type(m.dtype)} {m.name} = {spell(m, 'cuda', self.at)};" for m in of.maps]
        return Columns([], [], pairs, inner + [line for r in reductions for line in r.inner], [], [], [], [], True)

    # Rows

    def _head(self, steps: Sequence[Step], guard: bool = False) -> list[str]:
        """The statements that find one of a block's rows where ``steps`` need it; with ``guard``, the loop ends behind
        the last row.

        Others read the last row instead.
        """
        schedule = self.schedule
        if self.rows == 1:
            return []
        number = "first_row + r" if schedule.apart == 1 else f"first_row + r * {schedule.apart}"
        if schedule.paired:
            found = [
                f"const int number = inner + r / 2 * {2 * STRIP} + r % 2;",
                "if (number >= end) break;",
                "const long long row = first_row - begin + number;",
            ]
        elif schedule.neighbours:
            found, guard = ["const long long row = first_row + r;"], False
        elif guard:
            found = [f"const long long row = {number};", "if (row >= rows) break;"]
        else:
            found = [f"const long long row = {number} < rows ? {number} : rows - 1;"]
        return found if guard or by_row(steps) else []

    # Reductions

    def _call(self, r: Reduce) -> str:
        """The function that reduces over a block, at a site of its own."""
        self._sites += 1
        schedule = self.schedule
        how = "shuffle" if schedule.reduction == "warp_shuffle" else "lines" if schedule.strip else "tree"
        rows = f", {self.rows * (2 if schedule.paired else 1)}" if self.rows > 1 else ""
        return (
            f"{symbol(f'reduce_{r.kind}_{how}')}<{schedule.lanes // schedule.blocks}, "
            f"{self._sites}{rows}>({', '.join(r.names)});"
        )

    def _in_order(self, of: Pass, r: Reduce) -> bool:
        """Whether each thread meets the places of values one after the other."""
        return of.number % 2 == 0 and any(
            x.name == r.args[-1] and not x.tensor and x.access.index() == "col" for x in of.loads
        )

    def _reduction(self, r: Reduce, kept: bool = False, in_order: bool = False) -> Reduction:
        combine, results = SPELLED[r.kind], self.results([r])
        take, starts = combine.take, [start for _, _, start in results]
        if in_order and combine.in_order:
            first = (
                "lane * 2 + odd"
                if self.schedule.paired
                else "first"
                if self.schedule.parted
                else "lane"
                if self.vec == 1
                else f"lane * {self.vec}"
            )
            take, starts = combine.in_order, [*starts[:-1], first]
        before = [self._declared(name, type_, start) for (name, type_, _), start in zip(results, starts)]
        own, call = [self.at(name) for name in r.names], self._call(r)
        if take:
            return Reduction(before, [], [take.format(*own, *r.args)], [], "", call)
        if kept and r.kind == "softmax":
            # The whole row is in registers: its maximum first, then one exponential for each column.
            added = f"{own[1]} += expf({self._kept(r.arg)} - {symbol('finite_max')}({own[0]}));"
            return Reduction(before, [], [f"{own[0]} = fmaxf({own[0]}, {r.arg});"], [], added, call)
        chunk = f"{r.arg}_chunk"
        function = symbol({"softmax": "merge_chunk", "moments": "moments_chunk"}[r.kind])
        close = f"{function}<{self.vec}>({', '.join(own)}, {chunk});"
        return Reduction(
            before,
            [f"float {chunk}[{self.vec}];"],
            [f"{chunk}[{'j' if self.vec > 1 else 0}] = {r.arg};"],
            [close],
            "",
            call,
        )

    def _declared(self, name: str, type_: str, start: str) -> str:
        if self.rows == 1:
            return f"{type_} {name} = {start};"
        starts = [start] * self.rows
        if (
            self.schedule.paired
        ):  # of each row, by the columns where its pair begins at the thread's own row, and by the others
            starts += [start.replace("+ odd", "+ 1 - odd")] * self.rows
        return f"{type_} {name}[{len(starts)}] = {{{', '.join(starts)}}};"

    def _met(self, reductions: Sequence[Reduce]) -> list[str]:
        """The statements that merge a row's results from both kinds of pairs."""
        lines = []
        for r in reductions:
            others = [f"{symbol('found_earlier')}<{self.rows}>({name}, r)" for name in r.names]
            if len(others) > 1 or SPELLED[r.kind].merge.count("{1}") > 1:
                lines += [f"const auto {name}_other = {text};" for name, text in zip(r.names, others)]
                others = [f"{name}_other" for name in r.names]
            lines.append(SPELLED[r.kind].merged([self.at(name) for name in r.names], others))
        return lines
