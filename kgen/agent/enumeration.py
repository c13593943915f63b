"""Enumeration as a proposer: kgen's plans with their plainest parameters, then each parameter's other values for the
best of them."""

from __future__ import annotations

from typing import Iterator, Sequence

from kgen.agent.proposer import KGEN, Context, PlanChoices, Proposal, Proposals, Settings, Verdict


class Enumeration:
    """Proposes typed choices, one a round; after the plans, it changes one parameter of the fastest proposal at a
    time."""

    def __init__(self) -> None:
        self._told: list[Verdict] = []

    @classmethod
    def of(cls, settings: Settings) -> Enumeration:
        return cls()

    def propose(self, context: Context) -> Proposals:
        tried = [(v.proposal.plan, dict(v.proposal.params)) for v in self._told]
        return Proposals(next(((one,) for one in self._all(context) if (one.plan, dict(one.params)) not in tried), ()))

    def tell(self, verdicts: Sequence[Verdict]) -> None:
        self._told += verdicts

    def _all(self, context: Context) -> Iterator[Proposal]:
        for plan in context.plans:
            yield Proposal(KGEN, plan=plan.name, params=_plainest(plan))
        right = [v for v in self._told if v.ok and v.ms is not None]
        if right:
            best = min(right, key=lambda v: v.ms or 0.0).proposal
            plan = next((p for p in context.plans if p.name == best.plan), None)
            for kernel in plan.kernels if plan else ():
                for name, values in kernel.parameters.items():
                    yield from (Proposal(KGEN, plan=best.plan, params={**best.params, name: value}) for value in values)


def _plainest(plan: PlanChoices) -> dict[str, object]:
    return {name: values[0] for kernel in plan.kernels for name, values in kernel.parameters.items()}
