"""A worker that starts before its candidate is known: a CUDA context takes some tenths of a second."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from kgen.evaluator.correctness.validate import WorkerClient
from kgen.evaluator.runtime.locks import DeviceLock


@dataclass(frozen=True)
class Started:
    """A worker that waits for a candidate, with its scratch folder."""

    worker: WorkerClient
    scratch: Path


class SpareWorker:
    """Keeps one worker ready. Thread-safe. ``start`` starts one, with ``lock`` held, since it disturbs timings."""

    def __init__(self, start: Callable[[], Started], lock: DeviceLock) -> None:
        self._start = start
        self._lock = lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kgen-spare")
        self._ready: Future[Started] | None = None
        self._guard = threading.Lock()
        self._closed = False

    def take(self) -> Started:
        """The spare worker, or a new one if there is none; another spare starts meanwhile.

        It never waits for a spare: that may wait for the device, which the caller may hold. Raises
        :class:`EvaluatorError` when no worker starts.
        """
        with self._guard:
            ready = self._ready
            if ready is None or ready.done():
                self._ready = None if self._closed else self._thread.submit(self._start_beside)
        if ready is None or not ready.done() or ready.exception() is not None:
            return self._start()  # which says why, if none starts
        if ready.result().worker.child.has_ended():
            _end(ready.result())
            return self._start()
        return ready.result()

    def _start_beside(self) -> Started:
        with self._lock.working():
            return self._start()

    def close(self) -> None:
        """End the spare worker."""
        with self._guard:
            self._closed = True
            ready, self._ready = self._ready, None
        self._thread.shutdown(wait=True, cancel_futures=True)
        if ready is not None and not ready.cancelled() and ready.exception() is None:
            _end(ready.result())


def _end(started: Started) -> None:
    started.worker.close()
    shutil.rmtree(started.scratch, ignore_errors=True)
    started.worker.child.log.unlink(missing_ok=True)
