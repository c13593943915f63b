"""Points put together from the times of kernel tasks: a plan's time is the sum of its tasks', each at its best variant.

    first        the best assignment of each likely plan
    then         a plan's next assignments: one task with another of its fast variants, in all of its kernels
    slower       a variant that takes over 1.15 times its time inside a file has that time from then on
    refused      an assignment that errs too much comes again with more accurate variants; others that err as much
                 come last, and so do plans with the same rewrites where none was right

Answers correct the sums: a plan whose file took 1.2 times its sum is expected to do so again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median

from kgen.candidate import ParamValue
from kgen.tuning.search.points import Choice, KernelSpace, Option, Point
from kgen.tuning.search.strategy import FAILED, Strategy

_SLOWER = 1.15  #: times a variant's time alone; with more inside a file, its task is tuned again there
_ALONE = 3  #: variants of a task that are seen inside files; the others are expected to be slower there, too
_NEAR = 1.25  #: times the best sum; plans within it are tried before any plan's second assignment
_ALIKE = 1.15  #: times a task's best; variants within it may be better in the file
_OTHERS = 3  #: variants of a task besides its best
_REFUSALS = 3  #: files that err too much, none of them right; then plans with other rewrites come first
_LESS = 0.7  #: of an error; a variant with no more is more accurate


@dataclass(frozen=True)
class KernelTimes:
    """The times of a kernel's combinations in milliseconds, infinite where one is not right; its task.

    ``errors`` are shares of what the task is allowed.
    """

    task: str
    ms: tuple[float, ...]
    errors: tuple[float, ...]

    def inside(self, known: Mapping[int, float]) -> KernelTimes:
        """The times, with some combinations' times inside files in their place."""
        least = min(ms / self.ms[index] for index, ms in known.items()) if len(known) >= _ALONE else 1.0
        return replace(self, ms=tuple(known.get(index, least * ms) for index, ms in enumerate(self.ms)))


@dataclass(frozen=True)
class OptionTimes:
    """The times of a plan's kernels, and of everything else in it."""

    kernels: tuple[KernelTimes, ...]
    rest_ms: float = 0.0

    def total(self, choice: Choice) -> float:
        """Milliseconds of an assignment: the sum over all steps."""
        return self.rest_ms + sum(of.ms[index] for of, index in zip(self.kernels, choice))

    def error(self, choice: Choice) -> float:
        """The largest error of an assignment's tasks."""
        return max((of.errors[index] for of, index in zip(self.kernels, choice)), default=0.0)

    def inside(self, option: Option, known: Mapping[tuple[str, KernelSpace], Mapping[int, float]]) -> OptionTimes:
        """The times, with the times inside files of variants that are slower there. :data:`_ALONE` says what becomes of
        a task's other variants."""
        kernels = [
            of.inside(known[of.task, space]) if (of.task, space) in known else of
            for of, space in zip(self.kernels, option.kernels)
        ]
        return OptionTimes(tuple(kernels), self.rest_ms)


class Assembled(Strategy):
    """Proposes assignments by the sum of their tasks' times; ``times`` has the times of plans whose tasks were tuned.

    Without ``times``, kernels are alike, and the plans' predictions decide.
    """

    name = "tasks"

    def __init__(
        self,
        options: Sequence[Option],
        seed: int = 0,
        first: Iterable[Point] = (),
        times: Mapping[int, OptionTimes] | None = None,
    ) -> None:
        super().__init__(options, seed, first)
        self.times = (
            {n: _predicted(option) for n, option in enumerate(self.options) if option.size}
            if times is None
            else dict(times)
        )
        self._alone = dict(self.times)
        self._inside: dict[tuple[str, KernelSpace], dict[int, float]] = {}  # by task: milliseconds by combination
        self._assignments = {n: _Ahead(_assignments(self.options[n], of)) for n, of in self.times.items()}
        self._more_accurate: deque[Point] = deque()
        self._too_large = inf  # the least error of an assignment that was refused
        self._refused: Counter[frozenset[str]] = Counter()  # files that err too much, by their plans' rewrites

    def refuse(self, point: Point) -> None:
        """A point's file errs too much: it comes again with more accurate variants of the tasks that err most."""
        self._refused[self.options[point.option].rewrites] += 1
        if point.option in self.times:
            self._too_large = min(self._too_large, self.times[point.option].error(point.choice))
            self._more_accurate.extend(_more_accurate(self.options[point.option], self.times[point.option], point))

    def see_inside(self, point: Point, kernels: Sequence[float | None]) -> None:
        """Tune those tasks again whose kernels are slower inside the point's file than alone."""
        if point.option not in self._alone:
            return
        slower: dict[tuple[str, KernelSpace], dict[int, float]] = {}
        of = zip(self._alone[point.option].kernels, self.options[point.option].kernels, point.choice, kernels)
        for alone, space, index, ms in of:
            if ms is not None and ms > _SLOWER * alone.ms[index]:
                slower.setdefault((alone.task, space), {})[index] = ms
        for key, found in slower.items():
            self._inside.setdefault(key, {}).update(found)
        for number, times in self._alone.items() if slower else ():
            if any((of.task, space) in slower for of, space in zip(times.kernels, self.options[number].kernels)):
                self.times[number] = times.inside(self.options[number], self._inside)
                self._assignments[number] = _Ahead(_assignments(self.options[number], self.times[number]))

    def _next(self) -> Point | None:
        doubtful = self._doubtful()
        while self._more_accurate:
            point = self._more_accurate.popleft()
            if point not in self.asked and self.options[point.option].rewrites not in doubtful:
                return point
        heads = {n: head for n, ahead in self._assignments.items() if (head := ahead.head(self._is_new(n))) is not None}
        if not heads:
            return self.opening() or next(map(self.draw, self.open_options()), None)
        heads = {n: choice for n, choice in heads.items() if self.options[n].rewrites not in doubtful} or heads
        right = {n: choice for n, choice in heads.items() if self.times[n].error(choice) < self._too_large}
        heads = right or heads
        expected = {n: self.times[n].total(choice) * self._ratio(n) for n, choice in heads.items()}
        least = min(expected.values())
        untried = [n for n in heads if not self._count[n] and expected[n] <= _NEAR * least]
        number = min(untried or heads, key=lambda n: (expected[n], n))
        return Point(number, heads[number])

    def _doubtful(self) -> set[frozenset[str]]:
        """Rewrites of plans whose files err too much, so that the rewrites may be the cause."""
        right = {self.options[point.option].rewrites for point, ms in self.told.items() if ms < FAILED}
        return {rewrites for rewrites, count in self._refused.items() if count >= _REFUSALS} - right

    def _is_new(self, number: int) -> frozenset[Choice]:
        return frozenset(point.choice for point in self.asked if point.option == number)

    def _ratio(self, number: int) -> float:
        """A file's time over the sum of its tasks': the least that this plan had, else the usual one."""
        ratios: dict[int, list[float]] = {}
        for point, ms in self.told.items():
            total = self.times[point.option].total(point.choice) if point.option in self.times else 0.0
            if ms < FAILED and 0.0 < total < inf:
                ratios.setdefault(point.option, []).append(ms / total)
        if number in ratios:
            return min(ratios[number])
        return median(map(min, ratios.values())) if ratios else 1.0


