"""How an evaluator treats foreign candidates: in the sandbox, under tamper detection, with anomalies of time
checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Sequence

from kgen.candidate import Candidate
from kgen.evaluator.build import Extension, binary_hash
from kgen.evaluator.checks import Checks, Level, Setting
from kgen.evaluator.correctness.validate import Failure, WorkerClient
from kgen.evaluator.protocol import BuildReport, Phase, Status
from kgen.evaluator.strict.labels import static_labels
from kgen.evaluator.strict.processes import strangers
from kgen.evaluator.strict.timing_anomalies import (
    Habits, StrictRunner, anomaly, raise_if_suspicious, timed_again,
)
from kgen.evaluator.timing.measure import Runner

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

    def __init__(self) -> None:
        self._eager: Habits | None = None

    def environment(self, build: BuildReport | None, extension: Extension | None) -> dict[str, str]:
        return {"TORCH_EXTENSIONS_DIR": build.directory} if build is not None and _is_built(build, extension) else {}

    def options(self, scratch: Path, build: BuildReport | None, extension: Extension | None) -> dict[str, Any]:
        assert build is not None
        library = [Path(build.directory) / extension.name] if _is_built(build, extension) and extension else []
        return {"writable": [str(scratch), *map(str, library)], "modules": list(_MODULES)}

    def libraries(self, build: BuildReport, extension: Extension | None) -> dict[str, str]:
        return {}

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

    def screened(self, runner: Runner, setting: Setting, build: BuildReport, extension: Extension | None) -> list[str]:
        """Raises :class:`Failure` for an anomaly of time, and when the library changed."""
        assert isinstance(runner, StrictRunner)
        beside = setting.eager if isinstance(setting.eager, StrictRunner) else None
        raise_if_suspicious(runner, self.settled, eager=self._eager, floor_ms=setting.floor_ms, beside=beside,
                            generator=setting.generator)
        if _is_built(build, extension) and extension is not None:
            _raise_if_changed(Path(build.directory) / extension.name / f"{extension.name}.so", build.binary)
        return super().screened(runner, setting, build, extension)

    def baseline_screened(self, runner: Runner) -> None:
        if runner.name == "eager" and isinstance(runner, StrictRunner):
            self._eager = runner.habits()

    def finals(
        self, finalists: Sequence[Runner], baselines: Sequence[Runner], seconds: float, setting: Setting,
        failed: Callable[[Runner, Failure], None], notice: Callable[[str], None],
    ) -> list[Runner]:
        """As for own candidates; times all once more after an anomaly, and leaves out finalists that keep it."""

        def candidates(runners: Sequence[StrictRunner]) -> list[StrictRunner]:
            return [runner for runner in runners if runner not in baselines]

        def has_anomaly(runners: Sequence[StrictRunner]) -> bool:
            eager = _habits(runners)
            found = (anomaly(runner, eager=eager, floor_ms=setting.floor_ms) for runner in candidates(runners))
            reason = next(filter(None, found), "")
            if reason:
                notice(f"finals are timed once more: of a candidate, {reason}")
            return bool(reason)

        everybody = [runner for runner in (*finalists, *baselines) if isinstance(runner, StrictRunner)]
        kept = timed_again(everybody, seconds, setting.generator, failed, has_anomaly)
        eager, right = _habits(kept), []
        for runner in kept:
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


def _is_built(build: BuildReport | None, extension: Extension | None) -> bool:
    return build is not None and extension is not None and build.binary is not None


def _habits(runners: Sequence[StrictRunner]) -> Habits | None:
    """PyTorch's habits in this session, if it was timed."""
    return next((runner.habits() for runner in runners if runner.name == "eager"), None)


def _raise_if_changed(library: Path, binary: str | None) -> None:
    try:
        same = binary_hash(library) == binary
    except (OSError, ValueError):
        same = False
    if not same:
        raise Failure(Status.SUSPICIOUS, "its library changed while it ran", Phase.TIME)
