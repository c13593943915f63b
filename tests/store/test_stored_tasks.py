"""Kernel tasks in the database: found again, listed, exported, and pruned with their sweeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import Filled, candidate, environment

from kgen.errors import InputError
from kgen.protocol import Status
from kgen.store import Database, exchange, pruning, tasks
from kgen.store.kernel_task import THE_LIBRARY, Measured, Operand, TaskKey, Variant
from kgen.store.selection import Selection

VARIANT = Variant.of("pointwise", {"block": 256})


def key(program: str = "p" * 64) -> TaskKey:
    operands = (Operand.dense("input", (8, 3, 4), "float32"), Operand.dense("weight", (), "float32"))
    return TaskKey(program, False, "3", operands, "fp32", "cpu", "a cpu", "avx2", "g++ 12", 2)


def right(ms: float, variant: Variant = VARIANT) -> Measured:
    return Measured(variant, "t" * 64, Status.OK, "", 1.5 * ms, 0.5 * ms, 1e-7, 2e-7)


def fill(filled: Filled, of: TaskKey | None = None) -> tasks.StoredResult:
    """A task with two right variants and one wrong one, and a candidate of one step. Returns the better result."""
    of = of or key()
    tasks.add_tasks(filled.database, filled.sweep, [tasks.NewTask(of, "pointwise[relu]", 0.25, 3)])
    place = environment().id
    found = tasks.add_result(filled.database, of.id, place, right(0.5))
    tasks.add_result(filled.database, of.id, place, right(0.75, THE_LIBRARY))
    tasks.add_result(filled.database, of.id, place, Measured(VARIANT, "u" * 64, Status.WRONG_VALUES, "its error is 1"))
    filled.judge(candidate("assembled"))
    tasks.add_steps(filled.database, candidate("assembled").id, [tasks.Step("k0", of.id, found.id), tasks.Step("linear", of.id, None, "why")])
    return found


def test_operand_has_the_strides_of_a_dense_tensor() -> None:
    assert Operand.dense("input", (8, 3, 4), "float32").strides == (12, 4, 1)


def test_identity_is_read_back_from_json() -> None:
    assert TaskKey.from_json(json.loads(json.dumps(key().to_json()))).id == key().id


def test_results_are_found_by_task_and_environment(filled: Filled) -> None:
    fill(filled)
    found = tasks.known(filled.database, [key().id, "f" * 64], environment().id)
    assert {(r.variant, r.status) for r in found[key().id]} == {
        (VARIANT, Status.OK), (THE_LIBRARY, Status.OK), (VARIANT, Status.WRONG_VALUES)}  # fmt: skip
    assert not tasks.known(filled.database, [key().id], environment("another cpu").id)


def test_steps_of_a_candidate_have_shares_and_reasons(filled: Filled) -> None:
    fill(filled)
    own, library = tasks.steps(filled.database, candidate("assembled").id)
    assert (own.ms, own.share, own.of_limit, own.variant) == (0.5, 1.0, 0.5, VARIANT)
    assert (library.ms, library.variant, library.reason) == (None, None, "why")


def test_list_has_the_fastest_variant_beside_the_library(filled: Filled) -> None:
    fill(filled)
    (row,) = tasks.listed(filled.database, among=Selection())
    assert (row.tried, row.right, row.best, row.ms, row.library_ms, row.sweeps) == (3, 2, VARIANT, 0.5, 0.75, 1)
    assert tasks.listed(filled.database, name="another", among=Selection()) == []


def test_tasks_go_with_the_last_sweep_that_has_them(filled: Filled) -> None:
    fill(filled)
    other = filled.start(budget=3)
    tasks.add_tasks(filled.database, other, [tasks.NewTask(key(), "pointwise[relu]", 0.25, 1)])
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, None)
    filled.database.finish_sweep(other, "interrupted", 1.0, None)
    pruned = pruning.prune(filled.database, among=Selection(status="finished"), really=True)
    assert pruned.rows["sweep_task"] == 1 and not pruned.rows.get("task_result")
    pruned = pruning.prune(filled.database, among=Selection(), really=True)
    assert (pruned.rows["task"], pruned.rows["task_result"]) == (1, 3)


def exported(database: Database, path: Path) -> Path:
    path.write_text("".join(f"{line}\n" for line in exchange.export(database, among=Selection())))
    return path


def test_tasks_are_exported_and_imported(filled: Filled, tmp_path: Path) -> None:
    fill(filled)
    file = exported(filled.database, tmp_path / "history.jsonl")
    with Database.open(str(tmp_path / "other.db")) as other:
        exchange.bring_in(other, [file])
        assert tasks.steps(other, candidate("assembled").id) == tasks.steps(filled.database, candidate("assembled").id)
        assert tasks.listed(other, among=Selection()) == tasks.listed(filled.database, among=Selection())
        assert not any(exchange.bring_in(other, [file]).written.values())


def test_imported_task_must_be_the_one_that_its_id_names(filled: Filled, tmp_path: Path) -> None:
    fill(filled)
    file = exported(filled.database, tmp_path / "history.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line.get("table") == "task":
            line["row"]["identity"]["threads"] = 64
        line.pop("crc", None)
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with Database.open(str(tmp_path / "other.db")) as other, pytest.raises(InputError, match="not the one that its id names"):
        exchange.bring_in(other, [file])
