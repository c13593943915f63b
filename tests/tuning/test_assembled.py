"""Points from the times of tasks: the best sum first, neighbours after it, more accurate variants after a refusal."""

from __future__ import annotations

from math import inf

from kgen.tuning.search import KernelSpace, Option, Point, Search
from kgen.tuning.search.assembled import Assembled, KernelTimes, OptionTimes


def space(name: str, count: int = 3) -> KernelSpace:
    return KernelSpace(name, [{"tile": n} for n in range(count)])


LAYER = space("layer")
OPTIONS = (
    Option("fused", (LAYER, LAYER, space("head"))),
    Option("apart", (LAYER, space("head"))),
    Option("none", ()),
)
LAYERS = KernelTimes("layer", (3.0, 1.0, 1.1), (0.2, 0.9, 0.3))
HEAD = KernelTimes("head", (0.5, inf, 2.0), (0.1, 0.1, 0.1))
TIMES = {0: OptionTimes((LAYERS, LAYERS, HEAD)), 1: OptionTimes((LAYERS, HEAD), 1.2), 2: OptionTimes((), 9.0)}


def assembled(**times: object) -> Assembled:
    return Assembled(OPTIONS, times=TIMES)


def test_best_assignment_of_each_near_plan_comes_first() -> None:
    strategy = assembled()
    assert [strategy.ask(), strategy.ask()] == [Point(0, (1, 1, 0)), Point(1, (1, 0))]


def test_equal_kernels_change_together() -> None:
    strategy = assembled()
    found = [strategy.ask() for _ in range(4)]
    assert Point(0, (2, 2, 0)) in found and Point(0, (2, 1, 0)) not in found


def test_variant_that_is_not_right_is_never_chosen() -> None:
    strategy = assembled()
    for _ in range(4):
        point = strategy.ask()
        assert point.choice[-1:] != (1,)


def test_answers_correct_the_sums() -> None:
    strategy = assembled()
    strategy.tell(strategy.ask(), 10.0)  # four times its sum
    strategy.tell(strategy.ask(), 2.7)
    assert strategy.ask().option == 1


def test_refused_assignment_comes_again_with_more_accurate_variants() -> None:
    search = Search(assembled(), ahead=1)
    point = search.ask()
    search.tell(point, None, refused=True)
    assert search.ask() == Point(0, (2, 2, 0))


def test_assignments_that_err_as_much_as_a_refused_one_come_last() -> None:
    coarse = OptionTimes((KernelTimes("layer", (1.0, inf, inf), (0.9, inf, inf)), HEAD))
    fine = OptionTimes((KernelTimes("other", (4.0, inf, inf), (0.4, inf, inf)), HEAD))
    options = tuple(Option(str(n), (space(str(n)), space("head"))) for n in range(3))
    strategy = Assembled(options, times={0: coarse, 1: coarse, 2: fine})
    first = strategy.ask()
    strategy.tell(first, None)
    strategy.refuse(first)
    assert strategy.ask().option == 2


def test_plans_with_other_rewrites_come_first_where_files_with_these_err_too_much() -> None:
    merged, apart = frozenset({"siblings_in_one"}), frozenset[str]()
    options = tuple(Option(str(n), (space(str(n), 1),), "", ms, rewrites) for n, (ms, rewrites) in enumerate([(1.0, merged)] * 5 + [(3.0, apart)]))
    search = Search(Assembled(options), ahead=1)
    found = []
    for _ in range(4):
        found.append(search.ask())
        search.tell(found[-1], None, refused=True)
    assert [point.option for point in found] == [0, 1, 2, 5]


def test_kernel_that_is_slower_inside_its_file_is_tuned_again_there() -> None:
    search = Search(assembled(), ahead=1)
    point = search.ask()
    search.tell(point, 4.5, inside=(2.0, 2.0, None))
    assert search.ask().choice[0] == 2


def test_kernel_that_is_as_fast_inside_its_file_stays() -> None:
    search = Search(assembled(), ahead=1)
    search.tell(search.ask(), 2.5, inside=(1.1, 1.1, 0.5))
    assert search.ask() == Point(1, (1, 0))


def test_other_variants_of_a_task_are_expected_to_be_slower_once_three_are() -> None:
    alone = KernelTimes("layer", (1.0, 1.0, 1.0, 2.0), (0.1,) * 4)
    assert alone.inside({0: 2.0, 1: 1.5}).ms == (2.0, 1.5, 1.0, 2.0)
    assert alone.inside({0: 2.0, 1: 1.5, 2: 1.8}).ms == (2.0, 1.5, 1.8, 3.0)
