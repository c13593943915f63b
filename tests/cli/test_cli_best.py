"""``kgen best``: what it shows and writes, and its exit code."""

from __future__ import annotations

import sys
import types
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest
from samples import SOURCE, Filled, candidate, problem
from typed import kgen

from kgen.candidate import Plan
from kgen.errors import InputError


def test_best_as_json_is_one_object_with_what_was_measured(won: Filled) -> None:
    found = kgen("best", "made_up", "--json")
    expected = {
        "problem": "made_up",
        "mode": "train",
        "candidate": candidate("winner").id,
        "plan": "linear(library) + inner_reduction[gelu]",
        "steps": candidate().plan_data.to_json()["steps"],
        "params": {"k0.block": 128},
        "rewrites": ["fold"],
        "status": "ok",
        "accuracy": "fp32",
        "median_ms": 2.0,
        "speedup": 1.5,
        "speedup_low": 1.4,
        "speedup_high": 1.6,
        "baseline": "compile",
        "baselines": {"eager": 4.0, "compile": 3.0},
        "error_ratio": 0.5,
        "sweep": won.sweep,
        "ties": 0,
    }
    assert found.code == 0
    assert {name: found.json[name] for name in expected} == expected
    assert found.json["environment"]["id"] == won.environment.id


def test_best_names_a_file_with_the_candidates_source(won: Filled) -> None:
    assert Path(kgen("best", "made_up", "--json").json["file"]).read_text() == "winner"


def test_best_of_all_as_json_is_a_list(won: Filled) -> None:
    assert [row["problem"] for row in kgen("best", "--json").json] == ["made_up"]


def test_best_shows_plan_and_interval(won: Filled) -> None:
    answer = kgen("best", "made_up")
    assert answer.code == 0
    assert "linear(library) + inner_reduction[gelu]" in answer.out and "1.500x [1.400, 1.600]" in answer.out


def test_best_finds_a_problem_by_its_path(won: Filled) -> None:
    assert kgen("best", "problems/made_up.py").code == 0


def test_best_finds_a_problem_whose_file_is_gone(won: Filled, folder: Path) -> None:
    (folder / "problems" / "made_up.py").unlink()
    assert kgen("best", "made_up").code == 0


def test_best_does_not_show_what_was_measured_of_an_older_text(won: Filled, folder: Path) -> None:
    (folder / "problems" / "made_up.py").write_text(SOURCE + "# changed\n")
    answer = kgen("best", "made_up")
    assert (answer.code, "never swept" in answer.err) == (2, True)


def test_best_prefers_the_mode_that_was_not_asked_for(filled: Filled) -> None:
    asked = Filled(filled.database, problem=problem(mode="eval", asked_mode="eval"))
    asked.finish(candidate("in eval mode"), 1.4, 1.5, 1.6)
    filled.finish(candidate("in train mode"), 1.4, 1.5, 1.6)
    assert kgen("best", "made_up", "--json").json["mode"] == "train"
    assert kgen("best", "made_up", "--mode", "eval", "--json").json["mode"] == "eval"


def test_best_that_does_not_beat_pytorch_says_so_with_exit_code_1(filled: Filled) -> None:
    filled.finish(candidate(), 0.99, 1.0, 1.01)
    answer = kgen("best", "made_up", "--json")
    assert (answer.code, answer.json["beats_baseline"]) == (1, False)
    assert "nothing beats PyTorch (compile): the best kernel is as fast" in answer.err


def test_best_says_where_the_machine_was_too_busy_to_tell(filled: Filled) -> None:
    filled.finish(candidate(), 0.7, 1.1, 1.6)
    answer = kgen("best", "made_up")
    assert (answer.code, "too busy to tell whether anything beats PyTorch" in answer.err) == (1, True)
    assert "the machine was too busy to tell" in answer.out
    assert "(too busy to tell)" in kgen("best").out


def test_time_and_baselines_of_an_older_database_agree_with_the_speedup(won: Filled) -> None:
    with won.database.connections.write() as connection:
        connection.exec_driver_sql("UPDATE trial SET median_ms = 5.72 WHERE final")
    found = kgen("best", "made_up", "--json").json
    assert found["median_ms"] == found["baselines"][found["baseline"]] / found["speedup"]


def test_best_of_controls_alone_says_so_with_exit_code_1(filled: Filled) -> None:
    filled.finish(candidate("control", control=True), 1.4, 1.5, 1.6)
    answer = kgen("best", "made_up", "--json")
    assert (answer.code, answer.json["candidate"]) == (1, None)
    assert "no candidate with a kernel of its own" in answer.err


def test_best_that_was_only_screened_says_so_with_exit_code_1(filled: Filled) -> None:
    filled.judge(candidate(), speedup=2.0)
    answer = kgen("best", "made_up")
    assert (answer.code, "only screened so far" in answer.err) == (1, True)


