"""A worker that starts before its candidate is known: a CUDA context takes some tenths of a second."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from kgen.errors import EvaluatorError
from kgen.evaluator.correctness.validate import WorkerClient
from kgen.evaluator.runtime.locks import DeviceLock


@dataclass(frozen=True)
class Started:
    """A worker that waits for a candidate, with its scratch folder and its log."""

    worker: WorkerClient
    scratch: Path
    log: Path


class SpareWorker:
    """Keeps one worker ready. Thread-safe. ``start`` starts one; it holds ``lock`` as work, since it disturbs
    timings."""

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
            ready = self._ready if self._ready is not None and self._ready.done() else None
            if ready is not None or self._ready is None:
                self._ready = None if self._closed else self._thread.submit(self._start_beside)
        try:
            started = ready.result() if ready is not None else None
        except EvaluatorError:
            started = None  # the caller's own attempt says why
        if started is not None and started.worker.child.has_ended():
            _end(started)
            started = None
        return started or self._start()

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
    started.log.unlink(missing_ok=True)
