"""Every answer as JSON values, keys in a fixed order. Numbers that are not finite are ``null``: JSON has none."""

from __future__ import annotations

import io
import json
import math
import re
from csv import DictWriter
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Sequence

from kgen.candidate import PlanStep
from kgen.protocol import Accuracy, Environment, Timing
from kgen.store.results import BestRow, CandidateDetail, Comparison, Judgement, ProblemRow, SweepDetail, SweepRow, Trial
from kgen.tuning import events

if TYPE_CHECKING:
    from kgen.devices.machine import Check
    from kgen.protocol.statistics import Interval
    from kgen.store.effects import Group, Plan
    from kgen.store.pruning import Pruned
    from kgen.store.scores import Score, Summary


def dumps(value: Any, indent: int | None = 2) -> str:
    """``value``, made of the plain values below, as JSON text."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with a heading.

    The fields of a row's best and of its environment are columns of their own. Any other compound value is JSON.
    """
    flat = [dict(_flat(row)) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    out = io.StringIO()
    writer = DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue().removesuffix("\n")


def _flat(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        value = _plain(value)
        if name in ("best", "environment"):
            yield from ((f"{name}.{inner}", item) for inner, item in _flat(value or {}))
        else:
            yield name, json.dumps(value, allow_nan=False) if isinstance(value, (dict, list, bool)) else value


def best(row: BestRow, file: Path | None) -> dict[str, Any]:
    """The best of a problem. The fields of its candidate are ``null`` where there is none."""
    trial = row.trial
    return {
        **_problem(row.problem),
        "candidate": trial and trial.candidate,
        "plan": trial and trial.plan,
        "steps": trial and _steps(trial.plan_data.steps),
        "params": trial and trial.params,
        "rewrites": trial and trial.rewrites,
        "kernels": trial and trial.kernels,
        "status": trial and trial.status,
        "accuracy": row.accuracy,
        "median_ms": trial and trial.median_ms,
        "speedup": trial and trial.speedup,
        "speedup_low": trial and trial.speedup_low,
        "speedup_high": trial and trial.speedup_high,
        "baseline": trial and trial.baseline,
        "baselines": trial.baselines if trial else {},
        "error_ratio": trial and trial.error_ratio,
        "final": bool(trial and trial.final),
        "beats_baseline": row.beats_baseline,
        "ties": row.ties,
        "sweep": row.sweep,
        "environment": _environment(row.environment),
        "file": file and str(file),
    }


def sweep_row(row: SweepRow) -> dict[str, Any]:
    """One sweep of a listing."""
    return {
        "kind": row.kind,
        "sweep": row.id,
        **_problem(row.problem),
        "device": row.device,
        "accuracy": row.accuracy,
        "state": row.state,
        "combinations": row.combinations,
        "budget": row.budget,
        "tried": row.tried,
        "right": row.right,
        "counts": row.counts,
        "best": row.best and _trial(row.best),
        "started_at": row.started_at,
        "seconds": row.seconds,
        "arguments": row.arguments,
        "environment": _environment(row.environment),
    }


def sweep_detail(detail: SweepDetail, plans: Sequence[Plan]) -> dict[str, Any]:
    """One sweep in full, with the effects of the parameters of each plan."""
    return {
        **sweep_row(detail.row),
        "sizes": detail.sizes,
        "taken_over": detail.taken_over,
        "baselines": detail.baselines,
        "screened_baselines": detail.screened_baselines,
        "leaders": [_trial(item) for item in detail.leaders],
        "failures": [asdict(failure) for failure in detail.failures],
        "rejections": [asdict(rejection) for rejection in detail.rejections],
        "plans": [_plan(plan) for plan in plans],
    }


def _plan(plan: Plan) -> dict[str, Any]:
    parameters = [
        {"name": item.name, "share": item.share, "values": [_group(group) for group in item.groups]}
        for item in plan.parameters
    ]
    steps = _steps(plan.whole.best.plan_data.steps)
    return {"plan": plan.whole.name, "steps": steps, "right": plan.whole.count, "parameters": parameters}


def _group(group: Group) -> dict[str, Any]:
    return {**vars(group), "best": group.best.candidate}


def candidate_detail(detail: CandidateDetail, file: Path | None) -> dict[str, Any]:
    """One candidate in full."""
    derived = ("id", "judgements", "finals", "rooflines", "products")
    fields = _with_steps({name: value for name, value in vars(detail).items() if name not in derived})
    return {
        "kind": "candidate",
        "candidate": detail.id,
        **fields,
        "file": file and str(file),
        "evaluations": [_judgement(detail, judgement) for judgement in detail.judgements],
    }


def trial(item: Trial, reason: str) -> dict[str, Any]:
    """One candidate of a sweep."""
    return {**_trial(item), "reason": reason}


def comparison(item: Comparison) -> dict[str, Any]:
    """One comparison of two measurements."""
    return {
        **_problem(item.problem),
        "accuracy": item.accuracy,
        "environment": _environment(item.environment) if item.environment else None,
        "what": item.what,
        "a": asdict(item.a),
        "b": asdict(item.b),
        "ratio": item.ratio.mid,
        "ratio_low": item.ratio.low,
        "ratio_high": item.ratio.high,
        "verdict": item.verdict,
        "how": item.how,
    }


def pruned(item: Pruned, really: bool) -> dict[str, Any]:
    """The rows that were dropped, or would be."""
    kinds = ("sweeps", "of_failed", "kept")
    return {
        "dropped": really,
        "rows": item.rows,
        **{kind: [sweep_row(row) for row in getattr(item, kind)] for kind in kinds},
        "candidates": item.candidates,
        "logs": item.logs,
    }


def problem_file(name: str, path: Path, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """One known problem file."""
    return {"problem": name, "path": str(path), "sizes": sizes}


def check(item: Check) -> dict[str, Any]:
    """One finding of ``kgen doctor``."""
    return asdict(item)


def event(item: events.Event) -> dict[str, Any]:
    """One event of a sweep or suite: its kind, then its fields; a candidate without its source."""
    if isinstance(item, events.SuiteEvent):
        return _suite_event(item)
    if isinstance(item, events.Beside):
        return event(item.event) | {"number_in_suite": item.number}
    kind = type(item).__name__.lower()
    if isinstance(item, events.Evaluated):
        return {"event": kind, **_evaluated(item)}
    if isinstance(item, events.Started):
        return {"event": kind, **vars(item), "environment": _environment(item.environment)}
    if isinstance(item, events.Measured):
        return {"event": kind, "baselines": dict(item.baselines), "device": item.device}
    if isinstance(item, events.Finished):
        leaders = [_with_steps(vars(leader)) for leader in item.leaders]
        return {"event": kind, **vars(item), "counts": dict(item.counts), "leaders": leaders}
    return {"event": kind, **vars(item)}


def _suite_event(item: events.SuiteEvent) -> dict[str, Any]:
    """One event of a suite; its kind is in words: ``problem_ended``."""
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(item).__name__).lower()
    fields = dict(vars(item))
    if isinstance(item, events.ProblemEnded):
        fields |= _speedup(item.speedup)
    return {"event": kind, **fields}


def _speedup(value: Interval | None) -> dict[str, float | None]:
    """A speedup with the ends of its interval."""
    return {
        "speedup": value and value.mid,
        "speedup_low": value and value.low,
        "speedup_high": value and value.high,
    }


def scores(items: Sequence[Score], total: Summary) -> dict[str, Any]:
    """The results of problems, each and together: the answer of ``kgen scores``."""
    return {
        "problems": [score(item) for item in items],
        "summary": {
            "problems": total.problems,
            "right": total.right,
            "fast_1": total.fast[1.0],
            "geomean": total.geomean,
            "geomean_over_eager": total.geomean_over_eager,
        },
    }


def score(item: Score) -> dict[str, Any]:
    """The result of one problem; unknown figures are ``null``."""
    return {
        "problem": item.problem,
        "verdict": item.verdict,
        "ms": item.ms,
        **_speedup(item.speedup),
        "over_eager": item.over_eager and item.over_eager.mid,
        "baselines": item.baselines,
        "error_ratio": item.error_ratio,
        "accuracy": item.accuracy,
        "plan": item.plan,
        "steps": None if item.plan is None else _steps(item.plan_data.steps),
        "reason": item.reason,
    }


def judged(item: events.Judged) -> dict[str, Any]:
    """The result of one file: the answer of ``kgen eval``. Unknown fields are ``null``."""
    opened, evaluation, timing, speedup = item.opened, item.evaluation, item.timing, item.speedup
    problem = opened.problem
    return {
        "status": evaluation.status,
        "reason": evaluation.reason,
        "phase": evaluation.phase,
        "accuracy": evaluation.accuracy,
        "error_ratio": evaluation.error_ratio,
        "errors": [asdict(error) for error in evaluation.errors],
        "median_ms": item.median_ms,
        "speedup": speedup and speedup.mid,
        "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high,
        "verdict": item.verdict,
        "baseline": item.baseline,
        "baselines": dict(item.baselines),
        "prepare_ms": timing and timing.prepare_ms,
        "conditions": timing and dict(timing.conditions),
        "labels": evaluation.labels,
        "coverage": evaluation.own_share,
        "operators_replaced": evaluation.replaced,
        "log": evaluation.log,
        "seconds": dict(evaluation.seconds),
        "file": opened.file,
        "candidate": opened.candidate,
        "evaluation": item.evaluation_id,
        "sweep": opened.sweep,
        "problem": problem.name,
        "mode": problem.mode,
        "overrides": dict(problem.overrides),
        "problem_id": problem.id,
        "health": {"ok": opened.health.ok, **asdict(opened.health)},
        "device": opened.device,
        "environment": _environment(opened.environment),
    }


def _evaluated(item: events.Evaluated) -> dict[str, Any]:
    candidate, evaluation = item.candidate, item.evaluation
    return {
        "number": item.number,
        "candidate": candidate.id,
        "plan": candidate.plan,
        "steps": _steps(candidate.plan_data.steps),
        "params": candidate.params,
        "rewrites": candidate.rewrites,
        "kernels": candidate.kernels,
        "control": candidate.control,
        "status": evaluation.status,
        "reason": evaluation.reason,
        "phase": evaluation.phase,
        "error_ratio": evaluation.error_ratio,
        "labels": evaluation.labels,
        "seconds": dict(evaluation.seconds),
        "median_ms": item.median_ms,
        "speedup": item.speedup and item.speedup.mid,
        "speedup_low": item.speedup and item.speedup.low,
        "speedup_high": item.speedup and item.speedup.high,
        "device": item.device,
        "taken_over": item.taken_over,
        "log": evaluation.log,
    }


def _problem(row: ProblemRow) -> dict[str, Any]:
    return {
        "problem": row.name,
        "mode": row.mode,
        "overrides": row.overrides,
        "problem_id": row.id,
        "passed_by": row.passed_by,
    }


def _environment(environment: Environment) -> dict[str, Any]:
    return {"id": environment.id, **asdict(environment)}


def _trial(trial: Trial) -> dict[str, Any]:
    return _with_steps({name: value for name, value in vars(trial).items() if name != "screened_speedup"})


def _with_steps(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with the steps of the plan in the place of the plan."""
    named = {"steps" if name == "plan_data" else name: value for name, value in fields.items()}
    return {**named, "steps": _steps(named["steps"].steps)}


def _steps(steps: Iterable[PlanStep]) -> list[dict[str, Any]]:
    """The steps of a plan. The name of the plan stands beside them."""
    return [step.to_json() for step in steps]


def _timing(timing: Timing) -> dict[str, Any]:
    return {**asdict(timing), "conditions": dict(timing.conditions)}


def _judgement(detail: CandidateDetail, judgement: Judgement) -> dict[str, Any]:
    evaluation = judgement.evaluation
    build = evaluation.build
    return {
        "evaluation": evaluation.id,
        **_problem(judgement.problem),
        "accuracy": evaluation.accuracy,
        "status": evaluation.status,
        "reason": evaluation.reason,
        "phase": evaluation.phase,
        "labels": evaluation.labels,
        "error_ratio": evaluation.error_ratio,
        "errors": [asdict(error) for error in evaluation.errors],
        "build": build and asdict(build),
        "timing": evaluation.timing and _timing(evaluation.timing),
        "seconds": dict(evaluation.seconds),
        "log": evaluation.log,
        "created_at": judgement.created_at,
        "environment": _environment(judgement.environment),
        "convolutions": [asdict(one) | {"tf32": one.tf32} for one in detail.products_of(judgement)],
        "trials": [_result(detail, item, evaluation.accuracy) for item in judgement.trials],
    }


def _result(detail: CandidateDetail, item: Trial, accuracy: Accuracy) -> dict[str, Any]:
    """A candidate's figures in one sweep, with figures derived from its samples and the device's ceilings."""
    from kgen.views import figures  # takes longer to import than most commands take

    final, achieved = detail.finals.get(item.sweep), figures.achieved(detail, item, accuracy)
    return {
        **_trial(item),
        "median_interval": item.interval_ms and asdict(item.interval_ms),
        "achieved": achieved and {**asdict(achieved), "fraction": achieved.fraction, "bound": achieved.bound},
        "timing": final and _timing(final),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, Decimal):
        return _plain(float(value))
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
