"""Tensors of few errors are judged over several fresh inputs of their case, together."""

import random
from typing import TYPE_CHECKING, Any

import torch

from kgen.evaluator.correctness.cases import Case, Draws, few_leaves, tensor_count
from kgen.evaluator.correctness.distributions import mixed, seed_of
from kgen.evaluator.correctness.tolerance import CLEAR_ERRORS, FIRST_INPUTS, INPUTS, Expected
from kgen.evaluator.runtime.arena import Arena, tensors
from kgen.protocol import Accuracy

if TYPE_CHECKING:
    from kgen.evaluator.correctness.oracle import Oracle

_SHORT_INPUT, _LONG_INPUT = (
    0.05,
    2.0,
)  # seconds of one input; above the first, few fresh ones are tried first; above the second, none


class FreshInputs:
    """Outputs of subjects for fresh inputs of a case, where outputs for the case's own input decide too little."""

    def __init__(self, oracle: "Oracle") -> None:
        self._oracle = oracle
        self._unclear: dict[str, dict[int, torch.Tensor]] = {}  # by subject: values that fresh inputs decide about
        self._drawn_into: dict[str, Arena] = {}  # by subject: memory for its outputs from fresh inputs

    def forget(self, subject: str) -> None:
        """Free all that is kept of a subject."""
        self._unclear.pop(subject, None)
        if (drawn := self._drawn_into.pop(subject, None)) is not None:
            drawn.close()

    def unclear(self, subject: str, case: Case, values: list[torch.Tensor], rows: list[dict[str, Any]]) -> int:
        """How many fresh inputs must tell whether the tensors of few errors are right; 0 where ``rows`` decide. Their
        ``values`` are kept. Random values are judged by many runs in another way."""
        numbers = [number for number, (e, row) in enumerate(zip(case.expected, rows)) if not e.is_clear(row)]
        wrong = any(not row["ok"] for number, row in enumerate(rows) if number not in numbers)
        oracle = self._oracle
        own = case.distribution is oracle.distributions[0]
        costly = case.seconds > _LONG_INPUT or (oracle.is_large and not own)  # the pool of its own inputs is there
        if not numbers or wrong or costly or oracle.random[case.mode] or oracle.accuracy is Accuracy.KERNELBENCH:
            return 0
        self._unclear[subject] = {number: values[number].clone() for number in numbers}
        tiny = any(case.expected[number].independent < CLEAR_ERRORS for number in numbers)
        return (INPUTS if own and tiny and case.seconds < _SHORT_INPUT else FIRST_INPUTS) - 1

    def of(self, case: Case) -> Draws:
        """The fresh inputs of a case: mixtures of two input sets that are changed like its own."""
        if case.draws is None:
            oracle = self._oracle
            arena, node, sets = oracle.pool_arena, oracle.pool_node, oracle.pool
            if (case.distribution.values, oracle.rows_of(case.distribution)) != ("given", oracle.rows):
                arena, node = Arena.holding([oracle.changed(case, given) for given in oracle.pool[:2]], oracle.place)
                sets = arena.read(node, oracle.device)
            keys = random.Random(oracle.secret + case.rng)
            few = [number for number, e in enumerate(case.expected[: tensor_count(case.outputs)]) if e.may_be_pooled]
            case.draws = Draws(sets, arena, node, [keys.getrandbits(48) for _ in range(INPUTS - 1)], few)
        return case.draws

    def memory(self, subject: str, case: Case) -> Arena:
        """Memory for the tensors of few errors that ``subject`` gives for the fresh inputs of a case."""
        draws = self.of(case)
        size = max(1, few_leaves(case, draws.numbers)[1]) * len(draws.keys)
        memory = self._drawn_into.get(subject)
        if memory is None or memory.size < size:
            if memory is not None:
                memory.close()
            memory = self._drawn_into[subject] = Arena.create(size, self._oracle.place)
        return memory

    def judge(self, subject: str, case: Case, count: int) -> tuple[list[dict[str, Any]], int]:
        """Figures over the case's own input and ``count`` fresh ones of each tensor that was unclear, by number, and
        how many inputs more must tell."""
        draws, kept, memory = self.of(case), self._unclear[subject], self._drawn_into[subject]
        while len(draws.expected) < count:
            draws.expected.append(self._expect_draw(case, draws, draws.keys[len(draws.expected)]))
        leaves_of, step = few_leaves(case, draws.numbers)
        found, more = [], 0
        for place, (number, leaf) in enumerate(zip(draws.numbers, leaves_of)):
            if number in kept:
                values = [
                    memory.read(leaf | {"offset": leaf["offset"] + turn * step}, self._oracle.device)
                    for turn in range(count)
                ]
                expected = case.expected[number]
                row = expected.pooled([kept[number], *values], [one[place] for one in draws.expected[:count]])
                found.append({"number": number} | row)
                if 1 + count < INPUTS and not expected.is_clear_together(row):
                    more = INPUTS - 1
        return found, more

    def _expect_draw(self, case: Case, draws: Draws, key: int) -> list[Expected]:
        """The expected values of the tensors of few errors for the inputs that ``key`` mixes."""
        inputs = mixed(draws.sets, key)
        oracle = self._oracle
        state = oracle.state(case.distribution, case.weights)
        exact, eager = (
            tensors(list(run(inputs, state, case.mode, seed_of(key))))
            for run in (oracle.reference.exact, oracle.reference.eager)
        )
        return [Expected.begun("", exact[number], eager[number]) for number in draws.numbers]
