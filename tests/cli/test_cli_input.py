"""Bad input and interrupts: one line each, and the exit code."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from samples import Filled
from typed import kgen

from kgen import paths


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
        (["sweep"], "Missing argument 'PROBLEM|DIR...'"),
        (["no_such_command"], "No such command"),
        (["best", "no_such"], "no problem 'no_such'"),
        (["best", "-o", "file.py"], "need a PROBLEM"),
        (["best", "made_up", "--any"], "--any needs -o FILE"),
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
        (["export-history", "history.jsonl"], "history.jsonl was never swept"),
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
