"""The parts that the routes of the service answer from: its database, its judge, and the requests that it keeps."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any, Callable

from starlette.concurrency import run_in_threadpool

from kgen.devices.kinds import HOST
from kgen.protocol import Accuracy
from kgen.serve import answers
from kgen.serve.asked import Asked, RequestError
from kgen.serve.judge import Judge, Wanted
from kgen.serve.known import Known
from kgen.store import Database, requests
from kgen.store.requests import DONE, StoredRequest

_LOOK_SECONDS = 0.1  #: s; between looks for new events


@dataclass(frozen=True)
class Service:
    """The parts that the routes answer from."""

    database: Database
    judge: Judge
    known: Known
    tokens: frozenset[str]
    devices: tuple[str, ...]

    async def rehearse(self) -> None:
        """Load and compile the code of first requests: they would otherwise wait a tenth of a second for it."""
        await run_in_threadpool(requests.rehearse, self.database)

    # Requests, in threads ------------------------------------------------------------------------------------------

    async def accept(self, owner: str, bodies: list[Any]) -> list[StoredRequest]:
        """Keep the evaluations that bodies ask for, all or none. Raises :class:`RequestError`, and what the judge
        raises."""
        return await self.keep(lambda: self._wanted(owner, bodies))

    async def keep(self, read: Callable[[], list[Wanted]]) -> list[StoredRequest]:
        """Keep the requests that ``read`` returns. Raises what it raises, :class:`RequestError`, and what the judge
        raises."""

        def wanted() -> list[Wanted]:
            found = read()
            if len({request.id for request, _ in found}) < len(found):
                raise RequestError(422, "two evaluations of one batch have the same id")
            return found

        return await asyncio.wrap_future(self.judge.accepting(wanted))

    def _wanted(self, owner: str, bodies: list[Any]) -> list[Wanted]:
        wanted = []
        for number, body in enumerate(bodies):
            try:
                asked, fields = self.known.ask(body)
                if asked.accuracy is Accuracy.TF32 and HOST.name in self.devices:
                    raise RequestError(
                        422, "accuracy tf32 is for CUDA devices: this service has the CPU, which has no TF32"
                    )
            except RequestError as error:
                place = f"evaluation {number}: " if len(bodies) > 1 else ""
                raise RequestError(error.status, place + str(error)) from error
            wanted.append((self.row(owner, asked, fields["id"], fields["priority"]), asked))
        return wanted

    def row(self, owner: str, asked: Asked, id: str | None, priority: int) -> StoredRequest:
        """A request that is not kept yet."""
        return StoredRequest(owner, id or secrets.token_hex(8), asked.digest, priority, asked.to_json())

    def find(self, owner: str, id: str) -> StoredRequest:
        """A client's own request. Raises :class:`RequestError` with 404."""
        found = requests.find(self.database, owner, id)
        if found is None:
            raise RequestError(404, f"no evaluation {ascii(id[:100])}")
        return found

    def shown(self, request: StoredRequest) -> dict[str, Any]:
        """A request as its client sees it."""
        return answers.shown(request, self.judge.position(request.owner, request.id))

    async def ended(self, request: StoredRequest) -> StoredRequest:
        """A request once it has its answer, or as it is when the service ends."""
        while request.state != DONE and not self.judge.is_draining:
            while self.judge.events(request.owner, request.id, 0) is not None and not self.judge.is_draining:
                await asyncio.sleep(_LOOK_SECONDS)
            request = await run_in_threadpool(self.find, request.owner, request.id)
        return request
