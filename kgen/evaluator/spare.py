"""A worker that is ready before its candidate is known."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Callable

from kgen.evaluator.correctness.validate import WorkerClient
from kgen.evaluator.runtime.locks import DeviceLock


class SpareWorker:
    """Keeps one worker ready before its candidate is known: a CUDA context takes some tenths of a second. Thread-safe.
    ``start`` starts one, with ``lock`` held, since it disturbs timings."""

    def __init__(self, start: Callable[[], WorkerClient], lock: DeviceLock) -> None:
        self._start = start
        self._lock = lock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kgen-spare")
        self._ready: Future[WorkerClient] | None = None
        self._guard = threading.Lock()

    def take(self) -> WorkerClient:
        """The spare worker, or a new one if there is none; another spare starts meanwhile. It never waits for a spare:
        that may wait for the device, which the caller may hold. Raises :class:`EvaluatorError` when no worker
        starts."""
        worker = None
        with self._guard:
            if self._ready is None or self._ready.done():
                worker, self._ready = _result(self._ready), None
                with suppress(RuntimeError):  # it closes
                    self._ready = self._thread.submit(self._lock.working()(self._start))
        if worker is not None and worker.child.has_ended():
            worker.close()
            worker = None
        return worker or self._start()  # which says why, if none starts

    def close(self) -> None:
        """End the spare worker."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        with self._guard:
            worker, self._ready = _result(self._ready), None
        if worker is not None:
            worker.close()


def _result(ended: Future[WorkerClient] | None) -> WorkerClient | None:
    """The worker that has started, if one has."""
    failed = ended is None or ended.cancelled() or ended.exception() is not None
    return None if failed else ended.result()
