"""What the charts are given: errors over PyTorch's, limits, best so far, ceilings, and fewer points where many are."""

from __future__ import annotations

import random

import pytest
from histories import APART, FUSED, ROOFLINE, History, fill
from samples import Filled, candidate, environment

from kgen.protocol import KERNELBENCH_TOLERANCE, RMS_FACTOR, Accuracy, Status
from kgen.store import Database
from kgen.views.report import ceilings, leaders, rows, sections
from kgen.views.report.page import FULL
from kgen.views.report.sections import Section
from kgen.views.report.thinning import thin

CELLS = FULL.cells
EAGER_RMS = 2e-6  #: of the evaluations in ``samples``


def one(history: History) -> Section:
    [section] = sections.collect(history.database)
    return section


def test_point_has_its_error_over_that_of_pytorch(history: History) -> None:
    history.add(1.2, error=0.25)
    [point] = rows.points(one(history), CELLS)
    assert (point.speedup, point.error, point.relative) == (1.2, pytest.approx(0.25), "0.25x")


def test_classes_of_accuracy_share_the_axis_of_float32(history: History) -> None:
    history.add(1.2, error=1.0)
    History(history.database, accuracy=Accuracy.TF32).add(1.7, error=1.5)
    errors = {point.accuracy: point.error for point in rows.points(one(history), CELLS)}
    assert errors == {Accuracy.FP32: pytest.approx(1.0), Accuracy.TF32: pytest.approx(1.5)}


def test_candidate_without_an_error_figure_is_no_point(history: History) -> None:
    history.add(1.2, error=0.0)
    assert rows.points(one(history), CELLS) == ()


def test_wrong_candidate_is_no_point(history: History) -> None:
    history.add(1.2)
    history.add(None, status=Status.WRONG_VALUES, error=5.0)
    assert len(rows.points(one(history), CELLS)) == 1


def test_limits_near_the_points_are_lines_and_those_far_away_words(history: History) -> None:
    history.add(1.2)
    section = one(history)
    limits, beyond = rows.limits(section, rows.points(section, CELLS))
    far = KERNELBENCH_TOLERANCE / EAGER_RMS
    assert [(limit.label, limit.error) for limit in limits] == [
        ("PyTorch's own error", 1.0),
        ("most that fp32 allows", RMS_FACTOR),
        ("most that kernelbench allows", pytest.approx(far)),
    ]
    assert not beyond and far < rows.BEYOND * RMS_FACTOR


def test_best_so_far_holds_each_candidate_that_was_faster_and_goes_on_to_the_end(history: History) -> None:
    for number, speedup in enumerate((1.0, 0.9, 1.2, 1.1)):
        history.add(speedup, block=number)
    steps = [(step.number, step.speedup, step.improves) for step in rows.steps(one(history), 6)]
    assert steps == [(1, 1.0, True), (3, 1.2, True), (4, 1.2, False)]


def test_each_sweep_has_its_own_best_so_far(section: Section) -> None:
    assert len({step.sweep for step in rows.steps(section, 6)}) == 2


def test_only_the_latest_sweeps_are_drawn(section: Section) -> None:
    latest = section.compared[0].id
    assert {step.sweep[:12] for step in rows.steps(section, 1)} == {latest[:12]}
    assert {latest[:12] in point.judged for point in rows.tried(section, 1, CELLS)} == {True}


def test_best_candidate_is_among_the_points_however_many_lie_there(history: History) -> None:
    for number in range(20):
        history.add(1.3 + number / 1e6, text=f"# {number}")
    history.make_final(history.add(1.3, text="# best"), 1.2, 1.3, 1.4)
    assert [point.best for point in rows.points(one(history), CELLS) if point.best] == [True]


def test_thinned_points_stand_for_all_of_them() -> None:
    draw = random.Random(0)
    items = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(20_000)]
    thinned = thin(items, CELLS, lambda item: item[0], lambda item: item[1])
    assert sum(count for _, count in thinned) == len(items)
    assert len(thinned) <= CELLS**2


def test_thinning_keeps_the_first_of_those_that_lie_together() -> None:
    assert thin([(1.0, 1.0), (1.0, 1.0), (2.0, 1.0)], CELLS, lambda item: item[0], lambda item: item[1]) == [
        ((1.0, 1.0), 2),
        ((2.0, 1.0), 1),
    ]


