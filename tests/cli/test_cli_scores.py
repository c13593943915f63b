"""``kgen scores``, and ``kgen sweep`` with several problems: answers, lines and exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from samples import PLAN, SOURCE, Filled
from typed import kgen

from kgen.problems.problem_set import Member, read_set
from kgen.protocol.statistics import Interval
from kgen.store import Database, attempts
from kgen.store.attempts import Attempt
from kgen.tuning import events, suite

FIELDS = (
    "problem verdict ms speedup speedup_low speedup_high over_eager baselines error_ratio accuracy plan steps reason".split()
)


@pytest.fixture
def level(folder: Path, won: Filled) -> Path:
    """A folder with the problem that was won, one that was refused, and one that nobody swept."""
    made = folder / "level"
    made.mkdir()
    for name in ("1_won", "2_refused", "3_new"):
        (made / f"{name}.py").write_text(SOURCE + ("" if name == "1_won" else f"# {name}\n"))
    with Database.open() as database:
        refused = [m for m in read_set([str(made)]) if m.title == "2_refused"][0]
        why = "level/2_refused.py:7: forward depends on data"
        attempts.add(
            database,
            Attempt("2_refused", str(refused.path), refused.source_hash, None, {}, "fp32", "cpu", "refused", why, 1.0, {}),
        )
    return made


# Scores ----------------------------------------------------------------------------------------------------------


def test_scores_as_json_have_each_problem_and_the_summary(level: Path) -> None:
    found = kgen("scores", "level", "--json").json
    assert list(found) == ["problems", "summary"]
    assert all(list(row) == FIELDS for row in found["problems"])
    assert {row["problem"]: row["verdict"] for row in found["problems"]} == {
        "1_won": "faster",
        "2_refused": "refused",
        "3_new": "not swept",
    }
    won, refused, _ = found["problems"]
    assert (won["speedup_low"], won["speedup"], won["speedup_high"], won["ms"]) == (1.4, 1.5, 1.6, 2.0)
    assert (won["over_eager"], won["baselines"]) == (2.0, {"eager": 4.0, "compile": 3.0})
    assert (won["steps"], refused["steps"]) == (PLAN.to_json()["steps"], None)
    assert refused["reason"].endswith("forward depends on data")
    assert found["summary"] == {
        "problems": 3,
        "right": 1,
        "fast_1": pytest.approx(1 / 3),
        "geomean": pytest.approx(1.5),
        "geomean_over_eager": pytest.approx(2.0),
    }


def test_scores_as_csv_are_a_row_for_each_problem(level: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(kgen("scores", "level", "--csv").out)))
    assert [row["verdict"] for row in rows] == ["faster", "refused", "not swept"]
    assert list(rows[0]) == FIELDS


def test_table_shows_the_class_kernelbench_figures_and_failures_by_reason(level: Path) -> None:
    answer = kgen("scores", "level")
    assert answer.code == 0
    for fact in (
        "class of accuracy: fp32",
        "1.500x [1.400, 1.600]",
        "fast_0 0.333, fast_1 0.333, fast_1.5 0.333, fast_2 0.000",
        "1 of 3 (33.3%)",
        "1.500x over the fastest baseline, 2.000x over eager",
        "1  refused  2_refused",
        "7: forward depends on data",
    ):
        assert fact in answer.out, fact


def test_scores_of_everything_are_what_was_swept_or_tried(level: Path) -> None:
    found = kgen("scores", "--json").json["problems"]
    assert sorted(row["problem"] for row in found) == ["2_refused", "made_up"]


def test_problem_of_the_database_is_named_without_its_file(level: Path, folder: Path) -> None:
    (folder / "problems" / "made_up.py").unlink()
    assert [row["verdict"] for row in kgen("scores", "made_up", "--json").json["problems"]] == ["faster"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nosuch",), "no problem 'nosuch'"),
        (("level", "level/1_won.py"), "the same file appears twice"),
        (("-D", "a=1"), "-D, --mode and --dtype need a PROBLEM"),
        (("--device", "cuda"), "nothing was swept with these options"),
        (("--json", "--csv"), "exclude each other"),
    ],
)
def test_scores_refuse_bad_input_in_one_line(level: Path, arguments: tuple[str, ...], line: str) -> None:
    answer = kgen("scores", *arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert line in answer.err


# Suites ----------------------------------------------------------------------------------------------------------

def conduct(monkeypatch: pytest.MonkeyPatch, state: str = "finished", troubled: tuple[str, ...] = ()) -> list[Any]:
    """Replace the conductor of suites; what it was asked for comes back."""
    asked: list[Any] = []

    def run(members: tuple[Member, ...], ask: Callable[..., Any], tell: events.Listener) -> events.SuiteFinished:
        asked.extend(ask(problem=member.problem) for member in members)
        tell(events.SuiteStarted(3, 1, 30.0, "kgen.db"))
        tell(events.ProblemStarted(2, 3, "2_refused", "level/2_refused.py"))
        won = ("faster", 2.0, Interval(1.4, 1.5, 1.6), "")
        tell(events.ProblemEnded(2, 3, "2_refused", "level/2_refused.py", "swept", *won, 31.0, "abc"))
        finished = events.SuiteFinished(state, 62.0, 3, {"swept": 3 - len(troubled)}, troubled)
        tell(finished)
        return finished

    monkeypatch.setattr(suite, "run", run)
    return asked


def test_suite_asks_the_same_of_each_problem_and_shows_the_table(level: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = conduct(monkeypatch)
    answer = kgen("sweep", "level", "--device", "cpu", "--time", "30", "--seed", "3")
    assert answer.code == 0
    assert [(one.problem.name, one.seconds, one.seed) for one in asked] == [
        ("1_won", 30.0, 3),
        ("2_refused", 30.0, 3),
        ("3_new", 30.0, 3),
    ]
    assert "3 problems, 30 s each, into kgen.db; 1 ended before under the same command" in answer.out
    assert "[2/3] 2_refused: faster, 1.500x [1.400, 1.600], 2 ms, after 31 s" in answer.out
    assert "fast_1" in answer.out and "not swept" in answer.out


def test_suite_in_which_some_failed_lists_them_with_exit_code_1(level: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conduct(monkeypatch, troubled=("2_refused", "3_new"))
    answer = kgen("sweep", "level", "--device", "cpu", "-q")
    assert (answer.code, answer.err) == (1, "kgen: 2 of 3 were refused or failed: 2_refused, 3_new\n")


def test_interrupted_suite_shows_the_table_with_exit_code_130(level: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conduct(monkeypatch, "interrupted")
    answer = kgen("sweep", "level", "--device", "cpu")
    assert (answer.code, "geometric mean" in answer.out) == (130, True)
    assert answer.err == "kgen: interrupted; the same command goes on from here\n"


def test_suite_as_json_tells_each_event_as_one_object(level: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conduct(monkeypatch)
    lines = [json.loads(line) for line in kgen("sweep", "level", "--device", "cpu", "--json").out.splitlines()]
    assert [line["event"] for line in lines] == ["suite_started", "problem_started", "problem_ended", "suite_finished"]
    assert (lines[2]["speedup"], lines[2]["speedup_low"], lines[2]["verdict"]) == (1.5, 1.4, "faster")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("empty",), "empty: the folder has no problem"),
        (("bad",), "bad/a.py: has no class Model"),
        (("level", "level/1_won.py"), "level/1_won.py: the same file appears twice"),
        (("level", "nosuch"), "no problem 'nosuch'"),
    ],
)
def test_suite_that_does_not_serve_is_one_line_and_exit_code_2(
    level: Path, folder: Path, arguments: tuple[str, ...], line: str
) -> None:
    (folder / "empty").mkdir()
    (folder / "bad").mkdir()
    (folder / "bad" / "a.py").write_text("def get_inputs(): ...\n")
    answer = kgen("sweep", *arguments, "--device", "cpu")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert line in answer.err

