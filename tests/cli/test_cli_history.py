"""``kgen history``, ``show``, ``compare`` and ``sql``."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from samples import Filled, candidate, timing
from typed import kgen

from kgen.views.detail import LOG_WIDTH


def test_history_lists_sweeps(won: Filled) -> None:
    answer = kgen("history")
    assert answer.code == 0
    assert won.sweep[:12] in answer.out and "1/2" in answer.out and "1 min 01 s" in answer.out


def test_history_as_json_counts_by_status(won: Filled) -> None:
    [row] = kgen("history", "made_up", "--json").json
    assert (row["sweep"], row["counts"], row["state"]) == (won.sweep, {"ok": 1, "wrong_values": 1}, "finished")


def test_history_shows_no_more_than_its_limit(won: Filled) -> None:
    latest = won.start()
    assert [row["sweep"] for row in kgen("history", "--limit", "1", "--json").json] == [latest]


def test_show_sweep_tells_leaders_failures_and_rejections(won: Filled) -> None:
    out = kgen("show", won.sweep[:8]).out
    coverage = "1 of 10 combinations timed, 1 failed, 1 rejected"
    for fact in (candidate("winner").id[:12], "row 3 is off", "1024 at most", "batch_size=8", coverage):
        assert fact in out


def test_show_sweep_as_json_has_what_the_table_has(won: Filled) -> None:
    found = kgen("show", won.sweep, "--json").json
    assert [row["reason"] for row in found["failures"]] == ["row 3 is off"]
    assert [row["constraint"] for row in found["rejections"]] == ["threads"]
    assert [row["candidate"] for row in found["leaders"]] == [candidate("winner").id]


def test_steps_of_plans_are_in_json(won: Filled) -> None:
    steps = candidate().plan_data.to_json()["steps"]
    of_sweep, of_candidate = (kgen("show", name, "--json").json for name in (won.sweep, candidate("winner").id))
    listed = kgen("history", "--json").json[0]
    leader, plan, trial = of_sweep["leaders"][0], of_sweep["plans"][0], of_candidate["evaluations"][0]["trials"][0]
    assert all(found["steps"] == steps for found in (leader, plan, trial, of_candidate, listed["best"]))
    assert leader["plan"] == plan["plan"] == of_candidate["plan"] == candidate().plan


def test_show_candidate_tells_plan_errors_and_resources(won: Filled) -> None:
    out = kgen("show", candidate("winner").id[:10]).out
    for fact in ("linear(library) + inner_reduction[gelu]", "fold", "k0.block=128", "given", "registers", "1.500x [1.400, 1.600]"):
        assert fact in out


def test_figure_that_is_infinite_is_null_in_json(won: Filled) -> None:
    found = kgen("show", candidate("winner").id, "--json").json
    assert found["evaluations"][0]["errors"][0]["maximum"] is None


def test_show_source_is_the_text_alone(won: Filled) -> None:
    assert kgen("show", candidate("winner").id, "--source").out == "winner"


@pytest.fixture
def logs(kgen_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the logs that the samples name."""
    monkeypatch.chdir(kgen_home)
    (kgen_home / "logs").mkdir()
    return kgen_home / "logs"


def test_show_log_is_that_of_the_build_where_the_other_is_gone(won: Filled, logs: Path) -> None:
    (logs / "build.log").write_text("a warning")
    assert kgen("show", candidate("winner").id, "--log").out == "a warning\n"


def test_log_that_is_not_here_is_named(won: Filled) -> None:
    answer = kgen("show", candidate("winner").id, "--log")
    assert (answer.code, answer.err) == (2, "kgen: logs/1.log: the log file is not here\n")


def test_show_log_is_the_log_file(won: Filled, logs: Path) -> None:
    (logs / "1.log").write_text("all of it")
    assert kgen("show", candidate("winner").id, "--log").out == "all of it\n"


def test_show_candidate_draws_the_plan_with_its_kernels(won: Filled) -> None:
    out = kgen("show", candidate("winner").id).out
    assert re.search(r"linear +library\s+gelu +─ k0 \w+: block=128", out)


def test_show_candidate_has_the_source_the_build_log_and_the_interval(won: Filled, logs: Path) -> None:
    (logs / "build.log").write_text("\n".join(f"line {number} {'x' * 300}" for number in range(50)))
    out = kgen("show", candidate("winner").id).out
    assert re.search(r"^winner$", out, re.MULTILINE)
    assert "1.25 ms [1.25, 1.25]" in out
    assert "line 49" in out and "line 30" in out and "line 29" not in out and out.count("x") < 21 * LOG_WIDTH


def test_show_candidate_tells_how_near_the_ceilings_it_comes(filled: Filled) -> None:
    kept = {"flops": 10**9, "nbytes": 10**6, "copy_gbytes_per_second": 10.0, "float32_tflops": 5.0}
    filled.sweep = filled.database.start_sweep(
        problem=filled.problem,
        environment=filled.environment,
        accuracy=filled.accuracy,
        device="cpu",
        arguments={},
        combinations=1,
        budget=1,
        roofline=kept | {"tf32_tflops": None, "float16_tflops": None},
    )
    filled.finish(candidate("winner"), 1.4, 1.5, 1.6)  # 2 ms
    assert "0.5 TFLOP/s, 10% of float32; 0.0005 TB/s, 5% of a copy" in kgen("show", candidate("winner").id).out
    [evaluation] = kgen("show", candidate("winner").id, "--json").json["evaluations"]
    assert evaluation["trials"][0]["achieved"]["fraction"] == pytest.approx(0.1)


