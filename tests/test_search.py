"""The search: deterministic, never asks twice, asks for everything in the end, and improves each kernel by itself."""

from __future__ import annotations

import itertools

import pytest

from kgen.search import Option, Point, Search


def combinations(*sizes: int) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip("abc", values)) for values in itertools.product(*(range(s) for s in sizes)))


OPTIONS = (
    Option("one kernel", (combinations(3, 2),)),
    Option("two kernels", (combinations(2, 2), combinations(3))),
    Option("none", ()),
)


def value(point: Point) -> float:
    return 10.0 + point.option + sum(point.choice) % 5


def asked(search: Search, most: int = 1000, fail: bool = False) -> list[Point]:
    found = []
    for _ in range(most):
        point = search.ask()
        if point is None:
            return found
        search.tell(point, None if fail else value(point))
        found.append(point)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_and_answers_give_the_same_points(seed: int) -> None:
    assert asked(Search(OPTIONS, seed)) == asked(Search(OPTIONS, seed))


def test_another_seed_gives_another_order() -> None:
    assert len({tuple(asked(Search(OPTIONS, seed))) for seed in range(5)}) > 1


@pytest.mark.parametrize("seed", range(5))
def test_no_point_is_asked_for_twice(seed: int) -> None:
    found = asked(Search(OPTIONS, seed))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("seed", range(5))
def test_every_point_is_asked_for_in_the_end(seed: int) -> None:
    assert len(asked(Search(OPTIONS, seed))) == sum(o.size for o in OPTIONS)


@pytest.mark.parametrize("seed", range(20))
def test_last_points_of_a_large_option_are_found(seed: int) -> None:
    option = Option("large", (combinations(6, 6), combinations(6)))
    assert len(asked(Search([option], seed))) == option.size


def test_every_point_is_asked_for_where_all_fail() -> None:
    assert len(asked(Search(OPTIONS), fail=True)) == sum(o.size for o in OPTIONS)


def test_every_option_is_opened_with_its_plainest_point() -> None:
    assert asked(Search(OPTIONS), most=3) == [Point(0, (0,)), Point(1, (0, 0)), Point(2, ())]


def test_option_without_combinations_is_left_out() -> None:
    assert asked(Search([Option("nothing allowed", ((),)), Option("none", ())])) == [Point(1, ())]


def test_nothing_is_asked_without_options() -> None:
    assert Search([]).ask() is None


def test_points_can_be_asked_for_ahead_of_answers() -> None:
    search = Search(OPTIONS)
    found = [search.ask() for _ in range(sum(o.size for o in OPTIONS))]
    assert len(set(found)) == len(found) and search.ask() is None


def test_point_told_unasked_is_not_asked_for() -> None:
    search = Search(OPTIONS)
    asked(search, most=3)
    search.tell(Point(0, (5,)), 1.0)
    assert Point(0, (5,)) not in asked(search)


def test_kernels_are_improved_one_at_a_time() -> None:
    option = Option("two", (combinations(8), combinations(8)))
    search = Search([option])
    best, best_value = None, float("inf")
    for _ in range(15):  # every combination of each kernel once
        point = search.ask()
        if best is not None:
            assert sum(a != b for a, b in zip(point.choice, best)) == 1
        found = float(abs(point.choice[0] - 5) + abs(point.choice[1] - 3))
        search.tell(point, found)
        if found < best_value:
            best, best_value = point.choice, found
    assert best == (5, 3)


def test_faster_options_are_asked_for_more_often() -> None:
    options = [Option(name, (combinations(200),)) for name in ("slow", "fast")]
    search = Search(options)
    counts = [0, 0]
    for _ in range(100):
        point = search.ask()
        counts[point.option] += 1
        search.tell(point, 10.0 if point.option == 0 else 1.0)
    assert counts[1] > counts[0] > 0


def test_failed_points_are_no_better_than_slow_ones() -> None:
    options = [Option(name, (combinations(200),)) for name in ("fails", "works")]
    search = Search(options)
    counts = [0, 0]
    for _ in range(100):
        point = search.ask()
        counts[point.option] += 1
        search.tell(point, None if point.option == 0 else 1.0)
    assert counts[1] > counts[0] > 0


def test_size_is_the_product_of_the_kernels() -> None:
    assert [o.size for o in OPTIONS] == [6, 12, 1]
