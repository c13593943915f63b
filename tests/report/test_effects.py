"""Which parameter matters: groups by value, their share of the spread, and pairs."""

from __future__ import annotations

import pytest
from histories import APART, FUSED, History

from kgen.store import effects
from kgen.store.effects import Parameter, Plan
from kgen.store.results import Trial
from kgen.views.report import sections


@pytest.fixture(autouse=True)
def ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks the parameters of any number of candidates."""
    monkeypatch.setattr(effects, "RANKED_FROM", 1)


def trials(history: History) -> tuple[Trial, ...]:
    [section] = sections.collect(history.database)
    return section.right


def only_plan(history: History) -> Plan:
    [plan] = effects.plans(trials(history), None)
    return plan


def parameter(history: History, name: str) -> Parameter:
    return next(item for item in only_plan(history).parameters if item.name == name)


def test_plans_begin_with_that_of_the_best_then_with_the_fastest(history: History) -> None:
    for plan, speedup in (("slow", 1.0), (APART, 1.5), (FUSED, 1.2)):
        history.add(speedup, plan)
    found = trials(history)
    chosen = next(trial for trial in found if trial.plan == FUSED)
    assert [plan.whole.name for plan in effects.plans(found, chosen)] == [FUSED, APART, "slow"]


def test_parameter_that_decides_alone_explains_all_and_one_without_effect_nothing(history: History) -> None:
    for block, speedup in ((128, 1.0), (256, 2.0)):
        for vec in (1, 2):
            history.add(speedup, block=block, vec=vec)
    shares = {item.name: item.share for item in only_plan(history).parameters}
    assert shares == {"k0.block": pytest.approx(1.0), "k0.vec": pytest.approx(0.0)}


def test_parameters_are_in_the_order_of_their_share(history: History) -> None:
    for speedup, block, vec in ((1.0, 128, 1), (1.1, 128, 2), (2.0, 256, 1), (2.1, 256, 2)):
        history.add(speedup, block=block, vec=vec)
    assert [item.name for item in only_plan(history).parameters] == ["k0.block", "k0.vec"]


def test_parameters_are_ranked_from_ten_candidates_on(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for place in range(9):
        history.add(1.0 + place, block=place % 2)
    assert only_plan(history).parameters == ()
    history.add(0.5, block=3)
    assert [item.name for item in only_plan(history).parameters] == ["k0.block"]


def test_groups_are_made_of_screenings_also_where_a_candidate_was_timed_again(history: History) -> None:
    history.make_final(history.add(1.2, block=128), 1.9, 2.0, 2.1)
    history.add(1.1, block=256)
    history.add_baselines(3.0)
    assert [group.middle for group in parameter(history, "k0.block").groups] == [1.2, 1.1]


def test_parameter_with_one_value_is_left_out(history: History) -> None:
    history.add(1.0, block=128, vec=4)
    history.add(1.1, block=256, vec=4)
    assert [item.name for item in only_plan(history).parameters] == ["k0.block"]


def test_values_are_in_the_order_of_numbers_with_words_behind(history: History) -> None:
    for value in ("auto", 1024, 128, 256):
        history.add(1.0, block=value)
    assert [group.name for group in parameter(history, "k0.block").groups] == ["128", "256", "1024", "auto"]


def test_candidate_without_the_parameter_is_in_a_group_of_its_own(history: History) -> None:
    history.add(1.0, block=128)
    history.add(1.1, vec=2)
    assert [group.name for group in parameter(history, "k0.block").groups] == ["128", "none"]


def test_group_has_quartiles_and_its_fastest(history: History) -> None:
    for number, speedup in enumerate((1.0, 1.1, 1.2, 1.3, 1.4)):
        history.add(speedup, block=128, number=number)
    whole = only_plan(history).whole
    assert (whole.count, whole.low, whole.middle, whole.high, whole.best.speedup) == (5, 1.1, 1.2, 1.3, 1.4)


def test_cell_counts_its_candidates_and_has_the_fastest(history: History) -> None:
    for number, speedup in enumerate((1.0, 1.3, 1.2)):
        history.add(speedup, block=128, vec=2, number=number)
    history.add(1.1, block=256, vec=1)
    plan = only_plan(history)
    places = {item.name: place for place, item in enumerate(plan.parameters)}
    first, second = sorted((places["k0.block"], places["k0.vec"]))
    cells = [(cell.count, cell.best.speedup) for cell in plan.pairs[first, second]]
    assert sorted(cells) == [(1, 1.1), (3, 1.3)]
