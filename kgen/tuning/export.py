"""Export: the best candidate as a self-contained file, verified again before it is written."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from kgen import paths
from kgen.candidate import Candidate, Trust
from kgen.devices.machine import find_own_tools, resolve_device
from kgen.errors import CaptureError, DiskError, KgenError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DevicePool
from kgen.evaluator.runtime.process import servers_kept
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, Environment, Evaluation, Status, __version__
from kgen.store import Database, queries
from kgen.store.results import BestRow
from kgen.tuning.design import without_weight_copies
from kgen.tuning.sweep import designed

MOST_AT_ONCE = 4  #: exports; each has an oracle and a worker
CORES_OF_EACH = 4
_rendering = threading.Lock()  # torch's export serves one thread at a time


class NotVerifiedError(KgenError):
    """The candidate failed its second verification; nothing was written."""

    exit_code = 1


@dataclass(frozen=True)
class ExportResult:
    """The written files, and the evaluation of the second verification. A device or a pipe has no figures beside it."""

    file: Path
    figures: Path | None
    evaluation: Evaluation


@dataclass(frozen=True)
class Verified:
    """A candidate that was right again in fresh processes, and its figures as JSON values."""

    problem: Problem
    candidate: Candidate
    environment: Environment
    evaluation: Evaluation
    figures: Mapping[str, Any]


def export(database: Database, best: BestRow, problem: Problem, file: Path) -> ExportResult:
    """Verify ``best`` again in fresh processes; write it to ``file`` and its figures to ``file.json``.

    The written text is the evaluated text, byte for byte. An existing file is replaced last. Raises
    :class:`NotVerifiedError` where the candidate fails, and :class:`~kgen.errors.DiskError` where the file cannot be
    written.
    """
    paths.check_writable(file)
    found = verify(database, best, problem)
    beside = file.with_name(file.name + ".json") if paths.is_ordinary(file) else None
    if beside:
        paths.write_whole(beside, json.dumps(found.figures, indent=2) + "\n")
    paths.write_whole(file, found.candidate.source)
    return ExportResult(file, beside, found.evaluation)


def verify(database: Database, best: BestRow, problem: Problem) -> Verified:
    """The candidate of ``best``, judged again in fresh processes. Raises :class:`NotVerifiedError` where it fails."""
    if best.trial is None:
        raise NotVerifiedError(f"{best.problem.title}: there is no right candidate to export")
    candidate = Candidate(
        source=queries.source(database, best.trial.candidate),
        plan=best.trial.plan,
        params=best.trial.params,
        device_type=best.environment.device_type,
        kernels=best.trial.kernels,
        control=best.trial.control,
        rewrites=best.trial.rewrites,
        plan_data=best.trial.plan_data,
    )
    find_own_tools()
    device = resolve_device(best.environment.device_type)
    evaluation, where = _verified(problem, candidate, device, best.accuracy)
    if evaluation.status is not Status.OK:
        raise NotVerifiedError(f"not exported: verified again, it ended as {evaluation.status}: {evaluation.reason}")
    figures = {
        "kgen": __version__,
        "problem": best.problem.title,
        "mode": best.problem.mode,
        "accuracy": best.accuracy,
        "candidate": candidate.id,
        "plan": candidate.plan,
        "steps": [step.to_json() for step in candidate.plan_data.steps],
        "params": dict(candidate.params),
        "rewrites": list(candidate.rewrites),
        "sweep": best.sweep,
        "median_ms": best.trial.median_ms,
        "speedup": best.trial.speedup,
        "speedup_low": best.trial.speedup_low,
        "speedup_high": best.trial.speedup_high,
        "baselines": dict(best.trial.baselines),
        "beats_baseline": best.beats_baseline,
        "error_ratio": best.trial.error_ratio,
        "environment": asdict(best.environment),
        "verified_in": asdict(where),
        "errors": [asdict(e) for e in evaluation.errors],
    }
    return Verified(problem, candidate, best.environment, evaluation, figures)


@dataclass(frozen=True)
class Wanted:
    """A candidate to export, and the file to write."""

    best: BestRow
    problem: Problem
    file: Path


def export_all(database: Database, wanted: Sequence[Wanted], ended: Callable[[Wanted, KgenError | None], None]) -> None:
    """Export several candidates, some at once, and tell of each when it has ended, in this thread.

    A candidate that fails costs itself. An interrupt ends all. Raises :class:`~kgen.errors.DiskError` where a folder of
    the files cannot be made.
    """
    for folder in {one.file.parent for one in wanted}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DiskError(f"{folder}: the folder cannot be made: {error.strerror or error}") from error
    at_once = max(2, min(MOST_AT_ONCE, len(os.sched_getaffinity(0)) // CORES_OF_EACH))
    with servers_kept(), ThreadPoolExecutor(at_once, thread_name_prefix="kgen-export") as threads:
        running = {threads.submit(export, database, one.best, one.problem, one.file): one for one in wanted}
        try:
            for future in as_completed(running):
                error = future.exception()
                if error is not None and not isinstance(error, KgenError):
                    raise error
                ended(running[future], error)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _verified(
    problem: Problem, candidate: Candidate, device: str, accuracy: Accuracy
) -> tuple[Evaluation, Environment]:
    """The candidate's evaluation and its environment. It counts as own if its text still renders to the same bytes.

    An own candidate was timed in its sweep, byte for byte, and is only validated.
    """

    def opened(trust: Trust, *baselines: str) -> Evaluator:
        return Evaluator(
            problem,
            device=device,
            accuracy=accuracy,
            home=paths.home(),
            baselines=baselines,
            trust=trust,
            times=bool(baselines),
        )

    def judged(evaluator: Evaluator, candidate: Candidate, timed: bool) -> tuple[Evaluation, Environment]:
        build = evaluator.builder().build(candidate.source)
        return evaluator.evaluate(candidate, build, timed=timed), evaluator.environment

    own = opened(Trust.OWN)
    with DevicePool([own], server=own.server) as devices:
        if _renders_again(problem, candidate, devices):
            return judged(own, candidate, timed=False)
    with opened(Trust.FOREIGN, "eager") as evaluator:
        return judged(evaluator, replace(candidate, origin=Trust.FOREIGN), timed=True)


def _renders_again(problem: Problem, candidate: Candidate, devices: DevicePool) -> bool:
    if not candidate.plan_data.steps:
        return False  # kgen did not render it
    with _rendering:
        try:
            design = designed(problem, devices)
        except CaptureError:
            return False
    designs = (design, without_weight_copies(design))
    return any(of.renders(candidate.plan_data, candidate.params, candidate.source) for of in designs)
