"""How an evaluator treats foreign candidates: in the sandbox, under tamper detection, with anomalies of time
checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from kgen.candidate import Candidate
from kgen.evaluator.checks import Checks, Level, Setting
from kgen.evaluator.correctness.validate import Failure, WorkerClient
from kgen.evaluator.protocol import Phase, Status
from kgen.evaluator.strict.labels import static_labels
from kgen.evaluator.strict.processes import strangers
from kgen.evaluator.strict.timing_anomalies import Habits, StrictRunner, anomaly, queue_alike, raise_if_suspicious
from kgen.evaluator.timing.measure import Runner, interleave

#: torch.compile takes a second to load, and replaces functions of torch: it is loaded before tamper detection starts.
_MODULES = ("torch._dynamo", "kgen.evaluator.strict.subject")


class Strict(Checks):
    """Foreign candidates, which may be made to cheat."""

    strict = True
    subject = "kgen.evaluator.strict.subject:StrictSubject"
    levels = (
        Level({"sandboxed": True, "own_user": True}, "as another user"),
        Level({"sandboxed": True, "own_user": False}, "in a sandbox"),
        Level({"sandboxed": False, "own_user": False}, "at all"),
    )
    modules = _MODULES
    ahead = False
    wrong_when_timed = Status.SUSPICIOUS
    make_runner = StrictRunner
    variables: Mapping[str, str] = {}

    def __init__(self) -> None:
        self._eager: Habits | None = None

    def options(self, scratch: Path) -> dict[str, Any]:
        return {"writable": [str(scratch)], "modules": list(_MODULES)}

    def settled(self, worker: WorkerClient) -> None:
        """Raises :class:`Failure` for findings of tamper detection and for processes that still run, too."""
        if worker.child.findings:
            raise Failure(Status.SUSPICIOUS, "; ".join(worker.child.findings), worker.phase)
        super().settled(worker)
        left = strangers(worker.child.family) if worker.child.family is not None else []
        if left:
            what = "a process" if len(left) == 1 else f"{len(left)} processes"
            names = ", ".join(sorted(set(left))[:3])
            raise Failure(Status.SUSPICIOUS, f"it left {what} running: {names}", worker.phase)

    def screened(self, runner: Runner, setting: Setting) -> list[str]:
        """Raises :class:`Failure` for an anomaly of time."""
        assert isinstance(runner, StrictRunner)
        beside = setting.eager if isinstance(setting.eager, StrictRunner) else None
        raise_if_suspicious(runner, self.settled, eager=self._eager, floor_ms=setting.floor_ms, beside=beside,
                            generator=setting.generator)
        return super().screened(runner, setting)

    def baseline_screened(self, runner: Runner) -> None:
        if runner.name == "eager" and isinstance(runner, StrictRunner):
            self._eager = runner.habits()

    def finals(
        self, finalists: Sequence[Runner], baselines: Sequence[Runner], seconds: float, setting: Setting,
        failed: Callable[[Runner, Failure], None], notice: Callable[[str], None],
    ) -> list[Runner]:
        """As for own candidates; times all once more after an anomaly, and leaves out finalists that keep it."""
        runners = interleave([*finalists, *baselines], seconds, setting.generator, failed)
        found = (anomaly(runner, eager=_habits(runners), floor_ms=setting.floor_ms) for runner in runners
                 if runner not in baselines)
        if reason := next(filter(None, found), ""):  # a busy machine causes some
            notice(f"finals are timed once more: of a candidate, {reason}")
            queue_alike(runners)
            runners = interleave(runners, seconds, setting.generator, failed)
        eager, right = _habits(runners), []
        for runner in runners:
            try:
                if runner not in baselines:
                    raise_if_suspicious(runner, self.settled, eager=eager, floor_ms=setting.floor_ms)
            except Failure as failure:
                failed(runner, failure)
            else:
                right.append(runner)
        return right

    def labels(self, candidate: Candidate) -> list[str]:
        return static_labels(candidate.source)


def _habits(runners: Sequence[StrictRunner]) -> Habits | None:
    """PyTorch's habits in this session, if it was timed."""
    return next((runner.habits() for runner in runners if runner.name == "eager"), None)
