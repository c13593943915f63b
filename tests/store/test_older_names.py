"""Histories of earlier commits, which stored plans by their names alone: migrated, imported, and swept on from.

``older/history_1.jsonl.gz`` was exported by commit e249efd, whose plans and parameters had other names. It has two
finished sweeps of ``linear_batchnorm_scale_softmax`` in train mode, one on a CPU and one for sm_90, with two rendered
candidates each and one rejection of each constraint. ``older/history_2.jsonl.gz`` was exported by commit 78cb742. It has
the same in both modes, with the control as a third candidate, and a file that ``kgen eval`` judged.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import postgres
import pytest
from models import NAMES, design, reference
from samples import Filled, environment
from sqlalchemy import insert

from kgen.candidate import Plan, Rejection
from kgen.devices.hardware import Hardware, cpu, for_arch
from kgen.protocol import Status
from kgen.store import Database, connections, exchange, models, queries, renamed, schema
from kgen.store.results import Trial
from kgen.store.selection import EVERY
from kgen.tuning.sweep import promising
from kgen.views import chain, text

BACKENDS = ("sqlite", "postgresql")
OLDER = Path(__file__).parent / "older"

#: The revision of the database that each history was exported from.
REVISIONS = {"history_1": "0002", "history_2": "0004"}

#: The plans of the first history's candidates by the kind of device, in the order of their times.
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


def rows(history: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of the history, each with the name of its table."""
    for line in gzip.decompress((OLDER / f"{history}.jsonl.gz").read_bytes()).decode().splitlines()[1:-1]:
        item = json.loads(line)
        yield item["table"], item["row"]


def fill(url: str, history: str) -> None:
    """Make the database of that commit."""
    older = connections.Connections(url)
    schema.migrate(older, REVISIONS[history])
    tables = models.Base.metadata.tables
    with older.write() as connection:
        for name, row in rows(history):
            times = {column: datetime.fromisoformat(row[column]) for column in row if column.endswith("_at") and row[column]}
            connection.execute(insert(tables[name]), row | times)
    older.close()


def import_history(url: str, history: str, folder: Path) -> None:
    """Import the history into an empty database."""
    file = folder / "history.jsonl"
    file.write_bytes(gzip.decompress((OLDER / f"{history}.jsonl.gz").read_bytes()))
    with Database.open(url) as database:
        exchange.bring_in(database, [file])


def opened(how: str, history: str, url: str, folder: Path) -> Database:
    """The history in a database of today."""
    if how == "migrated":
        fill(url, history)
    else:
        import_history(url, history, folder)
    return Database.open(url)


class Histories:
    """The histories in databases of today, each made once: files in a folder, or databases of a PostgreSQL server."""

    def __init__(self, folder: Path, server: postgres.Server | None) -> None:
        self._folder, self._server = folder, server
        self._made: set[str] = set()

    @contextmanager
    def copied(self, how: str, history: str) -> Iterator[Database]:
        """A copy of a history."""
        name = f"{how}_{history}"
        if name not in self._made:
            self._run(f"CREATE DATABASE {name}")
            opened(how, history, self._url(name), self._folder).close()
            self._made.add(name)
        self._run(f"CREATE DATABASE copied TEMPLATE {name}")
        if self._server is None:
            shutil.copy(self._folder / f"{name}.db", self._folder / "copied.db")
        with Database.open(self._url("copied")) as found:
            yield found
        self._run("DROP DATABASE copied WITH (FORCE)")

    def _url(self, name: str) -> str:
        return f"sqlite:///{self._folder}/{name}.db" if self._server is None else self._server.url(name)

    def _run(self, statement: str) -> None:
        if self._server is not None:
            self._server.run(statement)