def test_few_points_are_all_kept() -> None:
    items = [float(number) for number in range(CELLS)]
    assert [count for _, count in thin(items, CELLS, float, float)] == [1] * CELLS


def test_nothing_is_thinned_to_nothing() -> None:
    assert thin([], CELLS, float, float) == []


def test_reached_rates_are_work_over_time(section: Section) -> None:
    basis = ceilings.basis(section)
    assert basis
    best = ceilings.reached(section, basis)[0]
    milliseconds = 3.0 / 1.3
    assert best.tflops == pytest.approx(ROOFLINE["flops"] / milliseconds / 1e9)
    assert best.intensity == ROOFLINE["flops"] / ROOFLINE["nbytes"]


def test_baselines_stand_beside_the_leaders(section: Section) -> None:
    basis = ceilings.basis(section)
    assert basis
    assert [item.candidate for item in ceilings.reached(section, basis) if item.judged == "a baseline"] == [
        "compile",
        "eager",
    ]


def test_ceilings_meet_where_memory_feeds_the_arithmetic(section: Section) -> None:
    basis = ceilings.basis(section)
    assert basis
    roofs = ceilings.roofs(section, basis)
    knee = 1e3 * ROOFLINE["float32_tflops"] / ROOFLINE["copy_gbytes_per_second"]
    at_knee = [roof.tflops for roof in roofs if roof.intensity == pytest.approx(knee)]
    assert at_knee == [pytest.approx(ROOFLINE["float32_tflops"])] * 2


def test_sweep_that_kept_no_work_has_no_roofline(database: Database) -> None:
    Filled(database).judge(candidate(), speedup=1.2)
    [section] = sections.collect(database)
    assert ceilings.basis(section) is None


def test_leaders_begin_with_the_best_and_hold_the_baselines(section: Section) -> None:
    found = leaders.leaders(section, 15)
    assert [(row.mark, row.plan) for row in found[:5]] == [
        ("best", FUSED),
        ("", FUSED),
        ("baseline", None),
        ("", APART),
        ("baseline", None),
    ]
    assert {row.mark for row in found[5:]} == {"screened"}


def test_intervals_lie_within_their_column(section: Section) -> None:
    found = leaders.leaders(section, 15)
    scale = leaders.scale(found)
    ends = [scale.percent(end) for row in found for end in (row.low, row.speedup, row.high) if end is not None]
    assert 0 < min(ends) < max(ends) < 100


def test_only_finalists_that_cannot_be_told_from_the_fastest_are_tied(history: History) -> None:
    history.make_final(history.add(1.3, text="a"), 1.2, 1.3, 1.4, tie=True)
    history.make_final(history.add(1.28, text="b"), 1.2, 1.28, 1.4, tie=True)
    history.make_final(history.add(0.9, text="c"), 0.85, 0.9, 0.95)
    assert sorted(row.mark for row in leaders.leaders(one(history), 15) if row.plan) == ["", "as fast", "best"]


def test_failures_of_all_sweeps_are_counted_together(history: History) -> None:
    for number in range(2):
        history.sweep = history.start(number=number)
        history.add(None, status=Status.CRASHED, reason=f"why {number}", text=f"{number}")
    [group] = one(history).failures
    assert (group.status, group.count, group.reason) == (Status.CRASHED, 2, "why 1")


def test_rejections_of_all_sweeps_are_counted_together(history: History) -> None:
    fill(history)
    fill(history)
    [group] = one(history).rejections
    assert (group.constraint, group.count) == ("aligned", 2)


def test_section_without_anything_right_tells_what_failed(history: History) -> None:
    history.add(None, status=Status.CRASHED, reason="signal 11", text="c")
    section = one(history)
    assert (section.right, section.source, len(section.failures)) == ((), None, 1)


def test_machines_are_kept_apart_and_the_others_are_named(history: History) -> None:
    history.add(1.5, text="here")
    other = History(history.database, environment=environment("another cpu"))
    other.add(1.1, text="there")
    section = one(history)
    assert [trial.speedup for trial in section.right] == [1.1]
    assert dict(section.elsewhere) == {history.environment: 1}
