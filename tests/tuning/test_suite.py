"""Suites: many problems one after the other, what ends one and what does not, and how one goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from designs import CheapDesign
from judges import CheapJudge
from models import captured, made
from running import PROBLEM, Home, wait

from kgen.compiler.capture.capture import Capture
from kgen.errors import CaptureError, DeviceError, EvaluatorError, ProblemError
from kgen.evaluator.pool import DevicePool
from kgen.problems.problem_set import Member, is_set, read_set
from kgen.protocol import Accuracy
from kgen.store import Database, scores
from kgen.store.scores import Score, Verdict
from kgen.tuning import events, suite, sweep

SOURCE = "class Model: ...\n\ndef get_inputs(): ...\n"
TINY = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)

def get_inputs():
    return [torch.rand(8, 64)]
"""


@pytest.fixture(scope="module")
def graphs() -> Capture:
    return captured(made(TINY))


@pytest.fixture
def home(tmp_path: Path, graphs: Capture, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Where suites of this process write to; what they render is cheap."""
    monkeypatch.setattr(sweep, "capture_apart", lambda problem, *_, **__: (problem, graphs))
    monkeypatch.setattr(sweep, "Design", CheapDesign)
    monkeypatch.setenv("KGEN_HOME", str(tmp_path / "runs"))
    return Home(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three problems, the second of which is no Python."""
    made = tmp_path / "level"
    made.mkdir()
    for name in ("1_one", "10_three"):
        (made / f"{name}.py").write_text(f"# {name}\n{SOURCE}")
    (made / "2_two.py").write_text("class Model(:\n")
    (made / "_shared.py").write_text("no problem")
    return made


@dataclass
class Bench:
    """Runs suites of cheap sweeps; ``fails`` has what a problem's evaluator raises, by the problem's name."""

    fails: dict[str, Exception] = field(default_factory=dict)
    interrupt: Callable[[events.Event], bool] = lambda event: False
    news: list[events.Event] = field(default_factory=list)

    def run(self, members: Sequence[Member], sweeps: suite.Sweeps | None = None, **more: object) -> events.SuiteFinished:
        self.news = []
        ask = partial(sweep.SweepRequest, device="cpu", budget=6, jobs=1, strategy="random", **more)
        return suite.run(members, ask, self.told, sweeps or suite.InTurn(self.sweep))

    def sweep(self, request: sweep.SweepRequest, tell: events.Listener) -> events.Finished:
        judge = CheapJudge(request.problem, "cpu", fails=self.fails.get(request.problem.name))
        return sweep.run(request, tell, lambda *_: DevicePool([judge]))

    def told(self, event: events.Event) -> None:
        self.news.append(event)
        if self.interrupt(event):
            raise KeyboardInterrupt

    def of(self, kind: type) -> list:
        return [event for event in self.news if isinstance(event, kind)]

    @property
    def tried(self) -> list[str]:
        return [event.problem for event in self.of(events.ProblemStarted)]

    @property
    def outcomes(self) -> dict[str, str]:
        return {event.problem: event.outcome for event in self.of(events.ProblemEnded)}


def scored(members: Sequence[Member]) -> dict[str, Score]:
    with Database.open() as database:
        return {score.problem: score for score in scores.of_files(database, members)}


# Which problems --------------------------------------------------------------------------------------------------


def test_folder_has_its_problems_in_the_order_of_their_numbers(folder: Path) -> None:
    assert [member.title for member in read_set([str(folder)])] == ["1_one", "2_two", "10_three"]


@pytest.mark.parametrize(
    ("references", "line"),
    [
        (["level", "level/1_one.py"], "level/1_one.py: the same file appears twice"),
        (["level/1_one.py", "./level/1_one.py"], "the same file appears twice"),
        (["empty"], "empty: the folder has no problem"),
        (["."], "name a folder in it: empty, level"),
        (["level/2_two.py", "bad.py"], "the other 1 cannot be read either"),
        (["level", "nosuch"], "no problem 'nosuch'"),
    ],
)
def test_set_that_does_not_serve_is_refused_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, references: list[str], line: str
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "empty").mkdir()
    (folder.parent / "empty" / "_helper.py").write_text("")
    if "bad.py" in references:
        (folder.parent / "bad.py").write_text("import this\n")
    with pytest.raises(ProblemError) as raised:
        read_set(references)
    assert line in str(raised.value) and "\n" not in str(raised.value)


def test_one_file_is_no_set_and_a_folder_is_one(folder: Path) -> None:
    assert not is_set([str(folder / "1_one.py")])
    assert is_set([str(folder)]) and is_set([PROBLEM, str(folder / "1_one.py")])


def test_override_holds_for_each_problem_that_has_the_constant(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"size = 1\n{SOURCE}")
    (tmp_path / "b.py").write_text(SOURCE)
    a, b = read_set([str(tmp_path)], {"size": "2"})
    assert a.title == "a(size=2)"
    assert b.problem is None and "no such module-level constant" in b.reason


