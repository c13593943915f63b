"""Strategies: deterministic, never ask twice, ask for everything or for a sum of it; and answers in any order."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from kgen import cli
from kgen.devices.kinds import KINDS
from kgen.errors import InputError
from kgen.problems.problem import Problem
from kgen.tuning.opening import SweepRequest
from kgen.tuning.search import STRATEGIES, KernelSpace, Option, Point, Search, Strategy, chosen, distinct_kernels
from kgen.tuning.sweep import _Sweep


def kernel(name: str, *sizes: int) -> KernelSpace:
    return KernelSpace(name, [dict(zip("abc", values)) for values in itertools.product(*(range(s) for s in sizes))])


SHARED = kernel("inner_reduction", 3)
OPTIONS = (
    Option("one kernel", (kernel("pointwise", 3, 2),)),
    Option("two kernels", (kernel("outer_reduction", 2, 2), SHARED)),
    Option("none", ()),
    Option("shares a kernel", (kernel("contraction", 2), SHARED)),
)
SIZE = 6 + 12 + 1 + 6

NEEDS = {"tpe": pytest.mark.skipif(find_spec("optuna") is None, reason="Optuna is not installed")}
NAMES = [pytest.param(name, marks=NEEDS.get(name, ())) for name in STRATEGIES]
EVERY = pytest.mark.parametrize("name", NAMES)
#: Those that ask for every point in the end.
WHOLE = pytest.mark.parametrize("name", [name for name in NAMES if name.values != ("exhaustive",)])
SEEDS = pytest.mark.parametrize("seed", range(3))


def value(point: Point) -> float:
    return 10.0 + point.option + sum(point.choice) % 5


def asked(
    strategy: Strategy | Search, most: int = 1000, fail: bool = False, times: Mapping[Point, float] | None = None
) -> list[Point]:
    """What is asked for where each answer comes before the next question."""
    found: list[Point] = []
    while len(found) < most and (point := strategy.ask()) is not None:
        strategy.tell(point, None if fail else times[point] if times else value(point))
        found.append(point)
    return found


def additive(options: Sequence[Option], seed: int = 0) -> dict[Point, float]:
    """Times of all points in which each kernel has its share, whatever the others are."""
    draw = random.Random(seed)
    shares = {k: [draw.uniform(1, 9) for _ in k] for k in distinct_kernels(options)}
    return {
        Point(n, choice): n + 1 + sum(shares[k][i] for k, i in zip(option.kernels, choice))
        for n, option in enumerate(options)
        for choice in option.choices()
    }


def product_of_parts(options: Sequence[Option], seed: int) -> dict[Point, float]:
    """Times of all points in which each value of a kernel's parameters makes the kernel slower by a factor."""
    draw = random.Random(seed)
    slower: dict[object, float] = {}

    def ms(of: KernelSpace, index: int) -> float:
        factors = (slower.setdefault((of, value), draw.uniform(1, 2)) for value in of[index].items())
        return 10.0 * math.prod(factors)

    return {
        Point(n, choice): 5.0 * n + sum(ms(k, i) for k, i in zip(option.kernels, choice))
        for n, option in enumerate(options)
        for choice in option.choices()
    }


# Every strategy --------------------------------------------------------------------------------------------------


@EVERY
@SEEDS
def test_same_seed_and_answers_give_the_same_points(name: str, seed: int) -> None:
    strategy = STRATEGIES[name]
    assert asked(strategy(OPTIONS, seed)) == asked(strategy(OPTIONS, seed))


@WHOLE
def test_another_seed_gives_another_order(name: str) -> None:
    assert len({tuple(asked(STRATEGIES[name](OPTIONS, seed))) for seed in range(5)}) > 1


@EVERY
@SEEDS
def test_no_point_is_asked_for_twice(name: str, seed: int) -> None:
    found = asked(STRATEGIES[name](OPTIONS, seed))
    assert len(set(found)) == len(found)


@WHOLE
@SEEDS
@pytest.mark.parametrize("fail", [False, True])
def test_every_point_is_asked_for_in_the_end(name: str, seed: int, fail: bool) -> None:
    assert len(asked(STRATEGIES[name](OPTIONS, seed), fail=fail)) == SIZE


@WHOLE
def test_last_points_of_a_large_option_are_found(name: str) -> None:
    option = Option("large", (kernel("a", 6, 6), kernel("b", 6)))
    assert len(asked(STRATEGIES[name]([option]))) == option.size


