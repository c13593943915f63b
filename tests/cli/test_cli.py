"""What is typed, what is answered, and with which exit code."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import subprocess
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from samples import SOURCE, Filled, candidate, problem

from kgen import events, paths
from kgen.candidate import Rejection
from kgen.cli import main
from kgen.evaluator.protocol import BASELINES, Accuracy, Status
from kgen.problem import Problem
from kgen.statistics import Interval
from kgen.store import Store, database
from kgen.views.detail import LOG_WIDTH

ROOT = Path(__file__).parents[2]
LISTING = ("best", "compare", "doctor", "history", "problems", "prune", "show", "sql")
SELECTING = ("export-history", "history", "prune")


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def kgen(*arguments: str) -> Answer:
    result = CliRunner().invoke(main, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with one problem file that a name finds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "made_up.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def filled() -> Iterator[Filled]:
    with Store.open() as store:
        yield Filled(store)


@pytest.fixture
def won(filled: Filled) -> Filled:
    """A finished sweep with a winner, a failure and a rejection."""
    filled.finish(candidate("winner"), 1.4, 1.5, 1.6)
    filled.judge(candidate("wrong"), Status.WRONG_VALUES, reason="row 3 is off")
    filled.store.add_rejections(filled.sweep, [Rejection("a plan", {}, "threads", "1024 at most")])
    filled.store.finish_sweep(filled.sweep, "finished", 61.0, candidate("winner").id)
    return filled


# Help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", main.commands)
def test_command_and_each_of_its_options_has_help(name: str) -> None:
    command = main.commands[name]
    assert command.help
    assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []


@pytest.mark.parametrize("name", LISTING)
def test_listing_command_has_the_shared_options(name: str) -> None:
    assert {"as_json", "as_csv", "db", "limit"} <= {option.name for option in main.commands[name].params}


@pytest.mark.parametrize("name", SELECTING)
def test_command_that_selects_sweeps_has_every_filter(name: str) -> None:
    assert {"device", "status", "since", "before"} <= {option.name for option in main.commands[name].params}


def test_page_of_the_command_line_is_current() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "make_cli.py"))
    assert page["PAGE"].read_text(encoding="utf-8") == page["render"](), "run: python docs/make_cli.py"


@pytest.mark.parametrize("command", [["--help"], ["best", "made_up"], ["history"], ["show", "0"], ["problems"]])
def test_command_answers_without_torch(command: list[str], won: Filled) -> None:
    code = (
        "import sys; from kgen.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'alembic'} & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, env=_environment())
    assert answer.returncode == 0


def test_help_loads_neither_the_database_nor_tables() -> None:
    code = "import sys, kgen.cli; sys.exit(bool({'sqlalchemy', 'rich', 'kgen.store'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], env=_environment()).returncode == 0


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


# Bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "no_such"], "no problem 'no_such'"),
        (["sweep", "made_up", "-D", "nothing=1"], "no such module-level constant"),
        (["sweep", "made_up", "-D", "batch_size=many"], "not a Python literal"),
        (["sweep", "made_up", "-D", "batch_size"], "is not NAME=VALUE"),
        (["sweep", "made_up", "--mode", "dream"], "'dream' is not one of"),
        (["sweep", "made_up", "--budget", "0"], "0 is not in the range"),
        (["sweep", "made_up", "--accuracy", "int8"], "'int8' is not one of"),
        (["sweep", "made_up", "--strategy", "luck"], "'luck' is not one of"),
        (["sweep", "made_up", "--baselines", "eager,jit"], "'jit' is not one of"),
        (["sweep", "made_up", "--baselines", "compile"], "eager has to be among them"),
        (["sweep"], "Missing argument 'PROBLEM'"),
        (["no_such_command"], "No such command"),
        (["best", "no_such"], "no problem 'no_such'"),
        (["best", "-o", "file.py"], "need a PROBLEM"),
        (["best", "made_up", "--mode", "eval"], "never swept"),
        (["best", "made_up", "-D", "batch_size=16"], "never swept"),
        (["best", "made_up", "--device", "cuda"], "never swept with --device cuda"),
        (["best", "made_up", "--accuracy", "tf32"], "never swept with --accuracy tf32"),
        (["history", "no_such"], "never swept"),
        (["show", "ffff"], "no sweep or candidate 'ffff'"),
        (["history", "--status", "great"], "'great' is not one of running"),
        (["history", "--since", "yesterday"], "neither a date"),
        (["history", "--json", "--csv"], "exclude each other"),
        (["best", "made_up", "--since", "2126-01-01"], "never swept with --since"),
        (["compare", "ffff", "eeee"], "no sweep or candidate or environment 'ffff'"),
        (["sql"], "name a QUERY"),
        (["sql", "DELETE FROM sweep"], "only reads"),
        (["sql", "SELECT title FROM sweep"], "no such column: title"),
        (["prune"], "say what to drop"),
        (["import", "missing.jsonl"], "missing.jsonl: cannot be read"),
        (["import", "problems/made_up.py"], "line 1: is no JSON"),
        (["export-history", "-o", "missing/h.jsonl"], "missing: no such folder"),
        (["history", "--db", "missing.db"], "no database at missing.db"),
        (["history", "--db", "problems/made_up.py"], "is not a kgen database"),
        (["history", "--db", "nonsense://x"], "no database URL"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(filled: Filled, arguments: list[str], message: str) -> None:
    answer = kgen(*arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith("kgen: ") and message in answer.err


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def broken(:\n", "syntax error"),
        ("def get_inputs(): ...\n", "has no class Model"),
        ("class Model: ...\n", "has no function get_inputs"),
        ("\0", "bad.py: "),
    ],
)
@pytest.mark.parametrize("command", ["sweep", "best"])
def test_bad_problem_file_is_one_line_and_exit_code_2(
    filled: Filled, folder: Path, command: str, source: str, message: str
) -> None:
    (folder / "bad.py").write_text(source)
    answer = kgen(command, "bad.py")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert message in answer.err


def test_disk_that_is_full_is_one_line_and_exit_code_2(won: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "runs")

    monkeypatch.setattr(paths, "write_candidate", full)
    answer = kgen("best", "made_up")
    assert (answer.code, answer.err) == (2, "kgen: runs: No space left on device\n")


def test_ctrl_c_is_one_line_and_exit_code_130(won: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(paths, "write_candidate", interrupted)
    answer = kgen("best", "made_up")
    assert (answer.code, answer.err.strip()) == (130, "kgen: interrupted")


def test_ctrl_c_in_a_finalizer_where_python_ignores_it_is_heard(won: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finalized:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def interrupted(*arguments: object) -> None:
        Finalized()
        time.sleep(60)

    monkeypatch.setattr(paths, "write_candidate", interrupted)
    answer = kgen("best", "made_up")
    assert (answer.code, answer.err.strip()) == (130, "kgen: interrupted")


# Sweep ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """Stands for the conductor's own request."""

    problem: Problem
    device: str | None
    accuracy: Accuracy
    budget: int | None
    seconds: float | None
    strategy: str | None
    seed: int
    jobs: int | None
    baselines: tuple[str, ...]
    fresh: bool
    db: str | None