@pytest.fixture(scope="module", params=BACKENDS)
def histories(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Histories:
    server = request.getfixturevalue("postgres_server") if request.param == "postgresql" else None
    return Histories(tmp_path_factory.mktemp("older"), server)


@pytest.fixture(params=["migrated", "imported"])
def database(request: pytest.FixtureRequest, histories: Histories) -> Iterator[Database]:
    """The first history."""
    with histories.copied(request.param, "history_1") as found:
        yield found


@pytest.fixture(params=["migrated", "imported"])
def second(request: pytest.FixtureRequest, histories: Histories) -> Iterator[Database]:
    """The second history."""
    with histories.copied(request.param, "history_2") as found:
        yield found


def trials(database: Database, device: str) -> list[Trial]:
    """The candidates of the sweep on this kind of device."""
    swept = [row for row in queries.sweeps(database) if row.kind == "sweep" and row.tried]
    (row,) = [row for row in swept if row.environment.device_type == device]
    return list(queries.sweep(database, row.id).leaders)


@pytest.mark.parametrize("device", PLANS)
def test_plans_have_their_names_of_today(database: Database, device: str) -> None:
    assert sorted(trial.plan for trial in trials(database, device)) == sorted(PLANS[device])


def test_parameters_have_their_names_of_today(database: Database) -> None:
    for trial in trials(database, "cuda"):
        assert (trial.params["k0.promotion_interval"], trial.params["k0.swizzle_group"]) == (16, 16)
        assert not {"k0.interval", "k0.band"} & trial.params.keys()


def test_sources_keep_the_text_that_was_measured(database: Database) -> None:
    for table, row in rows("history_1"):
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


NORMALISED = ("inner_reduction", ["normalise", "mul", "softmax"])
FOLDED = ["batchnorm_to_affine", "merge_affine", "fold_batchnorm_into_linear"]
CONTROL = Plan.of_mode([("", [name]) for name in ("linear", "batch_norm", "mul", "softmax")])


def both_modes(train: Plan, evaluated: Plan) -> Plan:
    return Plan.of_modes([("train", train), ("eval", evaluated)])


#: The plans of the second history's candidates by the kind of device, the fastest first, and how a table shows them.
SECOND = {
    "cpu": {
        both_modes(
            Plan.of_mode([("contraction", ["linear"]), ("outer_reduction", ["moments"]), NORMALISED]),
            Plan.of_mode([("contraction", ["linear"]), ("inner_reduction", ["softmax"])], FOLDED),
        ): "train: 3 kernels / eval: 2 kernels",
        both_modes(
            Plan.of_mode([("contraction", ["linear"]), ("outer_reduction", ["moments"]), NORMALISED]),
            Plan.of_mode([("", ["linear"]), ("inner_reduction", ["softmax"])], FOLDED),
        ): "train: 3 kernels / eval: 1 kernel, 1 library call",
        both_modes(CONTROL, CONTROL): "train: 4 library calls / eval: 4 library calls",
    },
    "cuda": {
        both_modes(
            Plan.of_mode([("contraction", ["linear", "moments"]), NORMALISED]),
            Plan.of_mode([("contraction", ["linear"]), ("inner_reduction", ["softmax"])], FOLDED),
        ): "train: 2 kernels / eval: 2 kernels",
        both_modes(
            Plan.of_mode([("contraction", ["linear", "moments"]), NORMALISED]),
            Plan.of_mode([("", ["linear"]), ("inner_reduction", ["softmax"])], FOLDED),
        ): "train: 2 kernels / eval: 1 kernel, 1 library call",
        both_modes(CONTROL, CONTROL): "train: 4 library calls / eval: 4 library calls",
    },
}


@pytest.mark.parametrize("device", SECOND)
def test_plans_of_both_modes_become_data(second: Database, device: str) -> None:
    found = trials(second, device)
    assert [trial.plan_data for trial in found] == list(SECOND[device])
    assert [queries.candidate(second, trial.candidate).plan_data for trial in found] == list(SECOND[device])


@pytest.mark.parametrize("device", SECOND)
def test_plans_are_shown_as_they_were(second: Database, device: str) -> None:
    assert [text.plan(trial.plan, trial.plan_data) for trial in trials(second, device)] == list(SECOND[device].values())


def test_chain_is_drawn_as_it_was(second: Database) -> None:
    trial = trials(second, "cpu")[1]
    drawn = [(link.operator, link.bracket, link.runs.partition(":")[0]) for link in chain.links(trial.plan_data, trial.params)]
    assert drawn == [
        ("linear", "─", "train.k0 contraction"),
        ("moments", "─", "train.k1 outer_reduction"),
        ("normalise", "┐", "train.k2 inner_reduction"),
        ("mul", "│", ""),
        ("softmax", "┘", ""),
        ("linear", "", "library in eval mode"),
        ("softmax", "─", "eval.k0 inner_reduction"),
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_warm_start_takes_results_of_both_modes_over(second: Database, device: str) -> None:
    loaded = reference(NAMES[1], "both")
    of = design(loaded, DEVICES[device])
    known = {trial.plan: dict(trial.params) for trial in trials(second, device)}
    filled = Filled(second, loaded.problem, environment(f"a {device}", device), device=device)
    found = [of.candidate(point) for point in promising(second, filled.sweep, of, 5)]
    assert {c.plan: dict(c.params) for c in found} == known and len(known) == 3
    assert {c.plan_data for c in found} == set(SECOND[device])


def test_file_from_outside_gets_no_plan(second: Database) -> None:
    (row,) = [row for row in queries.sweeps(second) if row.kind == "eval"]
    (trial,) = queries.of_status(second, row.id, Status.OK)
    assert (trial.plan, trial.plan_data) == ("outside", Plan())


def test_migrated_and_imported_history_are_the_same(tmp_path: Path) -> None:
    lines = []
    for how in ("migrated", "imported"):
        with opened(how, "history_2", f"sqlite:///{tmp_path}/{how}.db", tmp_path) as found:
            lines.append(list(exchange.export(found, among=EVERY))[1:])
    assert lines[0] == lines[1]


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
