"""Sweeps from end to end: the command line, compilers, a database, and processes that are killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from running import BRIEF, PROBLEM, SHORT_SWEEP, Ended, Home, wait, wait_for_event

from kgen.devices.kinds import KINDS

GOOD = """
import torch
import torch.nn as nn

batch_size = 8

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(batch_size, 16)]
"""


# A sweep that runs to its end ------------------------------------------------------------------------------------


def test_json_tells_each_event_as_one_object(swept: tuple[Home, Ended]) -> None:
    # Notices come between: where a machine's speed changes much, that finals are timed once more.
    kinds = [event["event"] for event in swept[1].events if event["event"] != "notice"]
    assert kinds[0] == "started" and kinds[-2:] == ["finals", "finished"]
    assert kinds.count("measured") == 1 and kinds.count("evaluated") >= 1


def test_finished_sweep_names_a_winner_that_is_twice_as_fast_as_sweeping_for_each_operator(
    swept: tuple[Home, Ended],
) -> None:
    finished = swept[1].events[-1]
    leaders = {leader["candidate"] or leader["name"]: leader for leader in finished["leaders"]}
    assert (swept[1].code, finished["state"], finished["beats_baseline"]) == (0, "finished", True)
    assert leaders[finished["best"]]["speedup_low"] > 1
    assert leaders["eager"]["speedup"] == 1


def test_each_candidate_is_a_row_with_its_source_and_raw_samples(swept: tuple[Home, Ended]) -> None:
    home, ended = swept
    judged = {event["candidate"]: event["status"] for event in ended.events if event["event"] == "evaluated"}
    assert dict(home.ask("SELECT candidate_id, status FROM evaluation")) == judged
    assert dict(home.ask("SELECT candidate_id, status FROM trial")) == judged
    assert {row[0] for row in home.ask("SELECT candidate_id FROM source")} == set(judged)
    timed = {row[0] for row in home.ask("SELECT subject FROM timing WHERE json_array_length(bursts) > 0")}
    assert timed == {"eager"} | {candidate for candidate, status in judged.items() if status == "ok"}


def test_combinations_that_are_ruled_out_are_rows_with_their_reason(swept: tuple[Home, Ended]) -> None:
    home, ended = swept
    assert home.ask("SELECT count(*) FROM rejection WHERE reason <> ''") == [(ended.events[0]["rejected"],)]


def test_history_lists_the_sweep_with_its_arguments(swept: tuple[Home, Ended]) -> None:
    home, ended = swept
    [row] = home.typed("history", "--json").json
    assert (row["sweep"], row["state"], row["device"]) == (ended.events[0]["sweep"], "finished", "cpu")
    assert row["arguments"]["baselines"] == ["eager"]
    assert row["sweep"][:12] in home.typed("history").out


def test_show_tells_of_a_sweep(swept: tuple[Home, Ended]) -> None:
    home, ended = swept
    sweep, best = ended.events[0]["sweep"], ended.events[-1]["best"]
    shown = home.typed("show", sweep[:8], "--json").json
    assert (shown["kind"], shown["sweep"]) == ("sweep", sweep)
    assert best in {leader["candidate"] for leader in shown["leaders"]}
    assert best[:12] in home.typed("show", sweep).out


def test_show_tells_of_a_candidate_its_source_and_its_log(swept: tuple[Home, Ended]) -> None:
    home, ended = swept
    best = ended.events[-1]["best"]
    shown = home.typed("show", best[:12], "--json").json
    assert (shown["kind"], shown["evaluations"][0]["status"]) == ("candidate", "ok")
    assert home.typed("show", best, "--source").out == Path(shown["file"]).read_text()
    assert "[ok]" in home.typed("show", best, "--log").out


def test_no_process_outlives_a_sweep(swept: tuple[Home, Ended]) -> None:
    assert swept[0].strays() == []


# A sweep without success, and one that is refused ----------------------------------------------------------------


def test_sweep_in_which_nothing_is_right_says_why_most_failed_with_exit_code_1(
    tmp_path: Path, one_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "cpu", replace(KINDS["cpu"], final_seconds=0.5))
    tools = Path(tempfile.mkdtemp())
    tools.chmod(0o755)  # builds run as another user
    compiler = tools / "c++"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-version*) exec g++ "$@" ;; esac\necho "error: out of order" >&2\nexit 1\n')
    compiler.chmod(0o755)
    ended = Home(tmp_path).typed(*SHORT_SWEEP, "--budget", "2", "-q", CXX=str(compiler))
    assert (ended.code, len(ended.told)) == (1, 1)
    assert "own was right: 1 of 1 ended as build_error" in ended.err and "out of order" in ended.err


@pytest.mark.exhaustive  # beside failures of the evaluator in test_devices, and a killed compiler in test_build
def test_candidate_whose_compilers_were_killed_is_tried_again_by_the_next_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "cpu", replace(KINDS["cpu"], final_seconds=0.5))
    tools, home = Path(tempfile.mkdtemp()), Home(tmp_path)
    tools.chmod(0o755)  # builds run as another user
    compiler = tools / "c++"
    statuses = "SELECT DISTINCT status FROM trial JOIN candidate ON candidate.id = candidate_id WHERE NOT control"
    for kill, status in (("kill -9 $$", "infra_error"), (":", "ok")):
        compiler.write_text(f'#!/bin/sh\ncase "$*" in *-version*) ;; *) {kill} ;; esac\nexec g++ "$@"\n')
        compiler.chmod(0o755)
        home.typed(*SHORT_SWEEP, "--budget", "2", "-q", CXX=str(compiler))
        sweep_id = "(SELECT id FROM sweep ORDER BY started_at DESC LIMIT 1)"
        assert home.ask(f"{statuses} AND sweep_id = {sweep_id}") == [(status,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("nn.Module):", "nn.Module:"), "problem.py:7: syntax error"),
        (("class Model", "class Other"), "has no class Model"),
        (("import torch\n", "import torch, not_there\n"), "problem.py:2: the file raised ModuleNotFoundError"),
        (("return [torch", "raise ValueError('none today')\n    return [torch"), "get_inputs() raised ValueError: none"),
        (("16)]", "16, dtype=torch.float64)]"), "an input is torch.float64: kgen takes float32, bfloat16 and float16"),
        (("return torch.relu(x)", "return x * x.sum().item() if x.sum() > 0 else x"), "forward cannot be captured"),
        (("return torch.relu(x)", "raise ValueError('never')"), "ValueError: never"),
    ],
)  # fmt: skip
def test_problem_that_does_not_serve_is_one_line_and_exit_code_2(
    tmp_path: Path, one_server: None, change: tuple[str, str], message: str
) -> None:
    assert change[0] in GOOD
    (tmp_path / "problem.py").write_text(GOOD.replace(*change))
    refused(Home(tmp_path).typed("sweep", "problem.py", "--device", "cpu", "--baselines", "eager"), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "gpu"], "'gpu' is no device: say cpu, cuda or cuda:N"),
        (["--device", "cuda"], "cuda:0: torch sees no CUDA device here"),
        (["--device", "cpu", "--accuracy", "tf32"], "the CPU has no TF32"),
        (["--db", "problem.py"], "problem.py: is not a kgen database"),
    ],
)
def test_option_that_does_not_serve_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "problem.py").write_text(GOOD)
    refused(Home(tmp_path).typed("sweep", "problem.py", *options), message)
    assert (tmp_path / "problem.py").read_text() == GOOD


def test_missing_compiler_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    refused(Home(tmp_path).typed("sweep", PROBLEM, "--device", "cpu", PATH=str(tmp_path), CXX="g++"), "g++ cannot be run")


def test_compiler_that_torch_does_not_build_with_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "g++").symlink_to(shutil.which("g++"))
    home = Home(tmp_path)
    refused(home.typed(*SHORT_SWEEP, "-q", PATH=str(tmp_path / "tools")), "c++ cannot be run")
    assert home.ask("SELECT count(*) FROM evaluation") == [(0,)]


def test_read_only_folder_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    refused(wait(start_on_a_disk(Home(tmp_path), "size=1m,ro", *SHORT_SWEEP)), "kgen.db: cannot be opened")


def test_full_disk_is_one_line_and_exit_code_2_and_nothing_judged_is_lost(tmp_path: Path) -> None:
    home = Home(tmp_path)
    process = start_on_a_disk(home, "size=32m", *SHORT_SWEEP, "--budget", "3", "--json")
    wait_for_event(process, "evaluated")
    (home.folder / "fill").touch()
    ended = wait(process)
    assert (ended.code, len(ended.told)) == (2, 1), ended.err
    assert "full" in ended.err or "No space left" in ended.err
    told = [event for event in ended.events if event["event"] == "evaluated"]
    assert home.ask("SELECT count(*) FROM evaluation")[0][0] >= 1 + len(told)
    assert home.ask("PRAGMA integrity_check") == [("ok",)]


def refused(ended: Ended, message: str) -> None:
    """The command said in one line what was wrong with what it was given."""
    assert (ended.code, ended.out, len(ended.told)) == (2, "", 1), ended
    assert ended.told[0].startswith("kgen: ") and message in ended.err


def start_on_a_disk(home: Home, options: str, *arguments: str) -> subprocess.Popen[str]:
    """``kgen`` with its folder on a disk of its own, mounted with ``options``, which is filled when there is a file
    ``fill``; the database is kept."""
    unshare = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces are not allowed here")
    for name in ("runs", "disk"):
        (home.folder / name).mkdir()
    script = """
        mount -t tmpfs -o "$1" none disk
        shift
        (while ! test -e fill; do sleep 0.2; done; cat /dev/zero >disk/fill) 2>/dev/null &
        "$@"
        code=$?
        kill $! 2>/dev/null
        test -e disk/kgen.db && cp disk/kgen.db* runs
        exit $code
    """
    command = [*unshare, "sh", "-c", script, "sh", options, sys.executable, BRIEF, *arguments]
    # Only root enters the mounts of another process.
    forked = {} if os.getuid() == 0 else {"FORKED_SERVERS": ""}
    return home.popen(command, KGEN_HOME=str(home.folder / "disk"), **forked)