@pytest.fixture
def conductor(monkeypatch: pytest.MonkeyPatch, won: Filled) -> list[Request]:
    """Replaces the conductor by one that tells of the sweep in the store; the requests that it was given."""
    return conduct(monkeypatch, won, "finished")


def conduct(monkeypatch: pytest.MonkeyPatch, filled: Filled, state: str) -> list[Request]:
    requests: list[Request] = []

    def run(request: Request, tell: Callable[[events.Event], None]) -> None:
        requests.append(request)
        for event in news(filled, state):
            tell(event)

    module = types.ModuleType("kgen.tuning.sweep")
    vars(module).update(SweepRequest=Request, run=run)
    monkeypatch.setitem(sys.modules, "kgen.tuning.sweep", module)
    return requests


def news(filled: Filled, state: str) -> Iterator[events.Event]:
    """What a conductor tells of the sweep in the store."""
    judged = filled.store.evaluated(filled.sweep)
    yield events.Started(
        filled.sweep, "made_up", "train", "cpu", filled.environment, "fp32", 2, 10, 3, 5, 0, filled.store.name
    )
    yield events.Notice("the machine is busy")
    yield events.Measured((("eager", 4.0), ("compile", 3.0)), "cpu")
    for text in ("winner", "wrong"):
        if candidate(text).id in judged:
            speedup = Interval(1.4, 1.5, 1.6) if text == "winner" else None
            yield events.Evaluated(1, candidate(text), judged[candidate(text).id], 2.0, speedup)
    yield events.Finals((candidate("winner").id,))
    counts = Counter(str(item.status) for item in judged.values())
    leader = events.Leader(candidate("winner").id, "row[gelu]", "k0.block=128", 2.0, 1.5, 1.4, 1.6, 0.5, False, False)
    baseline = events.Leader(None, "compile", "", 3.0, 1.0, 1.0, 1.0, None, False, False)
    won = bool(counts["ok"])
    leaders = (leader, baseline) if won else ()
    best = candidate("winner").id if won else None
    yield events.Finished(filled.sweep, state, 61.0, tuple(counts.items()), leaders, best, won)


