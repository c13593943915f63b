"""Loops over time that export unrolled, as scans.

    for t in range(T): h = a[:, t] * h + b[:, t]; out.append(h)     linear_recurrence(a, b)
    ...; y.append((h * c[:, t]).sum(-1))                            (linear_recurrence(a, b) * c).sum(-1)

A chain is a line of states. Each is linear in the state before, with a factor and a summand that depend on no state.
:mod:`kgen.compiler.rewrites.rolling` makes one operator over all steps of everything else that a loop computes.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace

from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.graph.graph import Node, Operand, OpGraph, Tensor
from kgen.compiler.graph.library_call import Many, X, Y, functional, torch_
from kgen.compiler.rewrites.cleanup import decompose, drop_identity
from kgen.compiler.rewrites.rolling import Names, NotRolled, Rolled, Roller, inserted, resized
from kgen.compiler.rewrites.written import written_to_joined

LEAST_STEPS = 8  # fewer steps are elementwise operators of one kernel, which reads and writes as much
_MOST_STATES = 4  # states that are read one by one, as the last one is; of more, the loop is something else
_MOST_PASSED = 2  # operators between two states that are of the kind of the last one
_DEEPEST = 8  # operators from a state to the next
#: Operators that are linear in each of these operands, if the other ones do not depend on it.
_LINEAR = {"add": (0, 1), "sub": (0, 1), "rsub": (0, 1), "mul": (0, 1), "div": (0,), "neg": (0,), "where": (1, 2)}

#: The same of numbers, as parts of a factor are.
_OF_NUMBERS = {"add": operator.add, "mul": operator.mul, "div": operator.truediv}

Path = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Chain:
    """The states of a recurrence, and the operand that is the state before the first step."""

    states: tuple[str, ...]
    before: Operand

    @property
    def previous(self) -> Names:
        return (self.before, *self.states[:-1])


def unrolled_to_scan(graph: OpGraph) -> OpGraph:
    """Loops of linear recurrences as scans of all steps."""
    if max((len(group) for group in _alike(graph).values()), default=0) < LEAST_STEPS or graph.changed:
        return graph
    written = written_to_joined(drop_identity(graph))
    for start in dict.fromkeys((written, decompose(written))):
        found = _all(start)
        if found is not start:
            return found
    return graph


def _alike(graph: OpGraph) -> dict[tuple[str, Tensor], list[Node]]:
    """The nodes that may be the last operator of a step, by operator and type."""
    found: dict[tuple[str, Tensor], list[Node]] = {}
    for node in graph.nodes:
        if node.type is not None and is_float(node.type.dtype) and (node.op in _LINEAR or node.parts):
            found.setdefault((node.op, node.type), []).append(node)
    return found


def _all(graph: OpGraph) -> OpGraph:
    failed: set[Chain] = set()
    while chains := [chain for chain in _chains(graph) if chain not in failed]:
        for chain in chains:
            found = _as_scan(graph, chain, [c for c in chains if len(c.states) == len(chain.states)])
            if found is not None:
                graph = found
                break
            failed.add(chain)
        else:
            return graph
    return graph


# Chains of states


def _chains(graph: OpGraph) -> list[Chain]:
    """Chains, the longest ones first."""
    links: dict[tuple[str, Path], tuple[int, str]] = {}  # how long a chain to a node is, and the node before
    ends: dict[tuple[str, Path], None] = {}
    many = {key for key, nodes in _alike(graph).items() if len(nodes) >= LEAST_STEPS}
    for node in graph.nodes:
        if (node.op, node.type) not in many or node.op not in _LINEAR:
            continue
        for path, before in _linear_paths(graph, node):
            length = links.get((before, path), (0, ""))[0] + 1
            if length > links.get((node.name, path), (0, ""))[0]:
                links[node.name, path] = length, before
                ends.pop((before, path), None)
                ends[node.name, path] = None
    found = []
    for end, path in ends:
        states = [end]
        while (known := links.get((states[0], path))) is not None:
            states.insert(0, known[1])
        before = _at_end(graph, states[0], path)
        chain = Chain(tuple(states), before) if before is not None else Chain(tuple(states[1:]), states[0])
        if len(chain.states) >= LEAST_STEPS:
            found.append(chain)
    return sorted(found, key=lambda chain: -len(chain.states))


def _linear_paths(graph: OpGraph, end: Node) -> list[tuple[Path, str]]:
    """The operands in a line from a node to others of its operator and type, in which it may be linear."""
    found, waiting = [], [(end, (), 0)]
    while waiting:
        node, path, passed = waiting.pop()
        for number in _LINEAR[node.op]:
            operand = node.inputs[number] if number < len(node.inputs) else None
            made = graph.producer(operand) if isinstance(operand, str) else None
            if made is None:
                continue
            further = (*path, (node.op, number))
            alike = (made.op, made.type) == (end.op, end.type)
            if alike:
                found.append((further, made.name))
            if made.op in _LINEAR and len(further) < _DEEPEST and passed + alike <= _MOST_PASSED:
                waiting.append((made, further, passed + alike))
    return found


def _at_end(graph: OpGraph, name: str, path: Path) -> Operand | None:
    """The operand at the end of a path from a node; ``None`` where its operators are others."""
    operand: Operand = name
    for op, number in path:
        node = graph.producer(operand)
        if node is None or node.op != op or number >= len(node.inputs):
            return None
        operand = node.inputs[number]
    return operand


# A chain as a scan


def _as_scan(graph: OpGraph, chain: Chain, others: list[Chain]) -> OpGraph | None:
    """The graph with the operators of a loop over all steps; ``None`` where they do not roll."""
    depends = _depending(graph, chain.states)
    joined = [
        n
        for n in graph.nodes
        if n.op == "cat"
        and depends.intersection(n.values)
        and len(n.inputs) in (len(chain.states), len(chain.states) + 1)
    ]
    of = graph.type(chain.states[0])
    places = [n["dim"] for n in joined if len(n.type.shape) > len(of.shape)]
    for place in dict.fromkeys((*places, 1 if of.batched else 0, 0)):
        for with_first in (False, True):
            try:
                found = _Scan(graph, others, min(place, len(of.shape)), with_first).graph_of(chain, joined)
            except NotRolled:
                continue
            if found is not None:
                return found
    return None


def _depending(graph: OpGraph, names: tuple[str, ...]) -> set[str]:
    """The values that depend on some, with these."""
    found = set(names)
    for node in graph.nodes:
        if not found.isdisjoint(node.values):
            found.add(node.name)
    return found


class _Scan:
    """Chains of one loop over all steps, which are dimension ``place`` of their values.

    With ``with_first``, running values begin with the state before the first step: steps read the state before theirs.
    """

    def __init__(self, graph: OpGraph, chains: list[Chain], place: int, with_first: bool) -> None:
        self.graph, self.with_first = graph, with_first
        self.roller = Roller(graph, place, self._states)
        self._parts: dict[Names, tuple[Chain, str]] = {}
        for chain in chains:
            self._parts |= {
                chain.states: (chain, "own"),
                chain.previous: (chain, "previous"),
                (chain.before, *chain.states): (chain, "whole"),
            }
        self._made: dict[Chain, str] = {}

    def graph_of(self, chain: Chain, joined: list[Node]) -> OpGraph | None:
        """The graph without the loop; ``None`` where many of its states are read one by one. Raises
        :class:`NotRolled`."""
        roller = self.roller
        instead = {node.name: self._joined(node) for node in joined}
        roller.roll(chain.states)
        single = {
            name: self._single(name, number, roller.roll(of.states))
            for of in list(self._made)
            for number, name in enumerate(of.states)
        }
        nodes = [single.get(n.name, n) for n in self.graph.nodes if n.name not in instead]
        graph = replace(self.graph, nodes=(*nodes, *roller.nodes))
        for name, value in instead.items():
            graph = graph.without(name, value)
        graph = replace(graph, nodes=tuple(_in_order(graph.nodes))).pruned()
        left = sum(n.name in single for n in graph.nodes)
        return graph if left <= _MOST_STATES * len(self._made) else None

    def _single(self, name: str, number: int, rolled: Rolled) -> Node:
        """One state by itself."""
        call = torch_("select", X, rolled.at, number)
        return Node(
            name, "select", (rolled.operand,), self.graph.type(name), call, (("dim", rolled.at), ("at", number))
        )

    def _joined(self, node: Node) -> str:
        """The concatenation of all steps."""
        rolled = self.roller.roll(node.inputs)
        if rolled.at is None or node.type.shape[node["dim"]] != len(node.inputs):
            raise NotRolled("each step has several elements, or all have one value")
        return self.roller.viewed(self.roller.moved(str(rolled.operand), rolled.at, node["dim"]), node.type)

    # States

    def _states(self, names: Names) -> Rolled | None:
        """The running values that names are, in their order or from the last one back."""
        for order in (1, -1):
            if names[::order] in self._parts:
                chain, part = self._parts[names[::order]]
                found = self._part(chain, part)
                at, type_ = self._at(chain), self.roller.type(found)
                if order == -1:
                    found = self.roller.add(
                        chain.states[0], "flip", (found,), type_, torch_("flip", X, (at,)), dims=(at,)
                    )
                return Rolled(found, at)
        return None

    def _part(self, chain: Chain, part: str) -> str:
        """All states, with or without the first or the last one."""
        if part != "own" and not self.with_first:
            raise NotRolled("steps read the state before theirs")
        found, at, steps = self._running(chain), self._at(chain), len(chain.states)
        if not self.with_first or part == "whole":
            return found
        start, type_ = 1 if part == "own" else 0, resized(self.roller.type(found), at, steps)
        return self.roller.add(
            chain.states[0],
            "slice",
            (found,),
            type_,
            torch_("narrow", X, at, start, steps),
            dim=at,
            start=start,
            step=1,
        )

    def _at(self, chain: Chain) -> int:
        return self.roller.at(self.graph.type(chain.states[0]))

    def _running(self, chain: Chain) -> str:
        """The scan of a chain."""
        if chain not in self._made:
            roller, at, of = self.roller, self._at(chain), self.graph.type(chain.states[0])
            factor, summand = _Linear(roller, chain, _depending(self.graph, chain.states)).of(chain.states)
            if factor.at is None and summand.at is None:
                raise NotRolled("every step is the same")
            steps = len(chain.states)
            terms = [roller.aligned(term, len(of.shape), at, steps) for term in (factor, summand)]
            if self.with_first:
                inputs = (
                    self._padded(chain, terms[0], at) if factor.at is not None else terms[0],
                    self._begun(chain, at, terms[1]),
                )
            else:
                inputs = (*terms, *(() if self.graph.is_zero(chain.before) else (chain.before,)))
            type_ = inserted(of, at, steps + self.with_first)
            self._made[chain] = roller.add(chain.states[0], "linear_recurrence", inputs, type_, None, dim=at)
        return self._made[chain]

    def _begun(self, chain: Chain, at: int, summand: Operand) -> str:
        """The summand with that of a step in front, which makes the initial state from zero."""
        roller, of, steps = self.roller, self.graph.type(chain.states[0]), len(chain.states)
        if not isinstance(summand, str) or roller.type(summand) != inserted(of, at, steps):
            raise NotRolled("the summand is broadcast")
        if self.graph.is_zero(chain.before):
            return self._padded(chain, summand, at)
        if not isinstance(chain.before, str) or self.graph.type(chain.before) != of:
            raise NotRolled("the initial state is broadcast")
        first, call = roller.viewed(chain.before, inserted(of, at, 1)), torch_("cat", Many((X, Y)), at)
        return roller.add(chain.states[0], "cat", (first, summand), inserted(of, at, steps + 1), call, dim=at)

    def _padded(self, chain: Chain, value: Operand, at: int) -> str:
        """A term with a zero in front of the first step."""
        type_ = self.roller.type(value)
        pairs = tuple((1, 0) if d == at else (0, 0) for d in range(len(type_.shape)))
        call = functional("pad", X, tuple(n for pair in reversed(pairs) for n in pair))
        return self.roller.add(
            chain.states[0], "pad", (value,), resized(type_, at, len(chain.states) + 1), call, pad=pairs, value=0
        )


@dataclass
class _Linear:
    """States as a linear function of the states before."""

    roller: Roller
    chain: Chain
    depends: set[str]

    def of(self, names: Names) -> tuple[Rolled, Rolled]:
        """The factor of the states before, and the summand. Raises :class:`NotRolled`."""
        if names == self.chain.previous:
            return Rolled(1, None), Rolled(0, None)
        if self.depends.isdisjoint(names[1:]):
            return Rolled(0, None), self.roller.roll(names)
        made = [self.roller.graph.producer(name) for name in names]
        first = made[-1]
        if (
            first is None
            or first.op not in _LINEAR
            or any(n is None or (n.op, n.attributes) != (first.op, first.attributes) for n in made)
        ):
            raise NotRolled("steps are no linear function of the states before")
        if dict(first.attrs).get("alpha", 1) != 1:
            raise NotRolled("a summand has a factor")
        operands = [tuple(n.inputs[number] for n in made) for number in range(len(first.inputs))]
        return getattr(self, f"_{first.op}")(*operands)

    def _add(self, left: Names, right: Names) -> tuple[Rolled, Rolled]:
        return tuple(self._sum(a, b) for a, b in zip(self.of(left), self.of(right)))

    def _sub(self, left: Names, right: Names) -> tuple[Rolled, Rolled]:
        return tuple(self._sum(a, self._product(b, Rolled(-1, None))) for a, b in zip(self.of(left), self.of(right)))

    def _rsub(self, left: Names, right: Names) -> tuple[Rolled, Rolled]:
        return self._sub(right, left)

    def _neg(self, of: Names) -> tuple[Rolled, Rolled]:
        return tuple(self._product(term, Rolled(-1, None)) for term in self.of(of))

    def _mul(self, left: Names, right: Names) -> tuple[Rolled, Rolled]:
        if not self.depends.isdisjoint(right[1:]):
            left, right = right, left
        by = self._apart(right)
        return tuple(self._product(term, by) for term in self.of(left))

    def _div(self, left: Names, right: Names) -> tuple[Rolled, Rolled]:
        by = self._apart(right)
        return tuple(term if term.operand == 0 else self._pointwise("div", term, by) for term in self.of(left))

    def _where(self, condition: Names, left: Names, right: Names) -> tuple[Rolled, Rolled]:
        by = self._apart(condition)
        return tuple(a if a == b else self._pointwise("where", by, a, b) for a, b in zip(self.of(left), self.of(right)))

    def _apart(self, names: Names) -> Rolled:
        """A value of each step that depends on no state."""
        if not self.depends.isdisjoint(names[1:]):
            raise NotRolled("a factor depends on the state")
        return self.roller.roll(names)

    def _sum(self, a: Rolled, b: Rolled) -> Rolled:
        return b if a.operand == 0 else a if b.operand == 0 else self._pointwise("add", a, b)

    def _product(self, a: Rolled, b: Rolled) -> Rolled:
        if 0 in (a.operand, b.operand):
            return Rolled(0, None)
        return b if a.operand == 1 else a if b.operand == 1 else self._pointwise("mul", a, b)

    def _pointwise(self, op: str, *terms: Rolled) -> Rolled:
        numbers = [term.operand for term in terms if not isinstance(term.operand, str)]
        if len(numbers) == len(terms):
            if op == "div" and numbers[1] == 0:
                raise NotRolled("steps divide a number by zero")
            return Rolled(_OF_NUMBERS[op](*numbers), None)
        if op in ("add", "mul"):
            terms = tuple(sorted(terms, key=lambda term: not isinstance(term.operand, str)))
        return self.roller.pointwise(
            op, self.roller.graph.type(self.chain.states[0]).dtype, len(self.chain.states), *terms
        )


def _in_order(nodes: tuple[Node, ...]) -> list[Node]:
    """The nodes, each behind those that it reads, else in the order that they have."""
    by_name, found, seen = {n.name: n for n in nodes}, [], set()
    waiting = [(n.name, False) for n in reversed(nodes)]
    while waiting:
        name, ready = waiting.pop()
        if ready:
            found.append(by_name[name])
        elif name not in seen:
            seen.add(name)
            waiting.append((name, True))
            waiting += [(value, False) for value in reversed(by_name[name].values) if value in by_name]
    return found
