"""The tuner stores each result at once, finds what is known, and leaves out what cannot be measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from judges import CheapBuilder
from networks import NETWORK, RELATIVE, Desk, QuickBench, Told, design, takes
from samples import Filled, candidate

from kgen.protocol import Status
from kgen.store import Database, tasks
from kgen.store.kernel_task import Measured, Variant
from kgen.store.selection import Selection
from kgen.tuning import events, network_tasks
from kgen.tuning.network import catalogue, with_library
from kgen.tuning.search import Point
from kgen.tuning.tasks import assembly, tuner

NEVER = math.inf


@pytest.fixture
def filled(newest: Path, tmp_path: Path) -> Iterator[Filled]:
    with Database.open(str(tmp_path / "tasks.db")) as database:
        yield Filled(database)


def right(variant: Variant) -> Measured:
    return takes(2.0 if not variant.schedule else 1.0 + len(str(variant.params)) / 1000)


def make(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, tell: Callable[[Variant], Measured] = right, *, source: str = "",
    builder: CheapBuilder | None = None, told: Told | None = None, fresh: bool = False,
) -> tuple[tuner.Tuner, QuickBench]:  # fmt: skip
    bench, desk = QuickBench(tell), Desk()
    monkeypatch.setattr(tuner, "Bench", bench)
    found = catalogue(design(source) if source else design(), desk.environment)
    lost: list[object] = []
    made = tuner.Tuner(
        found, desk, builder or CheapBuilder(), filled.database, filled.sweep, jobs=2, home=Path("."), fresh=fresh,
        on_event=told or Told(), failed=lambda task, error: lost.append(error),
    )  # fmt: skip
    return made, bench


def stored(filled: Filled) -> int:
    return sum(row.tried for row in tasks.listed(filled.database, among=Selection()))


def test_each_task_is_measured_in_several_variants_and_in_the_library(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    made, bench = make(filled, monkeypatch)
    made.run(NEVER)
    own = [work for work in made.works.values() if work.task.kernel]
    assert own and all(sum(bool(v.schedule) for v in work.found) >= min(tuner.ROUNDS[0], len(work.variants) - 1) for work in own)
    assert all(any(not v.schedule for v in work.found) for work in own)
    assert stored(filled) == len(bench.measured)


def test_results_before_a_kill_are_stored_and_not_measured_again(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0

    def killed(variant: Variant) -> Measured:
        nonlocal count
        count += 1
        if count > 5:
            raise KeyboardInterrupt
        return right(variant)

    made, _ = make(filled, monkeypatch, killed)
    with pytest.raises(KeyboardInterrupt):
        made.run(NEVER)
    assert stored(filled) == 5
    made, bench = make(filled, monkeypatch)
    made.run(NEVER)
    assert stored(filled) == len(bench.measured) + 5


def test_second_network_of_a_family_measures_only_what_is_new(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    made, first = make(filled, monkeypatch)
    made.run(NEVER)
    relative, second = make(filled, monkeypatch, source=RELATIVE)
    shared = set(relative.works) & set(made.works)
    relative.run(NEVER)
    assert shared and len(second.measured) == sum(len(w.found) for key, w in relative.works.items() if key not in shared)


def test_result_of_another_text_is_history(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    made, first = make(filled, monkeypatch)
    made.run(NEVER)
    monkeypatch.setattr(tuner, "text_hash", lambda task, variant: "n" * 64)
    again, second = make(filled, monkeypatch)
    again.run(NEVER)
    assert sorted(map(str, second.measured)) == sorted(map(str, first.measured))


def test_fresh_sweep_measures_everything(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    make(filled, monkeypatch)[0].run(NEVER)
    made, bench = make(filled, monkeypatch, fresh=True)
    made.run(NEVER)
    assert bench.measured


def test_time_that_is_up_measures_nothing(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    made, bench = make(filled, monkeypatch)
    made.run(-math.inf)
    assert not bench.measured


def test_file_that_does_not_build_is_built_variant_by_variant(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(CheapBuilder):
        def build(self, source: str, behind: int = 0):
            many = "_v1" in source
            return super().build(source) if not many else CheapBuilder(lambda source: None).build(source)

    made, bench = make(filled, monkeypatch, builder=Refusing())
    made.run(NEVER)
    assert bench.measured and stored(filled) == len(bench.measured)


def test_wrong_variants_are_no_choice(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Measured(Variant(""), "", Status.WRONG_VALUES, "its error is 1")
    made, _ = make(filled, monkeypatch, lambda variant: right(variant) if dict(variant.params).get("vector_bits", 256) == 256 else wrong)
    made.run(NEVER)
    desk, of = Desk(), design()
    found = catalogue(of, desk.environment)
    times = assembly.option_times(found, {key: work.found for key, work in made.works.items()})[found.best]
    for kernel, part in zip(times.kernels, of.options[found.best].kernels):
        best = min(range(len(part)), key=kernel.ms.__getitem__)
        assert part[best]["vector_bits"] == 256


def test_first_round_is_built_before_it_is_measured(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    class Counting(CheapBuilder):
        def build(self, source: str, behind: int = 0):
            built.append(source)
            return super().build(source)

    made, bench = make(filled, monkeypatch, builder=Counting())
    made.start()
    wait_until(lambda: len(built) > 2)
    assert not bench.measured
    made.run(NEVER)
    made.close()
    assert bench.measured


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    assert holds()


def test_progress_counts_the_tasks_of_a_round(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    made, _ = make(filled, monkeypatch, told=told)
    made.run(NEVER)
    found = [event for event in told.found if isinstance(event, events.Tuning)]
    assert [event.number for event in found[: found[0].of]] == [*range(1, found[0].of + 1)]


def test_kernels_that_are_slower_than_the_library_are_left_to_it_in_a_further_option(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = make(filled, monkeypatch, lambda variant: takes(1.0 if variant.schedule else 0.5))
    made.run(NEVER)
    of, desk = design(), Desk()
    found = catalogue(of, desk.environment)
    softmax = [part.operators for part in found.options[found.best] if part.space is not None][-1]
    results = {
        key: {v: r for v, r in work.found.items() if v.schedule or softmax not in work.parts[0].operators} for key, work in made.works.items()
    }
    more = with_library(of, found, results)
    added = set(more.options) - set(found.options)
    assert added and all("(library)" in of.options[n].name for n in added)
    assert any(any(part.space is None and "slower" in part.reason for part in more.options[n]) for n in added)


def test_steps_of_options_that_are_put_together_are_stored(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "Bench", QuickBench(right))
    of, desk = design(), Desk()
    another = catalogue(design(NETWORK.replace("10)", "12)")), desk.environment)
    more = [part for part in another.options[of.control.option] if part.task and part.task.id not in catalogue(of, desk.environment).tasks]
    monkeypatch.setattr(network_tasks, "with_regions", lambda design, found, *_: replace(found, options={**found.options, 99: tuple(more)}))
    monkeypatch.setattr(network_tasks, "with_library", lambda design, found, results: found)
    made = network_tasks.NetworkTasks(of, desk, CheapBuilder(), 2, filled.database, filled.sweep, False, Told())
    made.option_times(lambda: None, lambda: NEVER)
    found = made.steps(Point(99, ()))
    filled.judge(candidate("assembled"))
    tasks.add_steps(filled.database, candidate("assembled").id, found)
    assert more and [step.task for step in tasks.steps(filled.database, candidate("assembled").id)] == [part.task.id for part in more]