def test_sweep_is_given_what_was_typed(conductor: list[Request]) -> None:
    typed = "-D batch_size=16 --mode eval --device cpu --accuracy kernelbench --budget 7 --time 60 --jobs 2 --fresh"
    typed += " --strategy random --seed 3"
    assert kgen("sweep", "made_up", *typed.split(), "--baselines", "compile,eager").code == 0
    [request] = conductor
    assert (request.problem.overrides, request.problem.asked_mode) == ((("batch_size", 16),), "eval")
    baselines = ("eager", "compile")
    assert request == Request(request.problem, "cpu", Accuracy.KERNELBENCH, 7, 60.0, "random", 3, 2, baselines, True, None)


def test_sweep_compares_with_every_baseline_by_default(conductor: list[Request]) -> None:
    assert kgen("sweep", "made_up").code == 0
    assert conductor[0].baselines == BASELINES


def test_sweep_shows_device_baselines_leaders_failures_and_the_next_command(conductor: list[Request]) -> None:
    answer = kgen("sweep", "made_up")
    assert answer.code == 0
    for fact in ("on cpu: a cpu", "eager 4 ms", "1.500x [1.400, 1.600]", "row 3 is off", "the machine is busy"):
        assert fact in answer.out
    assert "kgen best made_up -o made_up_fast.py" in answer.out


def test_quiet_sweep_shows_only_its_end(conductor: list[Request]) -> None:
    out = kgen("sweep", "made_up", "-q").out
    assert "on cpu" not in out and "1.500x [1.400, 1.600]" in out


def test_sweep_as_json_is_one_object_for_each_event(conductor: list[Request]) -> None:
    lines = [json.loads(line) for line in kgen("sweep", "made_up", "--json").out.splitlines()]
    kinds = ["started", "notice", "measured", "evaluated", "evaluated", "finals", "finished"]
    assert [line["event"] for line in lines] == kinds
    assert (lines[3]["candidate"], lines[3]["status"]) == (candidate("winner").id, "ok")
    assert lines[-1]["counts"] == {"ok": 1, "wrong_values": 1}


def test_sweep_with_nothing_right_says_why_most_failed_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, filled: Filled
) -> None:
    filled.judge(candidate("wrong"), Status.BUILD_ERROR, reason="expected ';'")
    conduct(monkeypatch, filled, "finished")
    answer = kgen("sweep", "made_up")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "1 of 1 ended as build_error" in answer.err and "expected ';'" in answer.err


def test_interrupted_sweep_shows_the_table_so_far_with_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, won: Filled
) -> None:
    conduct(monkeypatch, won, "interrupted")
    answer = kgen("sweep", "made_up")
    assert (answer.code, "1.500x" in answer.out) == (130, True)


# Best ----------------------------------------------------------------------------------------------------------


