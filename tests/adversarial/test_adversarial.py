"""Adversarial cases end as their headers say: cheats are refused, and honest files that look like cheats pass."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import CASES, DEFENCES, HERE, AdversarialCase, file_of
from runner import CaseRunner
from turns import Turn

DOCS = Path(__file__).parents[2] / "docs"


def _parameter(case: AdversarialCase) -> object:
    """The case with its markers: one without ``default`` runs only where it is asked for."""
    marks = [] if case.default else [pytest.mark.exhaustive]
    marks += [pytest.mark.gpu] if case.setting.device == "cuda" else []
    return pytest.param(case, id=case.name, marks=marks)


#: In the order of their settings, so that each evaluator starts once.
_IN_ORDER = sorted(CASES, key=lambda case: (repr(case.setting), case.name))


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseRunner]:
    opened = CaseRunner(tmp_path_factory.mktemp("cases"))
    yield opened
    opened.close()


@pytest.mark.parametrize("case", [_parameter(case) for case in _IN_ORDER])
def test_a_case_ends_as_its_header_says(runner: CaseRunner, turn: Turn, case: AdversarialCase) -> None:
    if case.needs_sandbox and (missing := runner.missing_sandbox(case)):
        pytest.skip(missing[0])
    assert runner.run(case, turn.alone).faults(case) == []


def test_each_defence_has_one_cheat_for_each_device_in_the_default_run() -> None:
    """Or none on one of the devices."""
    cheats = Counter((case.defence, case.setting.device) for case in CASES if case.default and not case.honest)
    assert set(cheats.values()) == {1}
    assert {defence for defence, _ in cheats} == set(DEFENCES)


def test_each_case_has_a_name_of_its_own_and_a_defence_of_the_list() -> None:
    assert max(Counter(case.name for case in CASES).values()) == 1
    assert {path.name for path in (HERE / "defences").iterdir()} == {file_of(defence).name for defence in DEFENCES}


def test_each_stub_and_problem_has_a_case() -> None:
    included = {name for case in CASES for name in re.findall(r"^\S+ include (\S+)$", case.code, re.MULTILINE)}
    assert included == {path.name for path in (HERE / "stubs").iterdir()}
    assert {case.setting.path.name for case in CASES} == {path.name for path in (HERE / "problems").glob("*.py")}


def test_the_docs_list_every_case() -> None:
    page = runpy.run_path(str(DOCS / "make_cases.py"))
    assert page["PAGE"].read_text(encoding="utf-8") == page["render"](), "run: python docs/make_cases.py"
