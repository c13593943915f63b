"""A regression of the time on the parameters, fitted to every answer so far; the next point is its best guess."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations

from kgen.tuning.search.points import KernelSpace, Option, Point, distinct_kernels
from kgen.tuning.search.strategy import FAILED, Strategy

# Ridge penalties, in observations. A larger one draws the term closer to zero.
_PLAN = 0.1  # observations; a fusion plan
_SCHEDULE = 1.0  # observations; a parameter's value in all kernels of one schedule
_VALUE = 0.5  # observations; a parameter's value in one kernel
_PAIR = 2.0  # observations; two values together in one kernel
_COMBINATION = 2.0  # observations; one combination of a kernel

_CAP = 1.5  # log of the time over the fastest; slower answers are cut to it
_HOPE = 0.1  # log of the time; optimism about a term without observations
_OPENED = 4  # plans that are tried before the model chooses points, of those that are likely
_LIKELY = 1.6  # times the least predicted time of a plan; 129 of 132 winners of recorded GPU sweeps are within it
_BETWEEN = 3  # points that the model chooses before each later plan
_ROUNDS = 4  # Gauss-Seidel rounds per answer; the fit continues from the answer before


class Additive(Strategy):
    """Models the log of a point's time as a sum of terms.

    There is one term for the plan. For each kernel there are terms for its parameter values, for pairs of values, and
    for the combination. A ridge regression fits the terms one after another. Kernels of one schedule share terms of
    parameter values. Plans share the terms of common kernels.

    The next point has the least expected time, less an optimism for terms with few observations.

        opening      the first likely plans with each kernel's first combination; each later plan after some other
        points
        unanswered   while no plan has an answer, the next combination of each likely plan in turn
        then         the best point of the answered plans by the model, or that point with one kernel changed
    """

    name = "additive"

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        super().__init__(options, seed, first)
        self._numbers: dict[object, int] = {}  # the index of each term by its key
        self._ridge: list[float] = []
        self._plans = [self._term(n, _PLAN) for n in range(len(self.options))]
        least = min((option.predicted_ms for option in self.options if option.kernels), default=0.0)
        self._likely = [n for n, o in enumerate(self.options) if o.kernels and o.predicted_ms <= _LIKELY * least]
        self._kernels = {k: [self._terms(k, i) for i in range(len(k))] for k in distinct_kernels(self.options)}
        self._estimate = [0.0] * len(self._ridge)
        self._observed: dict[int, list[int]] = {}  # the answers that each term is in
        self._answers: list[tuple[list[int], float]] = []
        self._fitted = 0

    def _term(self, of: object, ridge: float) -> int:
        number = self._numbers.setdefault(of, len(self._ridge))
        if number == len(self._ridge):
            self._ridge.append(ridge)
        return number

    def _terms(self, kernel: KernelSpace, index: int) -> list[int]:
        """The terms of one combination of a kernel."""
        values, schedule = sorted(kernel[index].items()), kernel.name.partition("[")[0]
        terms = [self._term((kernel, index), _COMBINATION)]
        terms += [self._term((schedule, value), _SCHEDULE) for value in values]
        terms += [self._term((kernel, value), _VALUE) for value in values]
        return terms + [self._term((kernel, pair), _PAIR) for pair in combinations(values, 2)]

    def _terms_of(self, point: Point) -> list[int]:
        terms = [self._plans[point.option]]
        for kernel, index in zip(self.options[point.option].kernels, point.choice):
            terms += self._kernels[kernel][index]
        return terms

    def _learn(self, point: Point, ms: float) -> None:
        terms = self._terms_of(point)
        for term in terms:
            self._observed.setdefault(term, []).append(len(self._answers))
        self._answers.append((terms, ms))

    def _awaited(self) -> Counter[int]:
        """The number of unanswered points that each term is in."""
        return Counter(term for point in self.waiting for term in self._terms_of(point))

    def _next(self) -> Point | None:
        return (self.opening() if self._opens() else None) or self._expected_best() or self.opening()

    def _opens(self) -> bool:
        """Whether it is a new plan's turn. Plans come in the order of their predicted times, and few are worth a
        budget."""
        begun = [option for n, option in enumerate(self.options) if self._count[n]]
        at_first = min(_OPENED, len(self._likely) + sum(not option.kernels for option in begun))
        return len(begun) < at_first or len(self.asked) - len(begun) >= _BETWEEN * (len(begun) - at_first + 1)

    def _expected_best(self) -> Point | None:
        self._fit()
        open_options, known = self.open_options(), {point.option for point in self.told}
        if not known:
            return self._next_plainest(
                [n for n in open_options if self._count[n] and n in self._likely] or open_options
            )
        scores, best = self._scores(), None
        for number in filter(known.__contains__, open_options):
            found = self.cheapest(number, [scores[kernel] for kernel in self.options[number].kernels])
            total = found[0] + self._estimate[self._plans[number]] if found else math.inf
            if found and (best is None or total < best[0]):
                best = total, found[1]
        return best[1] if best else next(map(self.draw, open_options), None)

    def _next_plainest(self, open_options: Sequence[int]) -> Point | None:
        """The first point that was not asked for, of the plan with the fewest points asked for."""
        for number in sorted(open_options, key=self._count.__getitem__):
            if found := self.cheapest(number, [kernel.spread for kernel in self.options[number].kernels]):
                return found[1]
        return None

    def _fit(self) -> None:
        """Fit the terms to all answers: Gauss-Seidel on the normal equations of the ridge regression."""
        right = [ms for _, ms in self._answers if ms < FAILED]
        if not right or self._fitted == len(self._answers):
            return
        self._fitted = len(self._answers)
        most = math.log(min(right)) + _CAP
        logs = [min(math.log(ms), most) if ms < FAILED else most for _, ms in self._answers]
        mean, estimate = sum(logs) / len(logs), self._estimate
        rest = [
            y - mean - sum(map(estimate.__getitem__, terms)) for y, (terms, _) in zip(logs, self._answers, strict=True)
        ]
        for _ in range(_ROUNDS):
            for term, answers in self._observed.items():
                n, old = len(answers), estimate[term]
                new = (sum(map(rest.__getitem__, answers)) + n * old) / (n + self._ridge[term])
                estimate[term] = new
                for answer in answers:
                    rest[answer] -= new - old

    def _scores(self) -> dict[KernelSpace, list[float]]:
        """For each combination of each kernel, its part of the expected log time, less the optimism."""
        hope = _HOPE * self.random.random()
        value, awaited = self._estimate.__getitem__, self._awaited()
        seen = (len(self._observed.get(t, ())) + awaited[t] for t in range(len(self._ridge)))
        variance = [1.0 / (ridge + n) for ridge, n in zip(self._ridge, seen)].__getitem__
        return {
            kernel: [sum(map(value, terms)) - hope * math.sqrt(sum(map(variance, terms))) for terms in combined]
            for kernel, combined in self._kernels.items()
        }
