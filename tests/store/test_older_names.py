"""A history of commit e249efd, whose plans and parameters had other names: migrated, imported, and swept on from.

``older/history_1.jsonl.gz`` was exported by that commit. It has two finished sweeps of
``linear_batchnorm_scale_softmax`` in train mode, one on a CPU and one for sm_90, with two rendered candidates each and
one rejection of each constraint.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from models import NAMES, design, reference
from samples import Filled, environment
from sqlalchemy import insert

from kgen.candidate import Rejection
from kgen.devices.hardware import Hardware, cpu, for_arch
from kgen.store import Database, connections, exchange, models, queries, renamed, schema
from kgen.store.results import Trial
from kgen.store.selection import EVERY
from kgen.tuning.sweep import promising

HISTORY = Path(__file__).parent / "older" / "history_1.jsonl.gz"

#: The plans of the candidates by the kind of device, in the order of their times.
PLANS = {
    "cpu": (
        "linear(library) + outer_reduction[moments] + inner_reduction[normalise, mul, softmax]",
        "linear(library) + outer_reduction[moments] + pointwise[normalise] + inner_reduction[mul, softmax]",
    ),
    "cuda": (
        "contraction[linear, moments] + inner_reduction[normalise, mul, softmax]",
        "contraction[linear] + outer_reduction[moments] + pointwise[normalise] + inner_reduction[mul, softmax]",
    ),
}

#: The devices that the candidates were rendered for.
DEVICES: dict[str, Hardware] = {
    "cpu": replace(cpu(), vector_bits=(128, 256, 512), threads=2),
    "cuda": for_arch("sm_90"),
}


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of the history, each with the name of its table."""
    for line in gzip.decompress(HISTORY.read_bytes()).decode().splitlines()[1:-1]:
        item = json.loads(line)
        yield item["table"], item["row"]


def fill(url: str) -> None:
    """Make the database of that commit."""
    older = connections.Connections(url)
    schema.migrate(older, "0002")
    tables = models.Base.metadata.tables
    with older.write() as connection:
        for name, row in rows():
            times = {column: datetime.fromisoformat(row[column]) for column in row if column.endswith("_at") and row[column]}
            connection.execute(insert(tables[name]), row | times)
    older.close()


def import_history(url: str, folder: Path) -> None:
    """Import the history into an empty database."""
    file = folder / "history.jsonl"
    file.write_bytes(gzip.decompress(HISTORY.read_bytes()))
    with Database.open(url) as database:
        exchange.bring_in(database, [file])


@pytest.fixture(params=["migrated", "imported"])
def database(request: pytest.FixtureRequest, empty_url: str, tmp_path: Path) -> Iterator[Database]:
    if request.param == "migrated":
        fill(empty_url)
    else:
        import_history(empty_url, tmp_path)
    with Database.open(empty_url) as opened:
        yield opened


def trials(database: Database, device: str) -> list[Trial]:
    """The candidates of the sweep on this kind of device."""
    (row,) = [row for row in queries.sweeps(database) if row.environment.device_type == device]
    return list(queries.sweep(database, row.id).leaders)


@pytest.mark.parametrize("device", PLANS)
def test_plans_have_their_names_of_today(database: Database, device: str) -> None:
    assert sorted(trial.plan for trial in trials(database, device)) == sorted(PLANS[device])


def test_parameters_have_their_names_of_today(database: Database) -> None:
    for trial in trials(database, "cuda"):
        assert (trial.params["k0.promotion_interval"], trial.params["k0.swizzle_group"]) == (16, 16)
        assert not {"k0.interval", "k0.band"} & trial.params.keys()


def test_sources_keep_the_text_that_was_measured(database: Database) -> None:
    for table, row in rows():
        if table == "source":
            assert queries.source(database, row["candidate_id"]) == row["text"]


@pytest.mark.parametrize("device", DEVICES)
def test_warm_start_takes_the_results_over(database: Database, device: str) -> None:
    loaded = reference(NAMES[1], "train")
    of = design(loaded, DEVICES[device])
    known = [(trial.plan, dict(trial.params)) for trial in trials(database, device)]
    filled = Filled(database, loaded.problem, environment(f"a {device}", device), device=device)
    found = [of.candidate(point) for point in promising(database, filled.sweep, of, 5)]
    assert sorted(c.plan for c in found) == sorted(plan for plan, _ in known) and len(known) == 2
    params = {c.plan: c.params for c in found}
    assert all(old.items() <= params[plan].items() for plan, old in known)


def test_rejections_that_are_found_again_are_there_once(database: Database) -> None:
    for row in queries.sweeps(database):
        before = _rejections(database, row.id)
        again = [Rejection(r["plan"], r["params"], r["constraint_name"], r["reason"]) for r in before]
        database.add_rejections(row.id, again)
        assert _rejections(database, row.id) == before != []


def _rejections(database: Database, sweep: str) -> list[dict[str, Any]]:
    table = models.Base.metadata.tables["rejection"]
    with database.connections.read() as connection:
        found = connection.execute(table.select().where(table.c.sweep_id == sweep).order_by(table.c.key))
        return [dict(row) for row in found.mappings()]


def test_history_of_today_is_imported_as_it_is(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "again.jsonl"
    file.write_text("".join(f"{line}\n" for line in exchange.export(database, among=EVERY)), encoding="utf-8")
    with Database.open(str(tmp_path / "other.db")) as other:
        exchange.bring_in(other, [file])
        assert all(trials(other, device) == trials(database, device) for device in PLANS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("map[gelu] + row[softmax] after merge_affine", "pointwise[gelu] + inner_reduction[softmax] after merge_affine"),
        (
            "train: column[mul, statistics] / eval: gemm[linear]",
            "train: outer_reduction[mul, moments] / eval: contraction[linear]",
        ),
        ("linear(library) + softmax(library)", "linear(library) + softmax(library)"),
        ("pointwise[statistics_of_mine]", "pointwise[statistics_of_mine]"),
    ],
)
def test_plan_is_renamed(old: str, new: str) -> None:
    assert renamed.plan(old) == new


def test_parameters_of_other_names_stay() -> None:
    old = {"train.k0.band": 8, "eval.k12.interval": 64, "k0.bandwidth": 1, "band": 2, "k0.tile": "64x64"}
    new = {"train.k0.swizzle_group": 8, "eval.k12.promotion_interval": 64, "k0.bandwidth": 1, "band": 2, "k0.tile": "64x64"}
    assert list(renamed.params(old).items()) == list(new.items())


def test_file_from_outside_keeps_its_name() -> None:
    row = {"origin": "file", "plan": "row[1].py", "params": {"k0.band": 1}}
    assert renamed.candidate(row) == row
