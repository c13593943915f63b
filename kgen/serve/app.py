"""The routes of the service."""

from __future__ import annotations

import asyncio
import time
from typing import Any, AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from kgen import paths
from kgen.errors import KgenError
from kgen.protocol import __version__
from kgen.serve import access, kernelgym, openapi
from kgen.serve.asked import MOST_BYTES, RequestError
from kgen.serve.bodies import read_json
from kgen.serve.judge import Draining, QueueFull
from kgen.serve.service import Service
from kgen.store import ranking
from kgen.store.requests import DONE, StoredRequest
from kgen.views import plain

MOST_OF_BATCH = 1024  #: evaluations in one batch
BATCH_BYTES = 32 << 20  #: bytes of one batch
_LOOK_SECONDS = 0.1  #: s; between looks for new events
_ALIVE_SECONDS = 10.0  #: s; between comments that keep a stream of events open
_DRAINING_SECONDS = 30  #: s; that clients are told to wait for the next service

Handler = Callable[[Request], Awaitable[Response]]


def application(service: Service) -> Starlette:
    """The service as an ASGI application."""
    routes = _Routes(service)
    kernelgym_routes = kernelgym.Routes(service)
    table: list[tuple[str, str, Handler]] = [
        ("POST", "/evaluations", routes.evaluate),
        ("POST", "/evaluations/batch", routes.evaluate_batch),
        ("GET", "/evaluations/{id}", routes.evaluation),
        ("GET", "/evaluations/{id}/events", routes.events),
        ("GET", "/evaluations/{id}/log", routes.log),
        ("GET", "/evaluations/{id}/source", routes.source),
        ("GET", "/problems", routes.problems),
        ("GET", "/best", routes.best),
        ("GET", "/metrics", routes.metrics),
        ("GET", "/openapi.json", routes.openapi),
        ("GET", "/docs", routes.docs),
        *kernelgym_routes.table,
    ]
    guarded = [Route(path, _guarded(service, handler), methods=[method]) for method, path, handler in table]
    unknown: dict[Any, Any] = {HTTPException: _http_error}
    return Starlette(routes=[Route("/health", routes.health), *guarded], exception_handlers=unknown)


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    """A response with JSON values."""
    return Response(plain.dumps(value), status, headers, media_type="application/json")


def _error(status: int, line: str, **headers: str) -> Response:
    return answer({"error": line}, status, **headers)


async def _http_error(request: Request, error: HTTPException) -> Response:
    return _error(error.status_code, error.detail)


def _guarded(service: Service, handler: Handler) -> Handler:
    """The handler behind the check of the client; an error becomes one line with its status."""

    async def guarded(request: Request) -> Response:
        try:
            request.state.owner = access.owner(request.headers, service.tokens)
            return await handler(request)
        except RequestError as error:
            refused = error.status
            challenge = {"WWW-Authenticate": "Bearer"} if refused == 401 else {}
            response = _error(refused, str(error), **challenge)
        except QueueFull as error:
            refused = 429
            response = _error(refused, str(error), **{"Retry-After": str(error.seconds)})
        except Draining:
            refused = 503
            response = _error(refused, "the service ends: ask the next one", **{"Retry-After": str(_DRAINING_SECONDS)})
        except KgenError as error:  # the database, the disk
            refused = 503
            response = _error(refused, str(error))
        service.judge.metrics.add("kgen_refused_total", status=str(refused))
        return response

    return guarded


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._started = time.monotonic()

    async def evaluate(self, request: Request) -> Response:
        body = await read_json(request, MOST_BYTES)
        [stored] = await self._service.accept(request.state.owner, [body])
        return answer(
            self._service.shown(stored), 200 if stored.state == DONE else 202, Location=f"/evaluations/{stored.id}"
        )

    async def evaluate_batch(self, request: Request) -> Response:
        body = await read_json(request, BATCH_BYTES)
        bodies = body.get("evaluations") if isinstance(body, dict) else None
        if not isinstance(bodies, list) or not 0 < len(bodies) <= MOST_OF_BATCH:
            raise RequestError(422, f"a batch is an object with a list of 1 to {MOST_OF_BATCH} evaluations")
        stored = await self._service.accept(request.state.owner, bodies)
        return answer({"evaluations": [self._service.shown(one) for one in stored]}, 202)

    async def evaluation(self, request: Request) -> Response:
        waiting = self._service.judge.waiting(request.state.owner, request.path_params["id"])
        return answer(self._service.shown(waiting or await self._find(request)))

    async def events(self, request: Request) -> Response:
        found = await self._find(request)
        return StreamingResponse(
            self._events(found), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def log(self, request: Request) -> Response:
        found = await self._find(request)
        text = await run_in_threadpool(paths.read_log, str((found.answer or {}).get("log") or ""))
        if text is None:
            raise RequestError(404, f"evaluation {found.id} has no log")
        return _text(text)

    async def source(self, request: Request) -> Response:
        return _text((await self._find(request)).asked["candidate"])

    async def problems(self, request: Request) -> Response:
        return answer({"problems": await run_in_threadpool(self._service.known.listed)})

    async def best(self, request: Request) -> Response:
        return answer({"best": await run_in_threadpool(self._best, request.query_params.get("problem"))})

    async def health(self, request: Request) -> Response:
        draining = self._service.judge.is_draining
        found = {"status": "draining" if draining else "ok", "kgen": __version__, **self._service.judge.load()}
        return answer(found, 503 if draining else 200)

    async def metrics(self, request: Request) -> Response:
        load = self._service.judge.load()
        gauges = {
            "kgen_queued": ("Evaluations that wait.", float(load["queued"])),
            "kgen_running": ("Candidates that are judged now.", float(load["running"])),
            "kgen_devices": ("Devices of the service.", float(len(self._service.devices))),
            "kgen_uptime_seconds": ("Seconds since the service began.", time.monotonic() - self._started),
        }
        return PlainTextResponse(self._service.judge.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return answer(openapi.document())

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(
            openapi.page(), headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        )

    async def _find(self, request: Request) -> StoredRequest:
        return await run_in_threadpool(self._service.find, request.state.owner, request.path_params["id"])

    async def _events(self, found: StoredRequest) -> AsyncIterator[str]:
        """The events of a request as server-sent events, its answer last."""
        sent, silent = 0, 0.0
        while (new := self._service.judge.events(found.owner, found.id, sent)) is not None:
            if self._service.judge.is_draining and self._service.judge.position(found.owner, found.id) is not None:
                return  # the next service judges it
            for event in new:
                yield _event("step", event)
            sent += len(new)
            silent = 0.0 if new else silent + _LOOK_SECONDS
            if silent >= _ALIVE_SECONDS:
                silent = 0.0
                yield ": waiting\n\n"
            await asyncio.sleep(_LOOK_SECONDS)
        ended = await run_in_threadpool(self._service.find, found.owner, found.id)
        yield _event("answer", self._service.shown(ended))

    def _best(self, name: str | None) -> list[dict[str, Any]]:
        """The best candidate of each problem, or of the problems with this name: ``kgen best --json`` without the
        file."""
        rows = ranking.best(self._service.database)
        return [plain.best(row, None) for row in rows if name is None or row.problem.name == name]


def _event(kind: str, value: Any) -> str:
    return f"event: {kind}\ndata: {plain.dumps(value, indent=None)}\n\n"


def _text(text: str) -> Response:
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})
