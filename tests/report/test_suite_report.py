"""The part of a report on all problems together: rows, charts, and the page that has them."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
import vl_convert
from histories import ROOFLINE
from test_charts import fields_named, layers

from kgen.protocol.statistics import Interval
from kgen.store import Database, scores
from kgen.store.scores import Score, Verdict
from kgen.views.report import page, sections, suite
from kgen.views.report.charts import CONFIG
from kgen.views.report.suite import Fast, Scored
from kgen.views.report.suite_charts import CHARTS

ROWS = {"scored": Scored, "curve": Fast, "marked": Fast}


def score(verdict: str, over_eager: float | None = None) -> Score:
    interval = Interval(over_eager - 0.1, over_eager, over_eager + 0.1) if over_eager else None
    return Score("p", Verdict(verdict), speedup=interval, over_eager=interval, accuracy="fp32")


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_right_vega_lite_and_names_fields_of_its_rows(name: str) -> None:
    found = list(layers(CHARTS[name]))
    compiled = vl_convert.vegalite_to_vega({**CHARTS[name], "datasets": {data: [] for data, _ in found}, "config": CONFIG})
    assert compiled["marks"]
    for data, encoding in found:
        assert set(fields_named(encoding)) <= {field.name for field in fields(ROWS[data])}


def test_curve_is_fast_p_and_falls_where_a_problem_is_no_longer_faster() -> None:
    found = suite.of([score("faster", 3.0), score("slower", 0.5), score("same"), score("refused")], [])
    assert [(item.p, item.share) for item in found.curve[:-1]] == [(0.0, 0.75), (0.5, 0.5), (1.0, 0.25), (3.0, 0.0)]
    assert found.curve[-1].p > 3.0 and found.curve[-1].share == 0.0
    assert [item.label for item in found.marked] == ["fast_1: 25.0%", "fast_1.5: 25.0%", "fast_2: 25.0%"]


def test_problems_that_are_right_are_drawn_the_fastest_first() -> None:
    found = suite.of([score("same"), score("failed"), score("faster", 3.0)], [])
    assert [(row.verdict, row.speedup, row.roof) for row in found.scored] == [("faster", 3.0, None), ("same", 1.0, None)]


def test_roofline_of_a_problem_is_the_speedup_at_the_limits_of_the_device(reported: Path) -> None:
    with Database.open(str(reported)) as database:
        found = suite.of(scores.of_database(database), sections.collect(database))
    eager_ms = 4.0
    least_ms = max(ROOFLINE["flops"] / ROOFLINE["float32_tflops"] / 1e9, ROOFLINE["nbytes"] / 4000.0 / 1e6)
    assert [row.roof for row in found.scored] == 2 * [pytest.approx(eager_ms / least_ms)]


def test_page_of_several_problems_has_the_suite_and_its_rows(reported: Path) -> None:
    with Database.open(str(reported)) as database:
        collected = sections.collect(database)
        text = page.render(collected, "kgen.db", scores.of_database(database))
        alone = page.render(collected, "kgen.db")
    assert 'data-figure="problems"' in text and 'data-figure="fast"' in text
    assert "2 of 2 are right" in text and "Accuracy class fp32" in text
    found = re.search(r'<script type="application/json" id="page">(.*?)</script>', text, re.DOTALL)
    assert found and {name: bool(rows) for name, rows in json.loads(found[1])["suite"].items()} == {
        "scored": True,
        "curve": True,
        "marked": True,
    }
    assert 'data-figure="fast"' not in alone