@EVERY
def test_option_without_combinations_is_left_out(name: str) -> None:
    options = [Option("nothing allowed", (KernelSpace("inner_reduction", ()),)), Option("none", ())]
    assert asked(STRATEGIES[name](options)) == [Point(1, ())]


@EVERY
def test_nothing_is_asked_without_options(name: str) -> None:
    assert STRATEGIES[name]([]).ask() is None


@EVERY
def test_points_are_asked_for_ahead_of_answers(name: str) -> None:
    strategy = STRATEGIES[name](OPTIONS)
    found = [strategy.ask() for _ in range(len(OPTIONS) + 4)]
    assert None not in found and len(set(found)) == len(found)


@EVERY
def test_point_told_unasked_is_not_asked_for(name: str) -> None:
    strategy = STRATEGIES[name](OPTIONS)
    strategy.tell(Point(0, (5,)), 1.0)
    assert Point(0, (5,)) not in asked(strategy)


@EVERY
def test_first_points_are_asked_for_first_and_once(name: str) -> None:
    first = [Point(1, (2, 1)), Point(0, (4,)), Point(1, (2, 1))]
    found = asked(STRATEGIES[name](OPTIONS, first=first))
    assert found[:2] == first[:2] and len(set(found)) == len(found)


def test_command_line_offers_every_strategy() -> None:
    assert cli.sweep.STRATEGIES == tuple(STRATEGIES)


# Exhaustive: a sum, not a product --------------------------------------------------------------------------------


def test_exhaustive_tries_every_combination_of_every_kernel() -> None:
    found = asked(STRATEGIES["exhaustive"](OPTIONS))
    tried = {(k, i) for p in found for k, i in zip(OPTIONS[p.option].kernels, p.choice)}
    assert tried == {(k, i) for k in distinct_kernels(OPTIONS) for i in range(len(k))}


def test_exhaustive_opens_every_option_with_its_plainest_point() -> None:
    assert asked(STRATEGIES["exhaustive"](OPTIONS), most=4) == [
        Point(0, (0,)), Point(1, (0, 0)), Point(2, ()), Point(3, (0, 0)),
    ]  # fmt: skip


def test_exhaustive_asks_for_a_sum_of_points() -> None:
    options = [Option("long", tuple(kernel(str(n), 6, 6) for n in range(4)))]
    found = asked(STRATEGIES["exhaustive"](options))
    assert len(found) <= STRATEGIES["exhaustive"].most(options) <= 4 * 36 + 2
    assert options[0].size == 36**4


def test_exhaustive_alone_has_an_end_before_every_point() -> None:
    assert {name for name, strategy in STRATEGIES.items() if strategy.most(OPTIONS) is not None} == {"exhaustive"}


@pytest.mark.parametrize("seed", range(10))
def test_exhaustive_finds_the_best_of_kernels_that_do_not_influence_each_other(seed: int) -> None:
    times = additive(OPTIONS, seed)
    strategy = STRATEGIES["exhaustive"](OPTIONS)
    found = []
    while (point := strategy.ask()) is not None:
        strategy.tell(point, times[point])
        found.append(point)
    assert min(times, key=times.__getitem__) in found


def test_exhaustive_waits_for_answers_before_it_combines_the_bests() -> None:
    strategy = STRATEGIES["exhaustive"]([OPTIONS[1]])
    found = list(iter(strategy.ask, None))
    assert len(found) == 1 + 3 + 2
    for point in found:
        strategy.tell(point, 9.0 - sum(point.choice))
    assert strategy.ask() == Point(0, (3, 2)) and strategy.ask() is None


def test_exhaustive_is_chosen_where_the_sum_fits_the_budget() -> None:
    most = STRATEGIES["exhaustive"].most(OPTIONS)
    assert chosen(OPTIONS, most) == "exhaustive" != chosen(OPTIONS, most - 1)


# A parameter that all kernels of a file have in common -----------------------------------------------------------

WIDE = [{"tile": t, "bits": b} for t in (1, 2, 4) for b in (512, 256)]
FILE = Option("file", (KernelSpace("pointwise", WIDE), KernelSpace("inner_reduction", WIDE[:4]), kernel("contraction", 2)), common="bits")