# The end of a suite, and of its problems ----------------------------------------------------------------------------


def test_problem_that_cannot_be_read_or_that_fails_does_not_end_the_suite(home: Home, folder: Path) -> None:
    bench = Bench({"1_one": EvaluatorError("a worker did not get ready")})
    finished = bench.run(read_set([str(folder)]))
    assert bench.outcomes == {"1_one": "failed", "2_two": "refused", "10_three": "swept"}
    assert (finished.state, finished.troubled) == ("finished", ("1_one", "2_two"))
    assert finished.counts == {"failed": 1, "refused": 1, "swept": 1}


def test_problem_that_was_refused_or_failed_is_kept_with_the_reason(home: Home, folder: Path) -> None:
    fails = {"1_one": CaptureError("line 3 depends on data"), "10_three": EvaluatorError("the oracle left")}
    members = read_set([str(folder)])
    Bench(fails).run(members)
    found = scored(members)
    assert {name: (score.verdict, score.reason) for name, score in found.items()} == {
        "1_one": (Verdict.REFUSED, "line 3 depends on data"),
        "2_two": (Verdict.REFUSED, members[1].reason),
        "10_three": (Verdict.FAILED, "the oracle left"),
    }


def test_bug_on_one_problem_is_kept_with_the_log_that_has_its_traceback(home: Home, folder: Path) -> None:
    members = read_set([str(folder)])
    Bench({"1_one": KeyError("dropout")}).run(members)
    reason = scored(members)["1_one"].reason or ""
    assert reason.startswith("KeyError: 'dropout' (a bug in kgen")
    assert "KeyError" in next((home.folder / "runs" / "logs" / "failed").iterdir()).read_text()


def test_refused_problem_leaves_no_sweep_behind(home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(design: CheapDesign, point: object) -> None:
        raise CaptureError("Model is imported")

    monkeypatch.setattr(CheapDesign, "candidate", refuse)
    Bench().run(read_set([str(folder / "1_one.py"), str(folder / "10_three.py")]))
    assert home.ask("SELECT count(*) FROM sweep") == [(0,)]
    assert home.ask("SELECT outcome, reason FROM attempt") == 2 * [("refused", "Model is imported")]


def test_device_that_is_missing_ends_the_suite_and_says_nothing_of_the_problem(home: Home, folder: Path) -> None:
    bench = Bench({"1_one": DeviceError("no such device")})
    with pytest.raises(DeviceError):
        bench.run(read_set([str(folder)]))
    assert home.ask("SELECT count(*) FROM attempt") == [(0,)]


def test_verdict_of_each_problem_is_told_as_it_ends(home: Home, folder: Path) -> None:
    bench = Bench()
    bench.run(read_set([str(folder)]))
    ended = {event.problem: event for event in bench.of(events.ProblemEnded)}
    assert ended["2_two"].verdict == "refused" and "syntax error" in ended["2_two"].reason
    assert ended["1_one"].verdict == "faster" and ended["1_one"].speedup.low > 1


# How a suite goes on ---------------------------------------------------------------------------------------------


def second_candidate_of(name: str, bench: Bench) -> Callable[[events.Event], bool]:
    def interrupts(event: events.Event) -> bool:
        return bench.tried[-1:] == [name] and isinstance(event, events.Evaluated) and event.number == 2

    return interrupts


def test_interrupted_suite_ends_with_what_it_has_and_goes_on_where_it_was(home: Home, folder: Path) -> None:
    members = read_set([str(folder), PROBLEM])
    bench = Bench()
    bench.interrupt = second_candidate_of("10_three", bench)
    finished = bench.run(members)
    assert (finished.state, finished.counts["swept"], finished.counts["left"]) == ("interrupted", 1, 1)
    assert scored(members)["10_three"].verdict is Verdict.NOT_SWEPT

    again = Bench()
    finished = again.run(members)
    assert again.tried == ["10_three", "long_tail"]
    assert again.of(events.SuiteStarted)[0].ended == 2
    assert again.of(events.Started)[0].found_done >= 2  # some may be committed together with the second
    assert (finished.state, finished.counts) == ("finished", {"swept": 3, "refused": 1})


def test_suite_that_has_ended_tries_again_only_what_was_refused_or_failed(home: Home, folder: Path) -> None:
    members = read_set([str(folder)])
    Bench({"1_one": EvaluatorError("out of memory")}).run(members)
    again = Bench()
    assert again.run(members).counts == {"swept": 2, "refused": 1}
    assert again.tried == ["1_one", "2_two"]


def test_other_arguments_begin_the_suite_anew(home: Home, folder: Path) -> None:
    members = read_set([str(folder)])
    Bench().run(members)
    other = Bench()
    other.run(members, seed=1)
    assert other.tried == ["1_one", "2_two", "10_three"]


def test_fresh_suite_starts_over(home: Home, folder: Path) -> None:
    members = read_set([str(folder)])
    Bench().run(members)
    fresh = Bench()
    fresh.run(members, fresh=True)
    assert fresh.tried == ["1_one", "2_two", "10_three"]


def test_suite_in_another_class_of_accuracy_is_another_one(home: Home, folder: Path) -> None:
    members = read_set([str(folder)])
    Bench().run(members)
    other = Bench()
    other.run(members, accuracy=Accuracy.KERNELBENCH)
    assert other.tried == ["1_one", "2_two", "10_three"]


def test_file_that_was_changed_is_swept_again(home: Home, folder: Path) -> None:
    Bench().run(read_set([str(folder)]))
    file = folder / "1_one.py"
    file.write_text(file.read_text() + "\n")
    changed = Bench()
    changed.run(read_set([str(folder)]))
    assert changed.tried == ["1_one"]


def test_problem_in_another_mode_is_another_one(home: Home, folder: Path) -> None:
    Bench().run(read_set([str(folder)]))
    other = Bench()
    other.run(read_set([str(folder)], mode="eval"))
    assert other.tried[0] == "1_one"


# Several at once -------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """Runs two sweeps at once. Each waits for the other one to begin, or for an interrupt."""

    bench: Bench
    at_once: int = 2
    both: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=10))

    def run(self, request: sweep.SweepRequest, tell: events.Listener) -> events.Finished:
        try:
            self.both.wait()
        except threading.BrokenBarrierError:
            tell = self.interrupted
        return self.bench.sweep(request, tell)

    def interrupt(self) -> None:
        self.both.abort()

    def interrupted(self, event: events.Event) -> None:
        if isinstance(event, events.Evaluated):
            raise KeyboardInterrupt