def test_best_as_json_is_one_object_with_what_was_measured(won: Filled) -> None:
    found = kgen("best", "made_up", "--json")
    expected = {
        "problem": "made_up",
        "mode": "train",
        "candidate": candidate("winner").id,
        "plan": "linear(library) + row[gelu]",
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
    assert "linear(library) + row[gelu]" in answer.out and "1.500x [1.400, 1.600]" in answer.out


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
    asked = Filled(filled.store, problem=problem(mode="eval", asked_mode="eval"))
    asked.finish(candidate("in eval mode"), 1.4, 1.5, 1.6)
    filled.finish(candidate("in train mode"), 1.4, 1.5, 1.6)
    assert kgen("best", "made_up", "--json").json["mode"] == "train"
    assert kgen("best", "made_up", "--mode", "eval", "--json").json["mode"] == "eval"


def test_best_that_does_not_beat_pytorch_says_so_with_exit_code_1(filled: Filled) -> None:
    filled.finish(candidate(), 0.9, 1.0, 1.1)
    answer = kgen("best", "made_up", "--json")
    assert (answer.code, answer.json["beats_baseline"]) == (1, False)
    assert "nothing beats PyTorch" in answer.err


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


# History and show ----------------------------------------------------------------------------------------------


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
    for fact in (candidate("winner").id[:12], "row 3 is off", "1024 at most", "batch_size=8", "1 of 10 combinations timed, 1 failed, 1 rejected"):
        assert fact in out


def test_show_sweep_as_json_has_what_the_table_has(won: Filled) -> None:
    found = kgen("show", won.sweep, "--json").json
    assert [row["reason"] for row in found["failures"]] == ["row 3 is off"]
    assert [row["constraint"] for row in found["rejections"]] == ["threads"]
    assert [row["candidate"] for row in found["leaders"]] == [candidate("winner").id]


def test_show_candidate_tells_plan_errors_and_resources(won: Filled) -> None:
    out = kgen("show", candidate("winner").id[:10]).out
    for fact in ("linear(library) + row[gelu]", "fold", "k0.block=128", "given", "registers", "1.500x [1.400, 1.600]"):
        assert fact in out


def test_figure_that_is_infinite_is_null_in_json(won: Filled) -> None:
    found = kgen("show", candidate("winner").id, "--json").json
    assert found["evaluations"][0]["errors"][0]["maximum"] is None


def test_show_source_is_the_text_alone(won: Filled) -> None:
    assert kgen("show", candidate("winner").id, "--source").out == "winner"


def test_show_log_is_that_of_the_build_where_the_other_is_gone(won: Filled, folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "build.log").write_text("a warning")
    assert kgen("show", candidate("winner").id, "--log").out == "a warning\n"


def test_log_that_is_not_here_is_named(won: Filled) -> None:
    answer = kgen("show", candidate("winner").id, "--log")
    assert (answer.code, answer.err) == (2, "kgen: logs/1.log: the log file is not here\n")


def test_show_log_is_the_log_file(won: Filled, folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "1.log").write_text("all of it")
    assert kgen("show", candidate("winner").id, "--log").out == "all of it\n"


def test_show_candidate_draws_the_plan_with_its_kernels(won: Filled) -> None:
    out = kgen("show", candidate("winner").id).out
    assert re.search(r"linear +library\s+gelu +─ k0 row: block=128", out)


def test_show_candidate_has_the_source_the_build_log_and_the_interval(won: Filled, folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "build.log").write_text("\n".join(f"line {number} {'x' * 300}" for number in range(50)))
    out = kgen("show", candidate("winner").id).out
    assert re.search(r"^winner$", out, re.MULTILINE)
    assert "1.25 ms [1.25, 1.25]" in out
    assert "line 49" in out and "line 30" in out and "line 29" not in out and out.count("x") < 21 * LOG_WIDTH


def test_show_candidate_tells_how_near_the_ceilings_it_comes(filled: Filled) -> None:
    kept = {"flops": 10**9, "nbytes": 10**6, "copy_gbytes_per_second": 10.0, "float32_tflops": 5.0}
    filled.sweep = filled.store.start_sweep(
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
    for place, (block, speedup) in enumerate(((128, 1.0), (128, 1.1), (256, 2.0), (256, 2.2))):
        filled.judge(candidate(f"number {place}", block=block), speedup=speedup)
    [plan] = kgen("show", filled.sweep, "--json").json["plans"]
    [parameter] = plan["parameters"]
    assert (plan["right"], parameter["name"], parameter["share"] > 0.9) == (4, "k0.block", True)
    assert re.search(r"k0.block +9\d%  256: 2x of 2, 128: 1x of 2", kgen("show", filled.sweep).out)


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


# Compare, SQL, prune, import and export ------------------------------------------------------------------------


def test_compare_tells_who_is_faster(won: Filled) -> None:
    second = Filled(won.store)
    second.finish(candidate("another"), 1.4, 1.5, 1.6)
    won.store.finish_sweep(second.sweep, "finished", 1.0, candidate("another").id)
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


def test_sql_has_the_schema_at_hand() -> None:
    assert "What became of a candidate" in kgen("sql", "--schema").out
    assert "bursts" in kgen("sql", "--schema", "--json").json["timing"]


def test_prune_shows_first_and_drops_when_told(won: Filled, kgen_home: Path) -> None:
    source = paths.write_candidate(candidate("wrong").id, "wrong")
    looked = kgen("prune", "--failed")
    assert "1  trial" in looked.out and "--yes" in looked.err and source.exists()
    assert kgen("prune", "--failed", "--yes", "--json").json["rows"]["trial"] == 1
    assert kgen("history", "--json").json[0]["counts"] == {"ok": 1}
    assert not source.exists()


def test_prune_lists_no_more_sweeps_than_its_limit(filled: Filled) -> None:
    for _ in range(3):
        filled.sweep = filled.start()
        filled.store.finish_sweep(filled.sweep, "failed", 1.0, None)
    out = kgen("prune", "--status", "failed", "--limit", "1").out
    assert "sweeps, with all of them: 3, of which 1 are" in out and out.count("made_up, train mode") == 1


def test_prune_keeps_files_that_lie_elsewhere(filled: Filled, folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "1.log").write_text("not in the folder that kgen writes to")
    filled.judge(candidate("wrong"), Status.WRONG_VALUES)
    filled.store.finish_sweep(filled.sweep, "finished", 1.0, None)
    assert kgen("prune", "made_up", "--yes").code == 0
    assert (folder / "logs" / "1.log").exists()


def test_history_moves_from_one_database_to_another(won: Filled, folder: Path) -> None:
    assert kgen("export-history", "-o", "history.jsonl").code == 0
    assert kgen("export-history").out.splitlines()[1:] == (folder / "history.jsonl").read_text().splitlines()[1:]
    assert kgen("import", "history.jsonl", "--db", "other.db", "--json").json["written"]["trial"] == 2
    assert sum(kgen("import", ".", "--db", "other.db", "--json").json["written"].values()) == 0
    [row] = kgen("history", "--db", "other.db", "--json").json
    assert row == kgen("history", "--json").json[0]


@pytest.mark.parametrize(
    "command", [["history"], ["best"], ["show"], ["compare"], ["sql", "SELECT * FROM sweep"], ["export-history"]]
)
def test_database_that_a_sweep_writes_to_is_read_without_waiting(
    won: Filled, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr(database, "NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.01)
    named = {"show": [won.sweep], "compare": [won.sweep, won.sweep]}.get(command[0], [])
    with won.store.database.write() as connection:
        connection.exec_driver_sql("UPDATE sweep SET state = 'failed'")
        answer = kgen(*command, *named)
    assert (answer.code, answer.err) == (0, "")
    assert "failed" not in answer.out.replace("1 failed", "").replace("failed  status", "")


@pytest.mark.parametrize("command", [["prune", "--failed"], ["import", "history.jsonl"]])
def test_what_writes_gives_up_in_one_line_where_a_sweep_holds_the_database(
    won: Filled, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    kgen("export-history", "-o", "history.jsonl")
    monkeypatch.setattr(database, "NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.01)
    with won.store.database.write():
        answer = kgen(*command)
    assert answer.code == 2 and "locked by another process" in answer.err.splitlines()[-1]


# Problems and doctor -------------------------------------------------------------------------------------------


def test_problems_are_listed_with_their_sizes(filled: Filled) -> None:
    found = {row["problem"]: row["sizes"] for row in kgen("problems", "--json").json}
    assert found["made_up"] == {"batch_size": 8}


def test_doctor_as_json_names_what_is_missing_and_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    answer = kgen("doctor", "--json")
    [compiler] = [check for check in answer.json if check["name"] == "C++ compiler"]
    assert (answer.code, compiler["ok"]) == (1, False)
    assert "apt install g++" in compiler["remedy"]


def test_doctor_names_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("KGEN_HOME", str(folder / "file" / "runs"))
    [home] = [check for check in kgen("doctor", "--json").json if check["name"] == "runs"]
    assert (home["ok"], "KGEN_HOME" in home["remedy"]) == (False, True)
