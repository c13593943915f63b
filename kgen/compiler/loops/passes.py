"""Passes: a loop program as passes over a row, with element values kept between them or computed again."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.compiler.loops.program import ELEMENT, ROW, Load, Map, Program, Reduce, Scan, Store, Window


@dataclass(frozen=True)
class Pass:
    """One pass over the row: what it reads, computes, keeps, stores and reduces, and the row values made after it.

    ``held`` are element values kept by an earlier pass and used here; ``keeps`` are those that this pass leaves to a
    later one.
    """

    number: int
    held: tuple[str, ...]
    loads: tuple[Load, ...]
    maps: tuple[Map | Load | Window | Scan, ...]
    keeps: tuple[str, ...]
    stores: tuple[Store, ...]
    reductions: tuple[Reduce, ...]
    row_maps: tuple[Map | Load, ...]
    row_stores: tuple[Store, ...]


@dataclass(frozen=True)
class Passes:
    """A program as passes, with the row values that are there before the first."""

    row_loads: tuple[Load, ...]
    row_maps: tuple[Map, ...]
    passes: tuple[Pass, ...]

    @property
    def kept(self) -> int:
        """The most element values kept between two passes, for each column."""
        live = 0
        for n in range(len(self.passes) - 1):
            names = {k for s in self.passes[: n + 1] for k in s.keeps}
            later = {h for s in self.passes[n + 1 :] for h in s.held}
            live = max(live, len(names & later))
        return live


def passes_of(program: Program, *, keep: bool) -> Passes:
    """The program's passes; with ``keep``, element values stay between them, else they are read and computed again."""
    known = program.__dict__.setdefault("_passes", {})  # each of many plans asks for it
    if keep not in known:
        known[keep] = _passes_of(program, keep)
    return known[keep]


def _passes_of(program: Program, keep: bool) -> Passes:
    ready: dict[str, int] = {load.name: 0 for load in program.loads}  # pass in which a value is there
    if program.contraction:
        ready[program.contraction.name] = 0
    for step in program.steps:
        if isinstance(step, Reduce):
            ready.update(dict.fromkeys(step.names, 1 + max(ready[a] for a in step.args)))
        else:
            ready[step.name] = max((ready[a] for a in step.args), default=0)
    by_name: dict[str, Load | Map | Window | Scan] = {load.name: load for load in program.loads}
    by_name |= {s.name: s for s in program.steps if not isinstance(s, Reduce)}

    def element(name: str) -> bool:
        return name in by_name and by_name[name].level == ELEMENT

    # The element values that a pass must have, each with the pass's number.
    wanted = [(ready[r.names[0]] - 1, a) for r in program.reductions for a in r.args]
    wanted += [(ready[s.arg], s.arg) for s in program.stores if s.level == ELEMENT]
    wanted += [(ready[name], name) for s in program.scatters for name in (s.arg, *s.places)]
    wanted += [(ready[m], m) for m in (program.moments_of,) if m]
    count = 1 + max((number for number, _ in wanted), default=0)
    closures: list[set[str]] = []
    held: list[set[str]] = []
    for number in range(count):
        computed: set[str] = set()
        carried: set[str] = set()
        stack = [name for at, name in wanted if at == number]
        while stack:
            name = stack.pop()
            if name in computed or name in carried or not element(name):
                continue
            value = by_name[name]
            keepable = not isinstance(value, Load) or value.access.full
            if keep and keepable and any(name in names for names in closures):
                carried.add(name)
                continue
            computed.add(name)
            stack.extend(value.args)
        closures.append(computed)
        held.append(carried)

    passes = []
    for number in range(count):
        keeps = {k for k in closures[number] if any(k in h for h in held[number + 1 :])}
        passes.append(
            Pass(
                number,
                tuple(n for n in by_name if n in held[number]),
                tuple(x for x in program.loads if x.name in closures[number]),
                tuple(s for s in program.steps if not isinstance(s, Reduce) and s.name in closures[number]),
                tuple(n for n in by_name if n in keeps),
                tuple(s for s in program.stores if s.level == ELEMENT and ready[s.arg] == number),
                tuple(r for r in program.reductions if ready[r.names[0]] == number + 1),
                tuple(
                    s
                    for s in program.steps
                    if not isinstance(s, Reduce) and s.level == ROW and ready[s.name] == number + 1
                ),
                tuple(s for s in program.stores if s.level == ROW and ready[s.arg] == number + 1),
            )
        )
    before = tuple(s for s in program.steps if not isinstance(s, Reduce) and s.level == ROW and ready[s.name] == 0)
    return Passes(tuple(x for x in program.loads if x.level == ROW), before, tuple(passes))
