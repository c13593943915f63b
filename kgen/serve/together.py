"""Requests of many clients, stored together: those that come while one transaction is committed share the next.

A commit waits for the disk. One for each request, one after the other, would keep the last of 32 clients waiting for 32 of them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Sequence

from kgen.store import Database, requests
from kgen.store.requests import StoredRequest

Added = list[tuple[StoredRequest, bool]]


@dataclass
class _Batch:
    requests: Sequence[StoredRequest]
    added: Added | None = None
    error: Exception | None = None
    leads: bool = False  # its thread writes for all that wait
    told: threading.Event = field(default_factory=threading.Event)


class Together:
    """Stores requests; may be called by any number of threads at once. One of them writes for all that wait, then hands over."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._guard = threading.Lock()
        self._waiting: list[_Batch] = []
        self._led = False  # whether a thread writes

    def add(self, wanted: Sequence[StoredRequest]) -> Added:
        """Keep requests of one owner, all or none, as :func:`kgen.store.requests.add` does. Raises what that does."""
        mine = _Batch(wanted)
        with self._guard:
            self._waiting.append(mine)
            mine.leads, self._led = not self._led, True
        if not mine.leads:
            mine.told.wait()
        if mine.leads:
            self._lead()
        if mine.error is not None:
            raise mine.error
        assert mine.added is not None
        return mine.added

    def _lead(self) -> None:
        with self._guard:
            batches, self._waiting = self._waiting, []
        try:
            self._write(batches)
        finally:
            with self._guard:
                following = self._waiting[0] if self._waiting else None
                self._led = following is not None
                if following is not None:
                    following.leads = True
                    following.told.set()
            for batch in batches:
                batch.told.set()

    def _write(self, batches: Sequence[_Batch]) -> None:
        """Write batches in one transaction; where that fails, each alone, so that one costs no other its place."""
        try:
            for batch, added in zip(batches, requests.add_all(self._database, [b.requests for b in batches]), strict=True):
                batch.added = added
        except Exception as error:
            if len(batches) == 1:
                batches[0].error = error
                return
            for batch in batches:
                self._write([batch])