def test_problems_that_are_swept_at_once_come_to_the_same_outcomes(home: Home, folder: Path) -> None:
    bench = Bench()
    finished = bench.run(read_set([str(folder)]), sweeps=Pair(bench))
    assert finished.counts == {"swept": 2, "refused": 1}
    beside = {(event.number, event.problem) for event in bench.of(events.Beside)}
    assert beside == {(1, "1_one"), (3, "10_three")}


def test_interrupt_ends_all_problems_that_are_swept_at_once(home: Home, folder: Path) -> None:
    (folder / "2_two.py").unlink()
    (folder / "10_three.py").rename(folder / "alone.py")
    for name in ("1_one", "alone"):
        (folder / f"{name}.py").write_text(f"# {name}\n{SOURCE}")
    bench = Bench({"1_one": DeviceError("no device")})
    with pytest.raises(DeviceError):
        bench.run(read_set([str(folder)]), sweeps=Pair(bench))


class Dying(Pair):
    """The process of a sweep may end by the interrupt before the sweep has begun."""

    def run(self, request: sweep.SweepRequest, tell: events.Listener) -> events.Finished:
        try:
            self.both.wait()
        except threading.BrokenBarrierError:
            raise EvaluatorError("the process of this sweep died") from None
        return self.bench.sweep(request, tell)


def test_process_that_an_interrupt_ends_early_is_no_failure_of_its_problem(home: Home, folder: Path) -> None:
    for name in ("2_two", "10_three"):
        (folder / f"{name}.py").write_text(f"# {name}\n{SOURCE}")
    bench = Bench({"1_one": DeviceError("no device")})
    with pytest.raises(DeviceError):
        bench.run(read_set([str(folder)]), sweeps=Dying(bench))
    assert bench.outcomes.get("10_three", "interrupted") == "interrupted"


# From end to end -------------------------------------------------------------------------------------------------

def test_suite_swept_two_at_once_ends_in_verdicts_beside_a_problem_that_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for name, text in (("one", TINY), ("two", TINY.replace("softmax", "log_softmax"))):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "three.py").write_text(TINY.replace("torch.softmax", "torch.no_such_function"))
    files = ("one.py", "three.py", "two.py")
    # Two sweeps at once on a busy machine take long: the budget ends them, not the time.
    options = ("--device", "cpu", "--baselines", "eager", "--budget", "1", "--time", "120", "--at-once", "2")
    ended = wait(home.start_brief("sweep", *files, *options))
    assert (ended.code, ended.err) == (1, "kgen: 1 of 3 were refused or failed: three\n")
    found = {row["problem"]: row for row in home.typed("scores", *files, "--json").json["problems"]}
    assert found["three"]["verdict"] == "refused" and "no_such_function" in found["three"]["reason"]
    assert {found[name]["verdict"] for name in ("one", "two")} <= {"faster", "same", "slower"}, found
    assert home.strays() == []


def test_problems_at_once_are_those_of_a_suite(tmp_path: Path) -> None:
    ended = Home(tmp_path).typed("sweep", PROBLEM, "--at-once", "2")
    assert ended.code == 2 and "--at-once 2: one problem is no suite" in ended.err