def values_in_common(point: Point) -> set[int]:
    return {k[i]["bits"] for k, i in zip(FILE.kernels, point.choice) if "bits" in k[i]}


@EVERY
def test_kernels_have_the_same_value_of_a_common_parameter(name: str) -> None:
    assert all(len(values_in_common(point)) == 1 for point in asked(STRATEGIES[name]([FILE])))


@EVERY
def test_kernels_of_the_same_name_and_other_values_are_told_apart(name: str) -> None:
    other = Option("other", (KernelSpace("pointwise", [{"tile": 8, "bits": 256}, {"tile": 16, "bits": 512}]),), common="bits")
    found = asked(STRATEGIES[name]([FILE, other]))
    assert len({point for point in found if point.option == 1}) == 2


@EVERY
def test_every_value_of_a_common_parameter_is_tried(name: str) -> None:
    assert {v for p in asked(STRATEGIES[name]([FILE])) for v in values_in_common(p)} == {512, 256}


def test_size_counts_points_with_one_value_of_a_common_parameter() -> None:
    assert FILE.size == 2 * (3 * 2 * 2) == len(set(FILE.choices()))


def test_other_kernels_follow_a_change_of_a_common_parameter() -> None:
    changed = FILE.changed((2, 0, 1), 1, 3)
    assert [k[i] for k, i in zip(FILE.kernels, changed)] == [{"tile": 2, "bits": 256}, {"tile": 2, "bits": 256}, {"a": 1}]


def test_size_is_the_product_of_the_kernels() -> None:
    assert [option.size for option in OPTIONS] == [6, 12, 1, 6]


# What learns -----------------------------------------------------------------------------------------------------


def test_coordinate_changes_one_kernel_at_a_time() -> None:
    option = Option("two", (kernel("a", 8), kernel("b", 8)))
    strategy = STRATEGIES["coordinate"]([option])
    best, best_value = None, float("inf")
    for _ in range(15):  # every combination of each kernel once
        point = strategy.ask()
        assert point is not None
        if best is not None:
            assert sum(a != b for a, b in zip(point.choice, best)) == 1
        found = float(abs(point.choice[0] - 5) + abs(point.choice[1] - 3))
        strategy.tell(point, found)
        if found < best_value:
            best, best_value = point.choice, found
    assert best == (5, 3)


@pytest.mark.parametrize("slow", [10.0, None])
def test_coordinate_asks_for_faster_options_more_often(slow: float | None) -> None:
    options = [Option(name, (kernel(name, 200),)) for name in ("slow", "fast")]
    strategy = STRATEGIES["coordinate"](options)
    counts = [0, 0]
    for _ in range(100):
        point = strategy.ask()
        assert point is not None
        counts[point.option] += 1
        strategy.tell(point, slow if point.option == 0 else 1.0)
    assert counts[1] > counts[0] > 0


@SEEDS
def test_additive_finds_the_best_of_thousands_in_a_few_dozen(seed: int) -> None:
    options = [Option(f"plan {n}", (kernel(f"inner_reduction[{n}]", 4, 4, 4), kernel("pointwise", 4, 4))) for n in range(3)]
    times = product_of_parts(options, seed)
    found = asked(STRATEGIES["additive"](options, seed), most=60, times=times)
    assert len(times) == 3072
    assert min(times[point] for point in found) <= 1.02 * min(times.values())


def test_additive_learns_of_a_kernel_in_every_plan_that_has_it() -> None:
    row = kernel("inner_reduction", 8)
    options = [Option("a", (row,)), Option("b", (kernel("pointwise", 2), row))]
    strategy = STRATEGIES["additive"](options)
    for index in range(8):
        strategy.tell(Point(0, (index,)), 1.0 if index == 5 else 9.0)
    assert strategy.ask() == Point(1, (0, 0))
    strategy.tell(Point(1, (0, 0)), 8.0)
    point = strategy.ask()
    assert point is not None and (point.option, point.choice[1]) == (1, 5)


def test_additive_takes_plans_in_turn_while_nothing_is_known() -> None:
    strategy = STRATEGIES["additive"](OPTIONS)
    points = [strategy.ask() for _ in range(7)]
    assert [p.option for p in points if p] == [0, 1, 2, 3, 0, 1, 3]


