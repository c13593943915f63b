"""Requests of many clients, stored together: those that come while one transaction is committed share the next.

A commit waits for the disk. With one commit for each request, the last of 32 clients would wait for 32 commits. One
thread reads the requests, too: on a busy machine, each thread that a request passes through keeps it waiting.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Callable, Sequence

from kgen.store import Database, requests
from kgen.store.requests import StoredRequest

QUIET_SECONDS = 0.02  #: s; in which no request comes, and none is stored
Added = list[tuple[StoredRequest, bool]]  #: as :func:`kgen.store.requests.add` returns them


@dataclass
class _Batch:
    """Requests of one client: how they are read, and what follows once they are stored."""

    read: Callable[[], Sequence[StoredRequest]]
    then: Callable[[Added], Any]
    future: Future[Any]
    requests: Sequence[StoredRequest] = ()


class Together:
    """Stores requests in a thread of its own, for any number of clients at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._arrived: SimpleQueue[_Batch | None] = SimpleQueue()
        self._busy = 0.0  # when the latest request came or was stored, on the monotonic clock
        threading.Thread(target=self._run, name="kgen-accept", daemon=True).start()

    def submit(self, read: Callable[[], Sequence[StoredRequest]], then: Callable[[Added], Any]) -> Future[Any]:
        """Keep the requests of one owner that ``read`` returns, all or none, as :func:`kgen.store.requests.add` does.
        The thread calls ``read`` and ``then``. The future has the result of ``then``, or raises the error of either
        call."""
        future: Future[Any] = Future()
        self._busy = time.monotonic()
        self._arrived.put(_Batch(read, then, future))
        return future

    def wait_until_quiet(self, most: float) -> None:
        """Wait until no request comes or is stored, ``most`` seconds at most: a client that sends many requests at once
        is answered first."""
        until = time.monotonic() + most
        while (now := time.monotonic()) < min(until, self._busy + QUIET_SECONDS):
            time.sleep(min(until, self._busy + QUIET_SECONDS) - now)

    def close(self) -> None:
        """End the thread once all that has come is stored."""
        self._arrived.put(None)

    def _run(self) -> None:
        ends = False
        while not ends:
            came = [self._arrived.get()]
            while not self._arrived.empty():
                came.append(self._arrived.get())
            ends = None in came
            self._store([batch for batch in came if batch is not None and batch.future.set_running_or_notify_cancel()])
            self._busy = time.monotonic()

    def _store(self, batches: Sequence[_Batch]) -> None:
        read = []
        for batch in batches:
            try:
                batch.requests = batch.read()
                read.append(batch)
            except Exception as error:
                batch.future.set_exception(error)
        if read:
            self._write(read)

    def _write(self, batches: Sequence[_Batch]) -> None:
        """Write batches in one transaction. Where that fails, each batch is written alone: no batch suffers from
        another one."""
        try:
            found = requests.add_all(self._database, [batch.requests for batch in batches])
        except Exception as error:
            if len(batches) == 1:
                batches[0].future.set_exception(error)
            for batch in batches if len(batches) > 1 else ():
                self._write([batch])
            return
        for batch, added in zip(batches, found, strict=True):
            try:
                batch.future.set_result(batch.then(added))
            except Exception as error:
                batch.future.set_exception(error)
