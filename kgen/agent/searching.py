"""The strategies of sweeps as proposers: a strategy asks for points, which are typed choices among kgen's own parts."""

from __future__ import annotations

from typing import Sequence

from kgen.agent.proposer import KGEN, Context, Proposal, Proposals, Settings, Verdict
from kgen.errors import InputError
from kgen.tuning.design import named
from kgen.tuning.search import STRATEGIES, TASKS, Point, Strategy


class Searching:
    """Proposes the points of a strategy, one a round. Its points follow from the answers, so that a continued run asks
    for the same."""

    def __init__(self, strategy: str, seed: int) -> None:
        if strategy not in STRATEGIES or strategy == TASKS:
            raise InputError(
                f"no strategy {strategy!r}: there are {', '.join(name for name in STRATEGIES if name != TASKS)}"
            )
        STRATEGIES[strategy].require()
        self._kind, self._seed = STRATEGIES[strategy], seed
        self._strategy: Strategy | None = None
        self._asked: Point | None = None
        self._waiting: list[float | None] = []  # answers that the strategy is not told yet

    @classmethod
    def of(cls, settings: Settings) -> Searching:
        return cls(settings.strategy, settings.seed)

    def propose(self, context: Context) -> Proposals:
        strategy = self._strategy = self._strategy or self._kind(
            [plan.option for plan in context.plans], self._seed, []
        )
        for ms in self._waiting:  # of an earlier process, the strategy first has to ask for their points again
            if (point := self._asked or strategy.ask()) is not None:
                strategy.tell(point, ms)
            self._asked = None
        self._waiting = []
        self._asked = strategy.ask() if context.plans else None
        if self._asked is None:
            return Proposals(())
        plan = context.plans[self._asked.option]
        chosen = (kernel[index] for kernel, index in zip(plan.option.kernels, self._asked.choice))
        return Proposals((Proposal(KGEN, plan=plan.name, params=named(plan.prefixes, chosen)),))

    def tell(self, verdicts: Sequence[Verdict]) -> None:
        self._waiting += [verdict.ms if verdict.ok else None for verdict in verdicts]