class _Ahead:
    """Assignments with the next one known."""

    def __init__(self, found: Iterator[Choice]) -> None:
        self._found, self._next = found, next(found, None)

    def head(self, asked: frozenset[Choice]) -> Choice | None:
        """The first assignment that was not asked for."""
        while self._next is not None and self._next in asked:
            self._next = next(self._found, None)
        return self._next


def _predicted(option: Option) -> OptionTimes:
    """A plan of which no task was tuned: simple combinations first."""
    kernels = [KernelTimes(str(id(k)), tuple(1e-9 * n for n in range(len(k))), (0.0,) * len(k)) for k in option.kernels]
    return OptionTimes(tuple(kernels), option.predicted_ms)


def _assignments(option: Option, times: OptionTimes) -> Iterator[Choice]:
    """The best assignment for each value of the common parameter, then the best one with another variant of a task."""
    best = sorted(
        (choice for value in option.values if (choice := _best(option, times, value)) is not None), key=times.total
    )
    yield from best[:1]
    others = [choice for first in best[:1] for choice in _neighbours(option, times, first)]
    yield from sorted((*best[1:], *others), key=times.total)


def _best(option: Option, times: OptionTimes, value: ParamValue | None) -> Choice | None:
    choice = []
    for number, of in enumerate(times.kernels):
        index = min(option.indices(number, value), key=lambda i: (of.ms[i], i), default=None)
        if index is None or of.ms[index] == inf:
            return None
        choice.append(index)
    return tuple(choice)


def _neighbours(option: Option, times: OptionTimes, best: Choice) -> Iterator[Choice]:
    """The assignment with another fast variant of one task, in all kernels that are this task."""
    value = _common(option, best)
    for task in dict.fromkeys(of.task for of in times.kernels):
        places = [n for n, of in enumerate(times.kernels) if of.task == task]
        first = places[0]
        ms = times.kernels[first].ms
        fast = sorted(i for i in option.indices(first, value) if i != best[first] and ms[i] <= _ALIKE * ms[best[first]])
        for index in sorted(fast, key=ms.__getitem__)[:_OTHERS]:
            yield _with(option, times, best, places, option.kernels[first][index].items())


def _with(
    option: Option, times: OptionTimes, choice: Choice, places: Sequence[int], params: Iterable[tuple[str, ParamValue]]
) -> Choice:
    """The choice with these parameters in some kernels; a kernel whose space lacks them stays."""
    wanted, found = dict(params), list(choice)
    for place in places:
        index = next((i for i, of in enumerate(option.kernels[place]) if of == wanted), None)
        if index is not None and times.kernels[place].ms[index] < inf:
            found[place] = index
    return tuple(found)


def _common(option: Option, choice: Choice) -> ParamValue | None:
    """The value of the common parameter in a choice."""
    return next((k[i][option.common] for k, i in zip(option.kernels, choice) if option.common in k[i]), None)


def _more_accurate(option: Option, times: OptionTimes, point: Point) -> Iterator[Point]:
    """The point with more accurate variants of the tasks that err most: first for half of these tasks, then for all."""
    value, better = _common(option, point.choice), {}
    for number, (of, index) in enumerate(zip(times.kernels, point.choice)):
        accurate = [
            i for i in option.indices(number, value) if of.ms[i] < inf and of.errors[i] <= _LESS * of.errors[index]
        ]
        if accurate:
            better[number] = min(accurate, key=lambda i: (of.ms[i], i))
    suspicious = sorted(
        dict.fromkeys(times.kernels[n].task for n in better), key=lambda task: -_error(times, point, task)
    )
    for count in dict.fromkeys((-(-len(suspicious) // 2), len(suspicious))) if suspicious else ():
        changed = set(suspicious[:count])
        found = (better.get(n, i) if times.kernels[n].task in changed else i for n, i in enumerate(point.choice))
        yield Point(point.option, tuple(found))


def _error(times: OptionTimes, point: Point, task: str) -> float:
    return max(of.errors[i] for of, i in zip(times.kernels, point.choice) if of.task == task)
