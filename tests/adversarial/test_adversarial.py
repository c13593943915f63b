"""Candidates made to cheat get their status, and honest ones that look suspicious pass: one file for each case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import CASES, Case, table
from court import Court

DOCS = Path(__file__).parents[2] / "docs" / "evaluator.md"

#: In the order of their settings, so that each evaluator starts once.
_IN_ORDER = sorted(CASES, key=lambda case: (repr(case.setting), case.name))
_PARAMETERS = [
    pytest.param(case, id=case.name, marks=[pytest.mark.gpu] if case.setting.device == "cuda" else [])
    for case in _IN_ORDER
]
each_case = pytest.mark.parametrize("case", _PARAMETERS)


@pytest.fixture(scope="session")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    opened = Court(tmp_path_factory.mktemp("court"))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def walls(request: pytest.FixtureRequest) -> None:
    """Skips a case that is about walls where the system does not allow them all."""
    case = request.node.callspec.params.get("case") if hasattr(request.node, "callspec") else None
    if case is not None and case.needs_walls and (missing := request.getfixturevalue("court").missing_walls(case)):
        pytest.skip(missing[0])


@each_case
def test_a_case_gets_its_status(court: Court, case: Case) -> None:
    verdict = court.judge(case)
    assert not verdict.raised
    assert verdict.evaluation.status in case.statuses, verdict.evaluation.reason


@each_case
def test_a_reason_is_one_line_that_can_be_printed(court: Court, case: Case) -> None:
    evaluation = court.judge(case).evaluation
    assert evaluation is not None and evaluation.reason.isprintable()
    assert bool(evaluation.reason) == (evaluation.status != "ok")


@each_case
def test_a_case_leaves_no_trace(court: Court, case: Case) -> None:
    assert court.judge(case).traces == ()


@pytest.mark.parametrize("case", [p for p in _PARAMETERS if p.values[0].label])
def test_a_case_gets_its_label(court: Court, case: Case) -> None:
    evaluation = court.judge(case).evaluation
    assert evaluation is not None and any(case.label in label for label in evaluation.labels), evaluation


@pytest.mark.parametrize("case", [p for p in _PARAMETERS if p.values[0].followed])
def test_an_honest_file_is_ok_after_it(court: Court, case: Case) -> None:
    after = court.judge(case).after
    assert after is not None and after.status == "ok", after


def test_the_docs_list_every_case() -> None:
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith(("| `cheats/", "| `honest/"))] == table(CASES)