def test_additive_tunes_the_plans_that_are_predicted_fast_while_nothing_is_known() -> None:
    predicted = (2.0, 3.1, 3.3, 1.0)  # the last one is the library's
    options = [*(Option(f"plan {n}", (kernel(str(n), 4),), predicted_ms=ms) for n, ms in enumerate(predicted[:3])), Option("none", (), predicted_ms=1.0)]
    strategy = STRATEGIES["additive"](options)
    points = [point for _ in range(12) if (point := strategy.ask())]
    assert [p.option for p in points] == [0, 1, 0, 1, 0, 2, 1, 0, 1, 3, 2, 2]


@pytest.mark.parametrize(("second", "of_first"), [(3.1, 5), (3.3, 6)])
def test_additive_opens_unlikely_plans_after_some_points_of_likely_ones(second: float, of_first: int) -> None:
    plans = [Option(f"plan {n}", (kernel(str(n), 9),), predicted_ms=ms) for n, ms in enumerate((2.0, second, 9.0))]
    strategy = STRATEGIES["additive"]([*plans, Option("none", ())], first=[Point(3, ())])
    found = asked(strategy, most=8, times=defaultdict(lambda: 5.0) | {Point(0, (n,)): 1.0 for n in range(9)})
    assert (found[0].option, sum(point.option == 0 for point in found)) == (3, of_first)


def test_additive_changes_two_values_at_a_time_while_nothing_is_known() -> None:
    strategy = STRATEGIES["additive"]([Option("a", (kernel("inner_reduction", 2, 2, 2),))])
    points = [point for _ in range(6) if (point := strategy.ask())]
    assert [point.choice for point in points] == [(0,), (3,), (5,), (6,), (1,), (2,)]


def test_additive_goes_on_with_the_plans_that_something_is_known_of() -> None:
    strategy = STRATEGIES["additive"](OPTIONS)
    points = [point for _ in OPTIONS if (point := strategy.ask())]
    strategy.tell(points[0], 5.0)
    assert {point.option for _ in range(3) if (point := strategy.ask())} == {points[0].option}


def test_tpe_is_refused_in_one_line_where_optuna_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgen.tuning.search.tpe.find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install 'kgen.optuna.'"):
        STRATEGIES["tpe"].require()


# Many points on their way ----------------------------------------------------------------------------------------


def asked_by_several(name: str, ahead: int, order: random.Random) -> list[Point]:
    """What is asked for where as many points as allowed are on their way, and any of them is done with next."""
    search, found, running = Search(STRATEGIES[name](OPTIONS, seed=1), ahead), [], []
    while True:
        while (point := search.ask()) is not None:
            running.append(point)
            found.append(point)
        if not running:
            return found
        done = running.pop(order.randrange(len(running)))
        search.tell(done, value(done))


@EVERY
@pytest.mark.parametrize("ahead", [2, 7])
def test_points_do_not_depend_on_which_answer_comes_first(name: str, ahead: int) -> None:
    runs = {tuple(asked_by_several(name, ahead, random.Random(n))) for n in range(4)}
    assert len(runs) == 1


@WHOLE
def test_every_point_is_asked_for_where_answers_come_in_any_order(name: str) -> None:
    assert len(asked_by_several(name, 5, random.Random(0))) == SIZE


@EVERY
def test_no_more_points_are_on_their_way_than_allowed(name: str) -> None:
    search = Search(STRATEGIES[name](OPTIONS), 3)
    assert len(list(itertools.takewhile(bool, iter(search.ask, 0)))) == 3


@EVERY
def test_one_point_ahead_is_what_the_strategy_asks_by_itself(name: str) -> None:
    assert asked(Search(STRATEGIES[name](OPTIONS), 1)) == asked(STRATEGIES[name](OPTIONS))


@pytest.mark.parametrize(("budget", "strategy"), [(None, "exhaustive"), (3, "additive")])
def test_a_sweep_that_asks_for_no_strategy_has_one(budget: int | None, strategy: str) -> None:
    problem = Problem("made_up", "made_up.py", "")
    design = SimpleNamespace(options=OPTIONS, hardware=SimpleNamespace(device_type="cpu"), promising=True)
    sweep = _Sweep(SweepRequest(problem, budget=budget), None, SimpleNamespace(first=None), design, print, 0.0)  # type: ignore[arg-type]
    assert (sweep.strategy, sweep.budget) == (strategy, budget or KINDS["cpu"].budget)