def test_show_sweep_tells_which_parameter_mattered_how_much(filled: Filled) -> None:
    for place in range(10):
        block = 256 if place % 2 else 128
        filled.judge(candidate(f"number {place}", block=block), speedup=block / 128 + place / 100)
    [plan] = kgen("show", filled.sweep, "--json").json["plans"]
    [parameter] = plan["parameters"]
    assert (plan["right"], parameter["name"], parameter["share"] > 0.9) == (10, "k0.block", True)
    assert re.search(r"k0.block +\d+%  256: 2.05x of 5, 128: 1.04x of 5", kgen("show", filled.sweep).out)


def test_show_sweep_keeps_finals_and_screenings_apart_each_beside_its_own_baselines(filled: Filled) -> None:
    filled.judge(candidate("screened"), speedup=1.014, ms=5.72)
    filled.finish(candidate("final"), 1.4, 1.5, 1.6)
    timings = [timing("eager", (9.0,)), timing("compile", (5.8,))]
    filled.database.add_timings(filled.sweep, filled.environment.id, filled.accuracy, timings)
    found = kgen("show", filled.sweep, "--json").json
    assert found["baselines"] == {"eager": 4.0, "compile": 3.0}
    assert found["screened_baselines"] == {"eager": 9.0, "compile": 5.8}
    out = kgen("show", filled.sweep).out
    finals = out.index("baselines  eager 4 ms, compile 3 ms")
    screened = out.index("screened beside  eager 9 ms, compile 5.8 ms")
    assert finals < out.index("1.500x") < screened < out.index("1.01x")


def test_history_marks_a_best_that_was_only_screened(filled: Filled) -> None:
    filled.judge(candidate(), speedup=2.0)
    assert "2x (screened)" in kgen("history").out


def test_show_lists_the_candidates_of_a_status(won: Filled) -> None:
    [row] = kgen("show", won.sweep, "--status", "wrong_values", "--json").json
    assert (row["candidate"], row["reason"]) == (candidate("wrong").id, "row 3 is off")
    assert "row 3 is off" in kgen("show", won.sweep, "--status", "wrong_values").out


def test_history_is_filtered(won: Filled) -> None:
    assert [row["sweep"] for row in kgen("history", "--status", "finished", "--json").json] == [won.sweep]
    assert kgen("history", "--device", "cuda", "--json").json == []
    assert kgen("history", "--before", "1d", "--json").json == []


def test_history_as_csv_has_a_heading_and_a_line_for_each_sweep(won: Filled) -> None:
    [row] = csv.DictReader(kgen("history", "--csv").out.splitlines())
    assert (row["sweep"], row["best.speedup"], row["environment.device"]) == (won.sweep, "1.5", "a cpu")


def test_source_of_a_sweep_is_refused(won: Filled) -> None:
    assert kgen("show", won.sweep, "--source").code == 2


def test_compare_tells_who_is_faster(won: Filled) -> None:
    second = Filled(won.database)
    second.finish(candidate("another"), 1.4, 1.5, 1.6)
    won.database.finish_sweep(second.sweep, "finished", 1.0, candidate("another").id)
    [row] = kgen("compare", won.sweep, second.sweep, "--json").json["comparisons"]
    assert (row["what"], row["a"]["subject"], row["verdict"]) == ("best", candidate("winner").id, "same")
    assert "same" in kgen("compare", won.sweep, second.sweep).out


def test_compare_of_unlike_things_is_refused(won: Filled) -> None:
    answer = kgen("compare", won.sweep, candidate("winner").id)
    assert (answer.code, "name two of the same" in answer.err) == (2, True)


def test_sql_answers_with_names(won: Filled) -> None:
    query = "SELECT state, count(*) AS sweeps FROM sweep GROUP BY state"
    assert kgen("sql", query, "--json").json == [{"state": "finished", "sweeps": 1}]
    assert kgen("sql", query, "--csv").out == "state,sweeps\nfinished,1\n"
    assert kgen("sql", query).out.split() == ["state", "sweeps", "finished", "1"]


def test_sql_prints_a_row_that_is_too_wide_name_by_name(won: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT id, plan, params FROM candidate ORDER BY id LIMIT 1"
    monkeypatch.setenv("COLUMNS", "200")
    assert kgen("sql", query).out.splitlines()[0].split() == ["id", "plan", "params"]
    monkeypatch.setenv("COLUMNS", "80")
    lines = kgen("sql", query).out.splitlines()
    assert [line.split()[0] for line in lines] == ["row", "id", "plan", "params"]


def test_sql_has_the_schema_at_hand() -> None:
    assert "\n### evaluation\n" in kgen("sql", "--schema").out
    assert "bursts" in kgen("sql", "--schema", "--json").json["timing"]
