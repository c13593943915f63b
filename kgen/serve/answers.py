"""The answers of the service: the fields of ``kgen eval --json``, and a summary of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

from kgen.protocol import Evaluation, Phase, Status
from kgen.serve.asked import Asked
from kgen.store.requests import DONE, StoredRequest
from kgen.tuning import events
from kgen.views import plain

_NOT_COMPILED = (Phase.BUILD, Phase.LOAD)


def judged(asked: Asked, found: events.Judged) -> dict[str, Any]:
    """The answer to a judged candidate, as JSON values. ``log`` is the path of a file, which clients do not see."""
    evaluation = found.evaluation
    is_verdict = evaluation.status is not Status.INFRA_ERROR
    return {
        **plain.judged(found),
        "compiled": evaluation.phase not in _NOT_COMPILED if is_verdict else None,
        "right": found.ok if is_verdict else None,
        "worst": _worst(evaluation),
        "gradable": found.opened.health.ok,
        "language": asked.language,
    }


def failed(reason: str, *, status: str = Status.INFRA_ERROR.value) -> dict[str, Any]:
    """The answer where nothing was judged: the problem is at fault (``problem_error``), or the service
    (``infra_error``)."""
    return {"status": status, "reason": reason, "compiled": None, "right": None}


def brief(request: StoredRequest) -> StoredRequest:
    """A request without its texts, as :func:`shown` needs it."""
    asked = request.asked
    kept = {"problem": {"name": asked["problem"]["name"]}, "accuracy": asked["accuracy"], "language": asked["language"]}
    return replace(request, asked=kept)


def shown(request: StoredRequest, position: int | None = None) -> dict[str, Any]:
    """A request and its answer, as its client sees them. Before there is an answer, its fields are left out."""
    asked, answer = request.asked, dict(request.answer or {})
    answer.pop("log", None)
    state = {
        "id": request.id,
        "state": request.state,
        "position": position,
        "priority": request.priority,
        "created_at": request.created_at,
        "ended_at": request.ended_at,
        "problem": asked["problem"]["name"],
        "accuracy": asked["accuracy"],
        "language": asked["language"],
    }
    links = {"log": f"/evaluations/{request.id}/log", "source": f"/evaluations/{request.id}/source"}
    return {**state, **answer, "file": None, "links": links if request.state == DONE else {}}


def _worst(evaluation: Evaluation) -> Mapping[str, Any] | None:
    """The figures nearest to their tolerance, or farthest beyond it, with their input distribution and output."""
    known = [one for one in evaluation.errors if one.used is not None or not one.ok]
    if not known:
        return None
    worst = max(known, key=lambda one: (not one.ok, one.used if one.used is not None else 0.0))
    return {
        "distribution": worst.case,
        "output": worst.output,
        "ok": worst.ok,
        "used": worst.used,
        "rms": worst.rms,
        "maximum": worst.maximum,
        "eager_rms": worst.eager_rms,
        "eager_maximum": worst.eager_maximum,
        "note": worst.note,
    }
