"""Sweeps on several devices: one search, one build pool, one that writes; and several candidates at once on one device."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from designs import CheapDesign
from judges import CheapBuilder, CheapJudge, timing
from lending import Lender
from running import PROBLEM, Home

from kgen import paths
from kgen.candidate import Candidate
from kgen.compiler.capture.capture import Capture
from kgen.devices.hardware import cpu
from kgen.devices.kinds import KINDS
from kgen.errors import DatabaseBusyError, DeviceError, EvaluatorError, ProblemError, RenderError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DevicePool
from kgen.evaluator.timing.measure import OVERTIME
from kgen.problems.problem import load, read_problem
from kgen.protocol import Accuracy, BuildReport, Depth, Evaluation, Phase, Status, Timing
from kgen.store import connections, holder
from kgen.tuning import events, sweep, time_budget
from kgen.tuning.design import Design, captured
from kgen.tuning.search import Point

PROBLEM_READ = read_problem(PROBLEM)


@pytest.fixture(scope="module")
def graphs() -> Capture:
    return captured(load(PROBLEM_READ))


@pytest.fixture
def home(tmp_path: Path, graphs: Capture, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Where sweeps of this process write to; what they render is cheap."""
    monkeypatch.setattr(sweep, "capture_apart", lambda problem, *_, **__: (problem, graphs))
    monkeypatch.setattr(sweep, "Design", CheapDesign)
    monkeypatch.setenv("KGEN_HOME", str(tmp_path / "runs"))
    return Home(tmp_path)


@dataclass
class Told:
    """What a sweep told; it is interrupted when it has told of ``interrupt`` candidates."""

    interrupt: int = -1
    news: list[events.Event] = field(default_factory=list)

    def __call__(self, event: events.Event) -> None:
        self.news.append(event)
        if isinstance(event, events.Evaluated) and len(self.of(events.Evaluated)) == self.interrupt:
            raise KeyboardInterrupt

    def of(self, kind: type) -> list:
        return [event for event in self.news if isinstance(event, kind)]


def conduct(judges: Sequence[CheapJudge], told: Callable[[events.Event], None], **request: int | bool) -> events.Finished:
    asked = sweep.SweepRequest(PROBLEM_READ, budget=24, jobs=2, strategy="random")
    return sweep.run(replace(asked, **request), told, lambda *_: DevicePool(judges))


def three(**more: object) -> list[CheapJudge]:
    return [CheapJudge(PROBLEM_READ, f"cuda:{n}", seconds=lambda c: 0.005, **more) for n in range(3)]


def test_devices_share_the_candidates_of_one_sweep(home: Home) -> None:
    judges, told = three(), Told()
    assert conduct(judges, told).state == "finished"
    shares = Counter(event.device for event in told.of(events.Evaluated))
    assert set(shares) == {"cuda:0", "cuda:1", "cuda:2"} and sum(shares.values()) == 24
    assert max(Counter(one for judge in judges for one in judge.evaluated).values()) == 1
    assert home.ask("SELECT device, state FROM sweep") == [("cuda:0,cuda:1,cuda:2", "finished")]
    assert home.ask("SELECT count(*) FROM trial") == [(24,)]


def test_each_device_has_baselines_of_its_own(home: Home) -> None:
    told = Told()
    conduct(three(), told)
    assert sorted(event.device for event in told.of(events.Measured)) == ["cuda:0", "cuda:1", "cuda:2"]
    assert home.ask("SELECT count(*) FROM timing WHERE subject = 'eager' AND depth = 'screen'") == [(3,)]


def test_finals_are_timed_on_the_first_device(home: Home) -> None:
    first, *others = judges = three()
    conduct(judges, Told())
    assert first.finalists and not any(judge.finalists for judge in others)


