"""The endpoints of KernelGYM, with its field names, so that its trainers can ask this service.

``POST /evaluate`` and ``/evaluate/batch`` answer once all is judged; ``GET /status/ID`` and ``/results/ID`` answer at
once.
"""

from __future__ import annotations

import hashlib
import keyword
from typing import Any, Awaitable, Callable, Mapping

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from kgen.serve.asked import FIELDS, MOST_BYTES, RequestError
from kgen.serve.bodies import read_json
from kgen.serve.judge import Draining, Wanted
from kgen.serve.service import Service
from kgen.store.requests import DONE, QUEUED, StoredRequest
from kgen.views import plain

_MOST_TASKS = 100  #: of one batch, as there
_MOST_ID = 100  #: characters of an id, as there
_PRIORITIES = {"low": -10, "normal": 0, "high": 10, "urgent": 20}
_LANGUAGES = {"cuda": "cuda", "triton": "triton", "cpp": "cpp"}  #: of its backends; any other one is PyTorch
#: The baselines of its reference backends. Its ``reference_runtime`` is the time of the last baseline.
_BASELINES = {"pytorch": ["eager"], "torch_compile": ["eager", "compile"]}
_STATES = {QUEUED: "pending", DONE: "completed"}


class Routes:
    """The routes, over the service's own queue."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("POST", "/evaluate", self.evaluate),
            ("POST", "/evaluate/batch", self.evaluate_batch),
            ("GET", "/status/{id:path}", self.status),
            ("GET", "/results/{id:path}", self.results),
        ]

    async def evaluate(self, request: Request) -> Response:
        body = await read_json(request, 2 * MOST_BYTES)
        [found] = await self._judged(request.state.owner, [body])
        return _answer(found)

    async def evaluate_batch(self, request: Request) -> Response:
        body = await read_json(request, 2 * MOST_BYTES * 8)
        tasks = body.get("tasks") if isinstance(body, dict) else None
        if not isinstance(tasks, list) or not 0 < len(tasks) <= _MOST_TASKS:
            raise RequestError(400, f"tasks has to be a list of 1 to {_MOST_TASKS} tasks")
        found = await self._judged(request.state.owner, tasks)
        failed = sum(one["status"] == "failed" for one in found)
        return _answer({
            "batch_id": body.get("batch_id"),
            "total_tasks": len(found),
            "completed_tasks": len(found) - failed,
            "failed_tasks": failed,
            "results": found,
            "batch_status": "completed",
            "submitted_at": min(one["submitted_at"] for one in found),
            "completed_at": max(one["completed_at"] for one in found),
        })  # fmt: skip

    async def status(self, request: Request) -> Response:
        found = await self._find(request)
        state = "failed" if _failed(found) else _STATES.get(found.state, "processing")
        position = self._service.judge.position(found.owner, found.id)
        if found.state == QUEUED and position is None:
            state = "processing"  # it shares the judgement of another request
        return _answer(
            {
                "task_id": request.path_params["id"],
                "status": state,
                "progress": 100.0 if found.state == DONE else None,
                "estimated_completion": None,
                "queue_position": position,
                "assigned_device": (found.answer or {}).get("device"),
            }
        )

    async def results(self, request: Request) -> Response:
        found = await self._find(request)
        if found.state != DONE:
            raise RequestError(404, "the task has no result yet")
        return _answer(_result(request.path_params["id"], found))

    async def _find(self, request: Request) -> StoredRequest:
        return await run_in_threadpool(self._service.find, request.state.owner, _id(request.path_params["id"]))

    async def _judged(self, owner: str, tasks: list[Any]) -> list[dict[str, Any]]:
        """The results of tasks, once all have one."""
        stored = await self._service.keep(lambda: self._wanted(owner, tasks))
        found = []
        for task, one in zip(tasks, stored, strict=True):
            ended = await self._service.ended(one)
            if ended.state != DONE:
                raise Draining
            found.append(_result(task["task_id"], ended))
        return found

    def _wanted(self, owner: str, tasks: list[Any]) -> list[Wanted]:
        wanted: list[Wanted] = []
        for task in tasks:
            asked, fields = self._service.known.ask(_body(task))
            wanted.append((self._service.row(owner, asked, fields["id"], fields["priority"]), asked))
        return wanted


def _body(task: Any) -> dict[str, Any]:
    """A task of KernelGYM as a request of the service's own. Raises :class:`RequestError`."""
    if not isinstance(task, dict):
        raise RequestError(400, "a task is no JSON object")
    for name in ("task_id", "reference_code", "kernel_code"):
        if not isinstance(task.get(name), str) or not task[name].strip():
            raise RequestError(400, f"{name} is missing, or no text")
    if len(task["task_id"]) > _MOST_ID:
        raise RequestError(400, f"task_id has more than {_MOST_ID} characters")
    entry = task.get("entry_point") or "Model"
    if not isinstance(entry, str) or not entry.isidentifier() or keyword.iskeyword(entry):
        raise RequestError(400, "entry_point is no name of a class")
    renamed = entry != "Model"
    return {
        "id": _id(task["task_id"]),
        "problem_text": task["reference_code"] + (f"\nModel = {entry}\n" if renamed else ""),
        "candidate": task["kernel_code"] + (f"\nModelNew = {entry}New\n" if renamed else ""),
        "language": _LANGUAGES.get(str(task.get("backend") or "triton"), "pytorch"),
        "priority": _PRIORITIES.get(str(task.get("priority") or "normal"), 0),
        "baselines": _BASELINES.get(str(task.get("reference_backend") or "pytorch"), ["eager"]),
    }


