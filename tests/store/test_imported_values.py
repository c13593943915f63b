"""Rows that kgen never writes are not imported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from samples import Filled, candidate

from kgen import paths
from kgen.candidate import Rejection
from kgen.errors import InputError
from kgen.store import Database, exchange
from kgen.store.selection import EVERY

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def other(tmp_path: Path, newest: Path) -> Iterator[Database]:
    with Database.open(str(shutil.copy(newest, tmp_path / "other.db"))) as opened:
        yield opened


@pytest.fixture
def history(filled: Filled) -> list[dict[str, Any]]:
    """A finished sweep with a winner, line by line, without checksums."""
    winner = candidate("winner")
    filled.finish(winner, 1.4, 1.5, 1.6)
    filled.database.add_rejections(filled.sweep, [Rejection(winner.plan, {}, "threads", "too many")])
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, candidate("winner").id)
    found = [json.loads(line) for line in exchange.export(filled.database, among=EVERY)]
    return [{key: value for key, value in line.items() if key != "crc"} for line in found]


def written(history: list[dict[str, Any]], folder: Path) -> list[Path]:
    file = folder / "history.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in history))
    return [file]


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("evaluation", lambda row: row.update(log="/etc/passwd"), "'/etc/passwd', which is no log of kgen"),
        ("evaluation", lambda row: row.update(log="/x/logs/../secret.log"), "no log of kgen"),
        ("evaluation", lambda row: row["build"].update(log="/etc/shadow"), "evaluation.build.log"),
        ("evaluation", lambda row: row.update(median_ms=-1.0), "evaluation.median_ms is -1.0"),
        ("evaluation", lambda row: row.update(seconds={"load": -1}), "evaluation.seconds is -1, below zero"),
        ("evaluation", lambda row: row.update(reason="\x1b[31mred"), r"control character '\\x1b'"),
        ("trial", lambda row: row.update(speedup=-3.0), "trial.speedup is -3.0"),
        ("trial", lambda row: row.update(speedup_high=0.0), "must be above zero"),
        ("trial", lambda row: row.update(baselines={"eager": 0}), "trial.baselines is 0"),
        ("timing", lambda row: row.update(bursts=[[0.0, 0.0]]), "a burst of zeros"),
        ("timing", lambda row: row.update(bursts=[[1.0, -1.0]]), "timing.bursts is -1.0, below zero"),
        ("timing", lambda row: row.update(bursts=[["inf"]]), "no number"),
        ("timing", lambda row: row.update(prepare_ms=-0.5), "below zero"),
        ("candidate", lambda row: row.update(plan="a\x07b"), "control character"),
        ("candidate", lambda row: row.update(params={"k\x1b": 1}), "candidate.params has the control character"),
        ("candidate", lambda row: row["plan_data"]["steps"].append("gelu"), "candidate.plan_data is no plan: a step is 'gelu'"),
        ("candidate", lambda row: row["plan_data"]["steps"].pop(), "candidate.plan_data is the plan"),
        ("candidate", lambda row: row["plan_data"]["steps"][1].update(kernel="k7"), "another mode or kernel"),
        ("candidate", lambda row: row["plan_data"]["steps"][1].update(operators=["\x1b"]), "control character"),
        ("candidate", lambda row: row["plan_data"].pop("rewrites"), "candidate.plan_data is no plan: the plan is"),
        ("candidate", lambda row: row.update(plan="a plan"), "and the row's is 'a plan'"),
        ("sweep", lambda row: row.update(seconds=-1), "sweep.seconds is -1"),
        ("sweep", lambda row: row.update(budget=-1), "sweep.budget is -1"),
        ("sweep", lambda row: row.update(started_at="0001-01-01T00:00:00+14:00"), "out of range"),
    ],
)
def test_row_that_kgen_never_writes_is_not_imported(
    history: list[dict[str, Any]], other: Database, tmp_path: Path, table: str, change: Change, message: str
) -> None:
    change(next(line["row"] for line in history if line.get("table") == table))
    with pytest.raises(InputError, match=message):
        exchange.bring_in(other, written(history, tmp_path))


def test_number_that_is_too_large_for_a_float_is_not_imported(
    history: list[dict[str, Any]], other: Database, tmp_path: Path
) -> None:
    [file] = written(history, tmp_path)
    file.write_text(file.read_text().replace('"speedup": 1.5', '"speedup": 1e999'))
    with pytest.raises(InputError, match="trial.speedup is inf, which is no number"):
        exchange.bring_in(other, [file])


@pytest.mark.parametrize("version", [-1, 0, True])
def test_version_that_no_kgen_wrote_is_not_imported(
    history: list[dict[str, Any]], other: Database, tmp_path: Path, version: int
) -> None:
    history[0]["kgen_history"] = version
    with pytest.raises(InputError, match="line 1: is not the beginning of a history"):
        exchange.bring_in(other, written(history, tmp_path))


def test_control_characters_in_a_stored_reason_are_exported_as_signs(filled: Filled) -> None:
    filled.judge(candidate("wrong"), reason="\x1b[31mred")
    text = "\n".join(exchange.export(filled.database, among=EVERY))
    assert "?[31mred" in text and "\\u001b" not in text


def test_log_outside_of_kgens_folder_is_not_read(kgen_home: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    outside, inside = tmp_path / "logs" / "secret.log", kgen_home / "logs" / "own.log"
    inside.parent.mkdir(parents=True)
    for file in (outside, inside):
        file.write_text("text")
    (kgen_home / "logs" / "link.log").symlink_to(outside)
    assert paths.read_log(str(inside)) == "text"
    assert paths.read_log(str(outside)) is None and paths.read_log(str(kgen_home / "logs" / "link.log")) is None