def test_sweep_whose_time_is_up_when_its_first_candidate_is_right_still_has_finals(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock moves only where a candidate is judged: 40 s for the first ones, of 30 s for all of it."""
    now = [0.0]
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: now[0])

    def judged(candidate: Candidate) -> None:
        now[0] += 20.0

    monkeypatch.setattr(CheapJudge, "evaluate", taking(CheapJudge.evaluate, ((Phase.LOAD, 8.0), (Phase.PREPARE, 1.0))))
    judge, told = CheapJudge(PROBLEM_READ, tell=judged), Told()
    finished = conduct([judge], told, seconds=30.0)
    assert len(judge.finalists) == 1 and finished.best == judge.finalists[0]
    assert (judge.final_seconds, judge.most_seconds) == (2.0, 9.0 + 2.0 * OVERTIME)
    assert home.ask("SELECT count(*) FROM trial WHERE speedup_low IS NOT NULL") == [(1,)]


def taking(evaluate: Callable[..., Evaluation], seconds: tuple[tuple[str, float], ...]) -> Callable[..., Evaluation]:
    return lambda *arguments: replace(evaluate(*arguments), seconds=seconds)


class Disturbed(CheapJudge):
    """Finds only the control right. Its baseline's screening met a busy machine; its finals did not."""

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        if not candidate.control:
            return Evaluation(candidate.id, Status.WRONG_VALUES, "row 3 is off", self.accuracy)
        return Evaluation(candidate.id, Status.OK, "", self.accuracy, timing=timing(candidate.id, 1.0))

    def baselines(self) -> tuple[Timing, ...]:
        return (timing("eager", 357.0),)

    def finals(
        self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float, most: float = math.inf
    ) -> tuple[Timing, ...]:
        [(candidate, _)] = candidates
        return (timing(candidate.id, 1.0, Depth.FINAL), timing("eager", 1.0, Depth.FINAL))


class ControlledDesign(CheapDesign):
    def candidate(self, point: Point) -> Candidate:
        return replace(super().candidate(point), control=point == self.control)


def test_control_without_a_rival_is_compared_in_finals(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "Design", ControlledDesign)
    told = Told()
    assert conduct([Disturbed(PROBLEM_READ)], told).best is None
    leaders = {leader.control and leader.candidate is not None: leader.speedup for leader in told.of(events.Finished)[0].leaders}
    assert leaders == {True: 1.0, False: 1.0}
    assert home.ask("SELECT speedup FROM trial WHERE status = 'ok'") == [(1.0,)]


class FailingDesign(CheapDesign):
    """Fails to render every second plan, as a bug of a template would."""

    def _rendered(self, point: Point) -> Candidate:
        if point.option % 2 == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        return Candidate(f"x = {point.option}, {point.choice}", self.choices[point.option].name, {}, "cpu", 1)

    candidate = Design.candidate


def test_candidate_that_fails_to_render_costs_itself(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "Design", FailingDesign)
    told = Told()
    assert conduct(three(), told).state == "finished"
    ((count, reason, params),) = home.ask("SELECT count(*), min(reason), min(params) FROM rejection WHERE constraint_name = 'rendering'")
    assert count and reason == "rendering failed: ZeroDivisionError: integer division or modulo by zero" and '"k0.' in params
    assert len(told.of(events.Evaluated)) == 24 - count > 0


def test_failed_rendering_is_told_once_with_the_file_that_has_the_traceback(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "Design", FailingDesign)
    told = Told()
    conduct(three(), told)
    (notice,) = [event.text for event in told.of(events.Notice) if "bug" in event.text]
    report = Path(notice.rpartition("with ")[2]).read_text()
    assert "ZeroDivisionError" in report and "_rendered" in report and "k0." in report


def test_point_that_fails_to_render_is_no_text_of_ours(graphs: Capture) -> None:
    of = FailingDesign(PROBLEM_READ, graphs, cpu())
    params = of.options[0].kernels[0][0]
    with pytest.raises(RenderError, match="rendering failed: ZeroDivisionError"):
        of.candidate(Point(0, (0,) * len(of.options[0].kernels)))
    assert not of.renders(of.choices[0].data, {f"k0.{k}": v for k, v in params.items()}, "x = 1")


def test_unlike_devices_are_refused_before_anything_is_kept(home: Home) -> None:
    judges = three()
    judges[2] = CheapJudge(PROBLEM_READ, "cuda:2", "another gpu")
    with pytest.raises(DeviceError, match="cuda:2 is another gpu.*never compared"):
        conduct(judges, Told())
    assert home.ask("SELECT count(*) FROM sweep") == [(0,)]


def test_interrupted_sweep_ends_its_devices_and_threads_and_says_what_it_has(home: Home) -> None:
    judges, told = three(), Told(interrupt=5)
    before = set(threading.enumerate())
    assert conduct(judges, told).state == "interrupted"
    assert told.of(events.Finished)[0].leaders
    assert all(judge.closed.is_set() for judge in judges)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)  # a build that runs ends first
    assert set(threading.enumerate()) <= before
    assert home.ask("SELECT count(*) FROM trial")[0][0] >= 5  # some may be committed together with the fifth


def test_interrupted_sweep_goes_on_with_the_same_command_and_says_how_many_it_found_done(home: Home) -> None:
    conduct(three(), Told(interrupt=5))
    told = Told()
    assert conduct(three(), told).state == "finished"
    found = told.of(events.Started)[0].found_done
    assert found >= 5 and found + len(told.of(events.Evaluated)) == 24
    assert home.ask("SELECT count(*), count(DISTINCT candidate_id) FROM evaluation") == [(24, 24)]