def test_nothing_is_written_where_nothing_beats_pytorch(filled: Filled, folder: Path) -> None:
    filled.finish(candidate(), 0.9, 1.0, 1.1)
    assert kgen("best", "made_up", "-o", "fast.py").code == 1
    assert not (folder / "fast.py").exists()


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replaces the verification of an export; the files that it was asked for."""
    files: list[Path] = []
    def export_all(database: object, wanted: list, ended: Callable[..., None]) -> None:
        files.extend(one.file for one in wanted)
        for one in wanted:
            ended(one, None if one.file.name != "2_broken.py" else InputError("verified again, it was wrong"))

    module = types.ModuleType("kgen.tuning.export")
    wanted = namedtuple("Wanted", "best problem file")
    export = lambda database, row, problem, file: files.append(file)
    vars(module).update(export=export, export_all=export_all, Wanted=wanted)
    monkeypatch.setitem(sys.modules, "kgen.tuning.export", module)
    return files


def test_any_writes_a_candidate_that_is_not_faster_and_says_so(filled: Filled, exported: list[Path]) -> None:
    filled.finish(candidate(), 0.8, 0.9, 0.95)
    answer = kgen("best", "made_up", "-o", "fast.py", "--any")
    assert (answer.code, exported) == (0, [Path("fast.py")])
    assert "right, but not proven faster than PyTorch" in answer.out


def test_any_adds_nothing_to_a_winner(won: Filled, exported: list[Path]) -> None:
    answer = kgen("best", "made_up", "-o", "fast.py", "--any")
    assert (answer.code, exported, "not proven" in answer.out) == (0, [Path("fast.py")], False)


def test_any_without_a_right_candidate_writes_nothing(filled: Filled, exported: list[Path]) -> None:
    filled.finish(candidate("control", control=True), 1.4, 1.5, 1.6)
    assert (kgen("best", "made_up", "-o", "fast.py", "--any").code, exported) == (1, [])


@pytest.mark.parametrize("command", [["best"], ["scores"], ["history"], ["show", "SWEEP"]])
def test_rows_of_a_long_plan_have_at_most_100_columns_and_few_lines(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.delenv("COLUMNS")
    plan = Plan.of_mode([("inner_reduction", ["gelu", "softmax"])] * 90)
    params = {f"k{at}.block": 128 for at in range(90)}
    filled.finish(replace(candidate(), plan=plan.name, plan_data=plan, params=params), 1.4, 1.5, 1.6)
    filled.database.finish_sweep(filled.sweep, "finished", 61.0, candidate().id)
    lines = kgen(*(filled.sweep if word == "SWEEP" else word for word in command)).out.splitlines()
    assert lines and max(map(len, lines)) <= 100 and len(lines) < 40
    assert command == ["history"] or "90 kernels" in "\n".join(lines)


@pytest.fixture
def level(filled: Filled, folder: Path) -> Path:
    """A folder of four problems: two were won, one was lost, and one was never swept."""
    (folder / "level").mkdir()
    figures = {"1_won": (1.4, 1.5, 1.6), "2_broken": (1.1, 1.2, 1.3), "3_lost": (0.8, 0.9, 0.95), "4_left": None}
    for name, interval in figures.items():
        text = f"{SOURCE}# {name}\n"
        (folder / "level" / f"{name}.py").write_text(text)
        if interval:
            Filled(filled.database, problem=problem(name, source=text)).finish(candidate(name), *interval)
    return folder / "level"


def test_best_of_a_folder_lists_its_problems(level: Path) -> None:
    answer = kgen("best", "level", "--json")
    assert (answer.code, [row["problem"] for row in answer.json]) == (0, ["1_won", "2_broken", "3_lost"])


def test_winners_of_a_folder_are_written_into_another_one(level: Path, exported: list[Path]) -> None:
    answer = kgen("best", "level", "-o", "fast")
    assert exported == [Path("fast/1_won.py"), Path("fast/2_broken.py")]
    assert "verified again and written: fast/1_won.py" in answer.out
    assert (answer.code, "2_broken.py: verified again, it was wrong" in answer.err) == (1, True)
    assert "1 of 2 were not exported: 2_broken.py" in answer.err


def test_winners_are_not_written_over_the_problems(level: Path, exported: list[Path]) -> None:
    answer = kgen("best", "level", "-o", "level")
    assert (answer.code, exported, "name another one" in answer.err) == (2, [], True)


def test_folder_without_a_swept_problem_is_refused(filled: Filled, folder: Path) -> None:
    (folder / "new").mkdir()
    (folder / "new" / "1.py").write_text(SOURCE + "# new\n")
    answer = kgen("best", "new")
    assert (answer.code, "no problem in new was swept" in answer.err) == (2, True)


def test_winner_on_standard_output_is_alone_there(won: Filled, exported: list[Path]) -> None:
    answer = kgen("best", "made_up", "-o", "-")
    assert (answer.code, answer.out, exported) == (0, "", [Path("-")])
    assert "verified again and written: -" in answer.err and ".json" not in answer.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--to", "hub"], "--to hub needs a DIR"),
        (["--to", "zip"], "`hub DIR` or a FILE.json"),
        (["folder"], "goes with --to hub"),
        (["--to", "solution.json", "-o", "fast.py"], "give one of them"),
        (["--to", "solution.json"], "a solution answers a definition"),
        (["--to", "hub", "folder", "--destinations"], "--destinations needs --to FILE.json"),
    ],
)
def test_package_that_cannot_be_written_is_refused_in_one_line(won: Filled, arguments: list[str], line: str) -> None:
    answer = kgen("best", "made_up", *arguments)
    assert (answer.code, line in answer.err, answer.err.count("\n")) == (2, True, 1)