def _id(task_id: str) -> str:
    """The id of a task; one with other characters than the service's is named by its hash."""
    return (
        task_id
        if FIELDS["id"].check(task_id)
        else f"task-{hashlib.sha256(task_id.encode(errors='replace')).hexdigest()[:32]}"
    )


def _failed(request: StoredRequest) -> bool:
    """Whether nothing was judged."""
    return request.state == DONE and (request.answer or {}).get("right") is None


def _result(task_id: str, request: StoredRequest) -> dict[str, Any]:
    """The result of an answered task, with KernelGYM's field names. Times are in milliseconds."""
    answer: Mapping[str, Any] = request.answer or {}
    right, failed = answer.get("right"), _failed(request)
    own, coverage = answer.get("median_ms"), answer.get("coverage")
    is_decoy = 0.0 in (coverage, answer.get("operators_replaced"))
    baselines = answer.get("baselines") or {}
    reference = baselines.get(request.asked["baselines"][-1])
    times = (request.created_at, request.ended_at)
    began, ended = (moment.isoformat() if moment else None for moment in times)
    environment = answer.get("environment") or {}
    return {
        "task_id": task_id,
        "status": "failed" if failed else "completed",
        "compiled": answer.get("compiled"),
        "correctness": right,
        "decoy_kernel": bool(right and request.asked["language"] != "pytorch" and is_decoy),
        "reference_runtime": reference,
        "kernel_runtime": own,
        "speedup": reference / own if reference and own else None,
        "metadata": {
            "device": answer.get("device"),
            "gpu_name": environment.get("device"),
            "backend": request.asked["language"],
            "status": answer.get("status"),
            "labels": answer.get("labels"),
            "worst": answer.get("worst"),
            "gradable": answer.get("gradable"),
            # Its coverage is a ratio of two times: here the share of the profile, in the time that was measured.
            **(
                {
                    "total_kernel_run_time_in_profiling_us": 1e3 * own,
                    "custom_kernel_cuda_time_in_profiling_us": 1e3 * own * coverage,
                }
                if own and coverage is not None
                else {}
            ),
        },
        "error_message": answer.get("reason") or None,
        "error_code": None,
        "submitted_at": began,
        "completed_at": ended,
        "processing_time": (times[1] - times[0]).total_seconds() if times[0] and times[1] else None,
    }


def _answer(value: Any) -> Response:
    return Response(plain.dumps(value), media_type="application/json")