def test_fresh_sweep_starts_over(home: Home) -> None:
    conduct(three(), Told(interrupt=5))
    told = Told()
    conduct(three(), told, fresh=True)
    assert (told.of(events.Started)[0].found_done, len(told.of(events.Evaluated))) == (0, 24)
    assert not any(event.taken_over for event in told.of(events.Evaluated))


def test_what_another_sweep_judged_is_taken_over_and_marked(home: Home) -> None:
    conduct(three(), Told())
    told, judges = Told(), three()
    conduct(judges, told, budget=23)
    assert all(event.taken_over for event in told.of(events.Evaluated))
    assert not any(judge.evaluated for judge in judges)


def test_candidate_that_the_evaluator_failed_on_is_judged_again_by_the_next_sweep(home: Home) -> None:
    class Failing(CheapJudge):
        def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
            return replace(super().evaluate(candidate, build), status=Status.INFRA_ERROR, timing=None)

    judge = CheapJudge(PROBLEM_READ)
    assert conduct([Failing(PROBLEM_READ)], Told()).state == conduct([judge], Told()).state == "finished"
    assert len(set(judge.evaluated)) == 24
    latest = "(SELECT id FROM sweep ORDER BY started_at DESC LIMIT 1)"
    assert home.ask(f"SELECT count(*) FROM trial WHERE status = 'infra_error' AND sweep_id = {latest}") == [(0,)]


def test_failure_of_the_evaluator_ends_the_sweep_as_failed_with_all_that_was_judged(home: Home) -> None:
    class Breaking(CheapBuilder):
        def build(self, source: str, behind: int = 0) -> BuildReport:
            if len(judge.evaluated) >= 3:
                raise EvaluatorError("gone")
            return super().build(source)

    judge = CheapJudge(PROBLEM_READ, sources=Breaking())
    with pytest.raises(EvaluatorError):
        conduct([judge], Told())
    assert home.ask("SELECT state FROM sweep") == [("failed",)]
    assert home.ask("SELECT count(*) FROM trial")[0][0] >= 1


def test_problem_that_is_refused_leaves_no_sweep_behind(home: Home) -> None:
    class Refusing(CheapJudge):
        def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
            raise ProblemError("forward raised")

    with pytest.raises(ProblemError):
        conduct([Refusing(PROBLEM_READ)], Told())
    assert home.ask("SELECT count(*) FROM sweep") == [(0,)]


def test_database_that_stays_locked_ends_the_sweep_after_one_notice_and_the_same_command_goes_on(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "NOTICE_SECONDS", 0.02)
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.2)
    told, held = Told(), []

    def lock(event: events.Event) -> None:
        told(event)
        if isinstance(event, events.Evaluated) and not held:
            held.append(sqlite3.connect(home.db, isolation_level=None, check_same_thread=False))
            held[0].execute("BEGIN IMMEDIATE")

    with pytest.raises(DatabaseBusyError, match="locked by another process"):
        conduct(three(), lock)
    held[0].close()
    assert [event.text for event in told.of(events.Notice)] == [
        f"{home.db}: another process holds the database; waiting up to 0 s"
    ]
    assert home.ask("SELECT state FROM sweep") == [("running",)]
    monkeypatch.setattr(holder, "is_alive", lambda name: False)  # as if the first one's process had ended
    assert conduct(three(), again := Told()).state == "finished"
    assert again.of(events.Started)[0].found_done >= 1  # some may be committed together with the first


class Wide(Evaluator):
    """Judges two candidates at once, as a GPU does; each waits for the other to begin."""

    def start(self) -> None:
        super().start()
        self.at_once = 2
        self.both = threading.Barrier(2, timeout=60)

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        self.both.wait()
        return super().evaluate(candidate, build)


def test_one_evaluator_judges_several_candidates_at_once(monkeypatch: pytest.MonkeyPatch, lender: Lender) -> None:
    monkeypatch.setitem(KINDS, "cpu", replace(KINDS["cpu"], final_seconds=0.5))

    def open_devices(request: sweep.SweepRequest, on_event: events.Listener, started: float) -> DevicePool:
        home, baselines = paths.home(), request.baselines
        wide = Wide(request.problem, device="cpu", accuracy=Accuracy.FP32, home=home, baselines=baselines)
        return DevicePool([lender.lend(wide)])

    told = Told()
    request = sweep.SweepRequest(PROBLEM_READ, device="cpu", budget=2, seconds=60.0, baselines=("eager",))
    assert sweep.run(request, told, open_devices).state == "finished"
    statuses = [event.evaluation.status for event in told.of(events.Evaluated)]
    assert len(statuses) == 2 and set(statuses) <= {Status.OK, Status.SUSPICIOUS}  # side by side, they may be doubted
