"""``kgen eval``: any file is judged by the path of a sweep's candidates, answered, and stored."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from evaluator.candidates import plain, render
from running import Ended, Home, end
from samples import SOURCE, environment, evaluation

from kgen.candidate import Candidate, Trust
from kgen.cli import main
from kgen.errors import InputError
from kgen.evaluator.judging import Beside
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, BuildReport, Depth, Evaluation, Health, Phase, Status, Timing
from kgen.store import Database, queries
from kgen.tuning import eval_file, events

SIZES = ("-D", "batch_size=160", "-D", "in_features=64", "-D", "out_features=96")
PROBLEM = "linear_gelu_softmax"
EVAL = ("eval", PROBLEM, "file.py", *SIZES, "--device", "cpu", "--baselines", "eager", "--time", "1")

FIELDS = {
    "status", "reason", "phase", "accuracy", "error_ratio", "errors", "median_ms", "speedup", "speedup_low",
    "speedup_high", "verdict", "baselines", "baseline", "labels", "log", "candidate", "evaluation", "sweep", "problem",
    "problem_id", "overrides", "mode", "device", "environment", "health", "seconds", "prepare_ms", "conditions", "file",
    "coverage", "operators_replaced",
}  # fmt: skip
TIMED = ("median_ms", "speedup", "speedup_low", "speedup_high", "verdict", "baseline", "prepare_ms", "conditions")
ERROR_FIELDS = {
    "case", "output", "rms", "maximum", "eager_rms", "eager_maximum", "ratio", "used", "ok", "note", "runs",
}  # fmt: skip


# Real files, real processes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """A folder with a file, and what ``kgen eval`` answered each time that it was asked."""

    home: Home
    answers: tuple[Ended, ...]

    @property
    def json(self) -> Any:
        return self.answers[0].json


def judged(folder: Path, source: str, *options: Sequence[str]) -> Judged:
    """Judge a file once for each group of options."""
    (folder / "file.py").write_text(source)
    home = Home(folder)
    return Judged(home, tuple(home.typed(*EVAL, *more) for more in options))


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory, one_server: None) -> Judged:
    """A right file, judged twice: as JSON, and for people."""
    folder = tmp_path_factory.mktemp("right")
    (folder / "file.py").write_text(render())
    home = Home(folder)
    return Judged(home, (home.typed(*EVAL, "--json"), home.typed(*EVAL, COLUMNS="300")))  # no path is folded


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory, one_server: None) -> Judged:
    """A wrong file, judged twice: as JSON, and for people who want the result only."""
    return judged(tmp_path_factory.mktemp("wrong"), plain("return y * 1.001"), ["--json"], ["-q"])


def test_right_file_ends_with_exit_code_0(right: Judged) -> None:
    assert [answer.code for answer in right.answers] == [0, 0]
    assert [line for answer in right.answers for line in answer.told] == []
    assert (right.json["status"], right.json["reason"], right.json["phase"]) == ("ok", "", None)


def test_json_of_a_right_file_has_every_field(right: Judged) -> None:
    found = right.json
    assert found.keys() == FIELDS
    assert [name for name in FIELDS - {"phase", "coverage"} if found[name] is None] == []
    assert found["errors"][0].keys() == ERROR_FIELDS
    assert (found["file"], found["problem"], found["device"]) == ("file.py", PROBLEM, "cpu")
    assert found["overrides"] == {"batch_size": 160, "in_features": 64, "out_features": 96}
    assert found["health"] == {"ok": True, "passed_by": [], "notes": []}


def test_speedup_is_over_the_baselines_of_the_same_session_with_its_interval(right: Judged) -> None:
    found = right.json
    assert (found["baseline"], set(found["baselines"])) == ("eager", {"eager"})
    assert found["speedup_low"] <= found["speedup"] <= found["speedup_high"]
    query = "SELECT count(DISTINCT session), count(*) FROM timing WHERE depth = 'final' GROUP BY sweep_id"
    assert right.home.ask(query) == [(1, 2)] * 2


def test_right_file_is_stored_with_its_figures(right: Judged) -> None:
    found = right.json
    [row] = right.home.ask(
        "SELECT evaluation_id, candidate_id, status, final, speedup_low, baseline, kind, state, best, origin "
        "FROM trial JOIN sweep ON sweep.id = trial.sweep_id JOIN candidate ON candidate.id = trial.candidate_id "
        f"WHERE sweep.id = '{found['sweep']}'"
    )
    expected = (found["evaluation"], found["candidate"], "ok", 1, found["speedup_low"], "eager")
    assert row == (*expected, "eval", "finished", found["candidate"], "file")


def test_file_judged_twice_has_two_evaluations_and_two_logs(right: Judged) -> None:
    rows = right.home.ask("SELECT id, candidate_id, log FROM evaluation")
    assert len({row[0] for row in rows}) == 2
    assert {row[1] for row in rows} == {right.json["candidate"]}
    logs = {row[2] for row in rows}
    assert len(logs) == 2 and all("[ok]" in Path(log).read_text() for log in logs)


def test_history_tells_files_from_sweeps(right: Judged) -> None:
    rows = right.home.typed("history", "--json").json
    assert [(row["kind"], row["arguments"]["file"], row["right"]) for row in rows] == [("eval", "file.py", 1)] * 2
    assert f"file.py on {PROBLEM}" in right.home.typed("history", COLUMNS="160").out.replace("\n", " ")


def test_show_tells_of_the_candidate_its_evaluations_and_its_source(right: Judged) -> None:
    home, found = right.home, right.json
    shown = home.typed("show", found["candidate"][:12], "--json").json
    assert (shown["origin"], len(shown["evaluations"])) == ("file", 2)
    assert found["evaluation"] in {row["evaluation"] for row in shown["evaluations"]}
    assert "a file from outside" in home.typed("show", found["candidate"]).out
    assert home.typed("show", found["candidate"], "--source").out == (home.folder / "file.py").read_text()


def test_show_tells_of_one_evaluation_by_the_id_that_history_lists(right: Judged) -> None:
    ended = right.home.typed("show", right.json["sweep"])
    assert ended.code == 0 and ended.out.startswith("eval ")
    assert "file.py" in ended.out and right.json["candidate"][:12] in ended.out


def test_best_leaves_files_from_outside_out(right: Judged) -> None:
    ended = right.home.typed("best", PROBLEM, *SIZES)
    assert (ended.code, "was never swept" in ended.err) == (2, True)


def test_people_are_told_the_steps_and_then_the_verdict(right: Judged) -> None:
    lines = right.answers[1].out.splitlines()
    verdict = next(number for number, line in enumerate(lines) if line.startswith("ok: right"))
    assert [line for line in lines[:verdict] if line.startswith("timing beside")] == ["timing beside eager"]
    shown = "\n".join(lines[verdict:])
    for fact in ("eager", "as given", "PyTorch's", "baselines", "logs/candidates"):
        assert fact in shown


def test_wrong_file_ends_with_its_status_and_exit_code_1(wrong: Judged) -> None:
    found = wrong.json
    assert [answer.code for answer in wrong.answers] == [1, 1]
    assert (found["status"], found["phase"]) == ("wrong_values", "validate")
    assert "what is allowed" in found["reason"]


def test_json_of_a_wrong_file_has_every_field_and_no_time(wrong: Judged) -> None:
    found = wrong.json
    assert found.keys() == FIELDS
    assert [found[name] for name in TIMED] == [None] * len(TIMED)
    assert [error["ok"] for error in found["errors"]].count(False) == 1


def test_wrong_file_is_stored_without_samples_and_no_finals_follow(wrong: Judged) -> None:
    assert wrong.home.ask("SELECT status FROM evaluation") == [("wrong_values",)] * 2
    assert wrong.home.ask("SELECT count(*) FROM timing") == [(0,)]


def test_quiet_result_begins_with_the_verdict(wrong: Judged) -> None:
    assert wrong.answers[1].out.startswith("wrong_values: as given: ")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1\n", "the file has no class ModelNew"),
        ("def broken(:\n", "file.py, line 1: SyntaxError: invalid syntax"),
        ("x = 1\0\n", "null bytes"),
    ],
)
def test_file_that_cannot_be_loaded_is_a_verdict(tmp_path: Path, one_server: None, source: str, reason: str) -> None:
    found = judged(tmp_path, source, ["--json"])
    assert (found.answers[0].code, found.json["status"], found.json["phase"]) == (1, "load_error", "load")
    assert reason in found.json["reason"]


@pytest.mark.exhaustive  # beside the interrupted sweep of test_kills
def test_interrupt_beside_the_baselines_leaves_no_verdict_and_no_process(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(render())
    home = Home(tmp_path)
    process = home.start(*EVAL, "--time", "60")
    assert process.stdout
    is_reached = any(line.startswith("timing beside") for line in process.stdout)
    ended, _ = end(process, signal.SIGINT)
    assert is_reached, ended.err
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "kgen: interrupted")
    assert home.strays() == []
    assert home.ask("SELECT state, status FROM sweep LEFT JOIN trial ON sweep_id = sweep.id") == [("interrupted", None)]


# Bad input -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with a problem and files that are no candidates."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made_up.py").write_text(SOURCE)
    (tmp_path / "file.py").write_text("class ModelNew: ...\n")
    (tmp_path / "empty.py").write_text(" \n")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["made_up.py", "no_such.py"], "no_such.py: cannot be read: No such file"),
        (["made_up.py", "folder"], "folder is a folder: name a Python file"),
        (["made_up.py", "latin.py"], "latin.py: is not UTF-8 text"),
        (["made_up.py", "empty.py"], "empty.py: is empty: it needs a class ModelNew"),
        (["no_such", "file.py"], "no problem 'no_such'"),
        (["made_up.py", "file.py", "-D", "nothing=1"], "no such module-level constant"),
        (["made_up.py", "file.py", "--device", "gpu"], "'gpu' is no device"),
        (["made_up.py", "file.py", "--device", "cpu", "--accuracy", "tf32"], "the CPU has no TF32"),
        (["made_up.py", "file.py", "--cache", "hot"], "'hot' is not one of"),
        (["made_up.py", "file.py", "--db", "made_up.py"], "is not a kgen database"),
        (["made_up.py"], "Missing argument 'FILE'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder: Path, arguments: list[str], message: str) -> None:
    answer = CliRunner().invoke(main, ["eval", "--device", "cpu", *arguments])
    assert (answer.exit_code, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert answer.stderr.startswith("kgen: ") and message in answer.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_file_that_may_not_be_read_is_bad_input(folder: Path) -> None:
    (folder / "file.py").chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        eval_file.read_source(folder / "file.py")


def test_source_is_read_byte_for_byte(folder: Path) -> None:
    (folder / "file.py").write_bytes("# \u03c0\r\n\tx = 1\n".encode())
    assert eval_file.read_source(folder / "file.py") == "# \u03c0\r\n\tx = 1\n"


# The conductor, with an evaluator that answers as it is told -----------------------------------------------------


class Scripted:
    """Stands for the evaluator: a right file, timed twice as fast as eager unless ``lost`` names who is left out."""

    accuracy = Accuracy.FP32
    products = ()
    lost: tuple[str, ...] = ()
    health_passed_by: tuple[str, ...] = ()

    def __init__(self, problem: Problem, *, notice: Callable[[str], None], **given: Any) -> None:
        self.problem = replace(problem, mode="train")
        self.environment = environment()
        self.hardware = self
        self.device_type = "cpu"
        self.notice = notice
        type(self).given = given

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def health(self) -> Health:
        return Health(self.health_passed_by)

    def builder(self) -> Scripted:
        return self

    def build(self, source: str, behind: int = 0) -> BuildReport:
        return BuildReport(True, False, 0.0, False, "builds", None, "nothing to build ahead", "")

    def evaluate(self, candidate: Candidate, build: BuildReport, beside: Beside) -> Evaluation:
        type(self).seconds = beside.seconds
        self.notice("waiting for cpu")
        beside.begins()
        under = (("cache", "warm"), ("sm_clock_mhz", 1980.0))
        own, *baselines = (
            Timing(subject, Depth.FINAL, "finals", ((ms,), (ms,)), 0.25, under)
            for subject, ms in {candidate.id: 2.0, "compile": 5.0, "eager": 4.0}.items()
        )
        found = replace(evaluation(candidate), phase=None, timing=own)
        if candidate.id in self.lost:
            found = replace(found, status=Status.CRASHED, phase=Phase.TIME, reason="killed by SIGSEGV", timing=None)
        beside.baselines = tuple(one for one in baselines if one.subject not in self.lost)
        return found


CANDIDATE = Candidate("class ModelNew: ...\n", eval_file.OUTSIDE, {}, "cpu", origin=Trust.FOREIGN)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    fresh = type("Fresh", (Scripted,), {})
    monkeypatch.setattr(eval_file, "Evaluator", fresh)
    return fresh


def conduct(seconds: float | None = None, cache: str = "cold") -> events.Judged:
    problem = Problem("made_up", "made_up.py", SOURCE)
    request = eval_file.EvalRequest(problem, "file.py", CANDIDATE.source, device="cpu", seconds=seconds, cache=cache)
    return eval_file.run(request, lambda event: None)


def stored_trial() -> Any:
    with Database.open() as database:
        [judgement] = queries.candidate(database, CANDIDATE.id).judgements
        return judgement, judgement.trials[0]


def test_speedup_is_over_the_fastest_baseline(scripted: type[Scripted]) -> None:
    found = conduct()
    assert (found.ok, found.baseline, dict(found.baselines)) == (True, "eager", {"compile": 5.0, "eager": 4.0})
    assert found.speedup and (found.speedup.mid, found.verdict, found.median_ms) == (2.0, "faster", 2.0)


def test_seconds_and_cache_are_given_on(scripted: type[Scripted]) -> None:
    conduct(seconds=3.0, cache="warm")
    assert (scripted.seconds, scripted.given["cache"], scripted.given["accuracy"]) == (3.0, "warm", Accuracy.PYTORCH)


def test_results_are_stored_in_the_class_that_the_evaluator_settles_on(scripted: type[Scripted]) -> None:
    conduct()
    assert stored_trial()[0].evaluation.accuracy is Accuracy.FP32


def test_file_that_fails_beside_the_baselines_has_that_status(scripted: type[Scripted]) -> None:
    scripted.lost = (CANDIDATE.id,)
    found = conduct()
    assert (found.ok, found.evaluation.status, found.evaluation.phase) == (False, Status.CRASHED, Phase.TIME)
    assert (found.median_ms, found.speedup) == (None, None)


def test_right_file_without_a_baseline_has_a_time_and_no_speedup(scripted: type[Scripted]) -> None:
    scripted.lost = ("eager", "compile")
    found = conduct()
    assert (found.ok, found.median_ms, found.speedup, found.baseline) == (True, 2.0, None, None)


def test_conditions_are_stored_with_the_samples(scripted: type[Scripted], kgen_home: Path) -> None:
    conduct()
    with sqlite3.connect(kgen_home / "kgen.db") as connection:
        query = "SELECT DISTINCT json_extract(conditions, '$.sm_clock_mhz') FROM timing WHERE depth = 'final'"
        assert connection.execute(query).fetchall() == [(1980.0,)]
    connection.close()


@pytest.fixture
def answer(scripted: type[Scripted], folder: Path) -> Callable[..., Any]:
    """What the command prints of the scripted evaluator's answer."""
    return lambda *options: CliRunner().invoke(main, ["eval", "made_up.py", "file.py", "--device", "cpu", *options])


def test_result_shows_conditions_baselines_and_labels(answer: Callable[..., Any]) -> None:
    out = answer("-q").stdout
    assert out.startswith("ok: right, and faster than eager: 2.000x [2.000, 2.000]\n")
    for fact in ("cache warm, sm clock mhz 1980", "compile 5 ms, eager 4 ms", "library only", "0.25 ms once"):
        assert fact in out


def test_problem_that_cannot_tell_right_from_wrong_is_marked(
    answer: Callable[..., Any], scripted: type[Scripted]
) -> None:
    scripted.health_passed_by = ("zeros",)
    assert "zeros would pass as right" in answer("-q").stdout


def test_notices_go_to_stderr_beside_json(answer: Callable[..., Any], scripted: type[Scripted]) -> None:
    told = answer("--json")
    assert (told.exit_code, told.stdout[0], told.stdout[-2:]) == (0, "{", "}\n")
    assert told.stderr == "kgen: waiting for cpu\n"


def test_quiet_tells_no_notices(answer: Callable[..., Any], scripted: type[Scripted]) -> None:
    told = answer("--json", "-q")
    assert (told.exit_code, told.stderr) == (0, "")
