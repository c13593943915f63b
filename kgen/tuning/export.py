"""Export: the best candidate as a file that stands alone, verified again before it is called final."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from kgen import __version__, paths
from kgen.candidate import Candidate
from kgen.errors import KgenError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.protocol import Evaluation, Status
from kgen.machine import find_own_tools, resolve_device
from kgen.problem import Problem
from kgen.store import Database, queries
from kgen.store.results import BestRow


class NotVerifiedError(KgenError):
    """The candidate did not pass when it was verified again; nothing was written."""

    exit_code = 1


@dataclass(frozen=True)
class ExportResult:
    """What was written, and what verifying it again came to."""

    file: Path
    figures: Path
    evaluation: Evaluation


def export(database: Database, best: BestRow, problem: Problem, file: Path) -> ExportResult:
    """Verify ``best`` again in fresh processes and write it to ``file``, its figures to ``file.json``.

    The text written is the text evaluated, byte for byte. Raises :class:`NotVerifiedError` where it does not pass,
    and :class:`~kgen.errors.DiskError` where the file cannot be written; an existing one is replaced only at the very end.
    """
    if best.trial is None:
        raise NotVerifiedError(f"{best.problem.title}: there is no right candidate to export")
    paths.check_writable(file)
    source = queries.source(database, best.trial.candidate)
    candidate = Candidate(
        source=source,
        plan=best.trial.plan,
        params=best.trial.params,
        device_type=best.environment.device_type,
        kernels=best.trial.kernels,
        control=best.trial.control,
        rewrites=best.trial.rewrites,
    )
    find_own_tools()
    device = resolve_device(best.environment.device_type)
    with Evaluator(problem, device=device, accuracy=best.accuracy, home=paths.home(), baselines=("eager",)) as evaluator:
        evaluation = evaluator.evaluate(candidate, evaluator.builder().build(source))
        where = evaluator.environment
    if evaluation.status is not Status.OK:
        raise NotVerifiedError(f"not exported: verified again, it ended as {evaluation.status}: {evaluation.reason}")
    figures = {
        "kgen": __version__,
        "problem": best.problem.title,
        "mode": best.problem.mode,
        "accuracy": best.accuracy,
        "candidate": candidate.id,
        "plan": candidate.plan,
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
    beside = file.with_name(file.name + ".json")
    paths.write_whole(beside, json.dumps(figures, indent=2) + "\n")
    paths.write_whole(file, source)
    return ExportResult(file, beside, evaluation)
