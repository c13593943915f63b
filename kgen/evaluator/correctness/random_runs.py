"""Random outputs are judged by the moments of many runs."""

import itertools
from typing import TYPE_CHECKING, Any

import torch

from kgen.evaluator.correctness import moments
from kgen.evaluator.correctness.cases import Case
from kgen.evaluator.runtime.arena import tensors

if TYPE_CHECKING:
    from kgen.evaluator.correctness.oracle import Oracle


class RandomRuns:
    """The runs of subjects under random numbers of their own, and of an oracle's reference under secret seeds."""

    def __init__(self, oracle: "Oracle") -> None:
        self._oracle = oracle
        self._runs: dict[str, list[list[Any]]] = {}  # by subject: each run's tensors

    def forget(self, subject: str) -> None:
        """Free the runs of a subject."""
        self._runs.pop(subject, None)

    def add(self, subject: str, case: Case, values: list[torch.Tensor], count: int) -> dict[str, Any]:
        """Keep a run of a subject, the first under the case's own seed. Of ``count`` runs, the figures of each tensor,
        and whether their random numbers are PyTorch's."""
        spreads, runs = self.spreads(case, moments.MANY), self._runs.setdefault(subject, [])
        runs.append(
            [
                e.judge(value, self._oracle.accuracy) if spread is None else moments.sampled(value)
                for spread, e, value in zip(spreads, case.expected, values)
            ]
        )
        if len(runs) < count:
            return {}
        every = list(zip(spreads, case.expected, zip(*self._runs.pop(subject))))
        rows = [
            (moments.worst(found) if spread is None else spread.judge(found, self._oracle.accuracy))
            | {"output": e.name}
            for spread, e, found in every
        ]
        same = any(spread.same_numbers(found[0], moments.sampled(e.exact)) for spread, e, found in every if spread)
        return {"rows": rows, "same_numbers": same}

    def spreads(self, case: Case, eager_runs: int) -> list[moments.Spread | None]:
        """The spread of the random values of ``case``, from runs of the reference under secret seeds."""
        if not case.spreads:
            oracle = self._oracle
            state, seeds = oracle.state(case.distribution, case.weights), itertools.count(oracle.secret + 1)
            exact, eager = (
                [
                    list(map(moments.sampled, tensors(list(run(case.inputs, state, case.mode, next(seeds))))))
                    for _ in range(count)
                ]
                for run, count in ((oracle.reference.exact, moments.EXACT), (oracle.reference.eager, eager_runs))
            )
            case.spreads = [
                None if e.skipped else moments.Spread.of(*found)
                for e, *found in zip(case.expected, zip(*exact), zip(*eager))
            ]
        return case.spreads
