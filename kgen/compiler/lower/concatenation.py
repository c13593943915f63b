"""Concatenations of which each row lies in one operand: the row's operand is chosen once, and read through one pointer.

    where(row < 64, a[row, col], where(row < 96, b[row - 64, col], c[row - 96, col]))

Otherwise, each operand is loaded under a mask, in every step along the row. Dozens of them do not fit the registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Sequence

import sympy

from kgen.compiler.loops.access import Place, Within
from kgen.compiler.loops.expr import CHOICE
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program, Reduce

#: Maps of other parts that a kernel may compute for each element and drop. 26 bags of three rows in a concatenation
#: have 280.
MOST_DROPPED = 32


def dropped(program: Program) -> int:
    """How many maps a kernel computes for an element and drops, since they belong to other parts of a concatenation.

    Parts count as equally large.
    """
    maps = {s.name: s for s in program.steps if isinstance(s, Map) and s.level == ELEMENT}
    users: dict[str, list[str]] = {}
    for name, step in maps.items():
        for arg in step.args:
            users.setdefault(arg, []).append(name)
    conditions = {x.name for x in program.loads if not x.tensor and x.dtype == "bool"}
    choices = [s for s in maps.values() if s.expression == CHOICE and s.args[0] in conditions]
    kept = {s.arg for s in program.stores} | {
        a for s in program.steps if not isinstance(s, Map) for a in getattr(s, "args", ())
    }
    chosen_between = {s.name for s in choices}

    def own(part: str) -> set[str]:
        """The maps that nothing but this part of a choice needs."""
        found: set[str] = set()
        waiting = [part]
        while waiting:
            name = waiting.pop()
            if (
                name in maps
                and name not in chosen_between
                and name not in kept
                and (name == part or found.issuperset(users[name]))
            ):
                found.add(name)
                waiting += maps[name].args
        return found

    parts = [len(own(part)) for choice in choices for part in choice.args[1:] if part not in chosen_between]
    return sum(parts) * (len(parts) - 1) // max(1, len(parts))


@dataclass(frozen=True)
class Part:
    """An operand that holds the rows that fulfil ``condition``, in C, and are in no part before; of the last, all
    others.

    ``numbers`` are its own values of what differs between the parts' offsets.
    """

    tensor: str
    condition: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Chosen:
    """Parts that ``load`` reads as one tensor."""

    load: Load
    parts: tuple[Part, ...]

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names by which the load's offset calls the numbers of a part."""
        return tuple(name for _, name in self.load.access.spelled)


def chosen(program: Program) -> tuple[Program, tuple[Chosen, ...]]:
    """The program with one load for each concatenation of which a row lies in one operand, and these loads."""
    known = program.__dict__  # each of many plans asks for it
    if "_chosen" not in known:
        known["_chosen"] = _read_by_pointers(program)
    return known["_chosen"]


def _read_by_pointers(program: Program) -> tuple[Program, tuple[Chosen, ...]]:
    """The result of :func:`chosen`, worked out; values that nothing needs any more are gone."""
    values: dict[str, Load | Map] = {x.name: x for x in program.loads}
    values |= {s.name: s for s in program.steps if isinstance(s, Map)}
    inner = {s.args[2] for s in values.values() if isinstance(s, Map) and s.expression == CHOICE}
    found = []
    for step in program.steps:
        if isinstance(step, Map) and step.expression == CHOICE and step.level == ELEMENT and step.name not in inner:
            if one := _chosen(step, values):
                found.append(one)
    if not found:
        return program, ()
    replaced = {one.load.name: one.load for one in found}
    steps = [s for s in program.steps if isinstance(s, Reduce) or s.name not in replaced]
    needed, waiting = (
        set(),
        [s.arg for s in program.stores] + [a for s in steps if isinstance(s, Reduce) for a in s.args],
    )
    made = {name: s for s in steps for name in (s.names if isinstance(s, Reduce) else (s.name,))}
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += made[name].args if name in made else ()
    loads = [x for x in (*program.loads, *replaced.values()) if x.name in needed]
    kept = (s for s in steps if isinstance(s, Reduce) or s.name in needed)
    return replace(program, loads=tuple(loads), steps=tuple(kept)), tuple(found)


def _chosen(top: Map, values: dict[str, Load | Map]) -> Chosen | None:
    """The choice as one load; ``None`` where its parts are no loads of one dtype that rows lie in, one behind the
    other."""
    conditions: list[Load] = []
    loads: list[Load] = []
    at: Load | Map | None = top
    while isinstance(at, Map) and at.expression == CHOICE:
        condition, part = values.get(at.args[0]), values.get(at.args[1])
        if (
            not isinstance(condition, Load)
            or condition.tensor
            or condition.level == ELEMENT
            or not isinstance(part, Load)
        ):
            return None
        conditions.append(condition)
        loads.append(part)
        at = values.get(at.args[2])
    if not isinstance(at, Load):
        return None
    loads.append(at)
    if not _in_order([c.access.mask for c in conditions], [x.access.mask for x in loads]):
        return None
    if not all(x.tensor and x.level == ELEMENT and x.dtype == top.dtype and not x.args for x in loads):
        return None
    offset, numbers, differing = _together(top.name, [x.access.offset for x in loads])
    spelled = tuple((symbol, symbol.name) for symbol in numbers)
    place = Place(offset, loads[0].access.row_loops, loads[0].access.col_loops, spelled=spelled)
    if not place.full:
        return None
    texts = [*(c.access.condition() for c in conditions), ""]
    parts = tuple(Part(x.tensor, text, own) for x, text, own in zip(loads, texts, differing))
    return Chosen(Load(top.name, top.name, place, ELEMENT, top.dtype), parts)


def _in_order(conditions: Sequence[tuple[Within, ...]], masks: Sequence[tuple[Within, ...]]) -> bool:
    """Whether the parts lie one behind the other along an axis, and each is there where it is chosen."""
    if any(len(mask) != 1 or mask[0].below or not mask[0].index.is_Symbol for mask in conditions):
        return False
    axes, ends = {mask[0].index for mask in conditions}, [0, *(mask[0].size for mask in conditions), math.inf]
    if len(axes) != 1 or ends != sorted(ends):
        return False
    (axis,) = axes
    for mask, begin, end in zip(masks, ends, ends[1:]):
        if len(mask) > 1:
            return False
        for within in mask:
            start = axis - within.index
            last = start + within.size if within.above else math.inf
            if not start.is_Integer or (within.below and start > begin) or last < end:
                return False
    return True


def _together(name: str, offsets: Sequence[sympy.Expr]) -> tuple[sympy.Expr, list[sympy.Symbol], list[tuple[int, ...]]]:
    """The offsets as one, with symbols for what differs between them, and each one's numbers for these symbols."""
    terms = [offset.as_coefficients_dict() for offset in offsets]
    one, symbols, columns = sympy.Integer(0), [], []
    strides = 0
    for term in sorted({t for own in terms for t in own}, key=str):
        factors = [int(own.get(term, 0)) for own in terms]
        if len(set(factors)) == 1:
            one += factors[0] * term
            continue
        strides += term != 1
        word = "start" if term == 1 else "stride" if strides == 1 else f"stride_{strides}"
        unit = math.gcd(*factors)
        symbols.append(sympy.Symbol(f"{name}_{word}", integer=True))
        columns.append([factor // unit for factor in factors])
        one += unit * symbols[-1] * term
    return one, symbols, list(zip(*columns)) or [()] * len(offsets)
