"""The tests of a run take turns on the machine: each keeps processors busy beside others until one needs them alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from kgen.evaluator.runtime.locks import DeviceLock


class Turn:
    """One test's right to keep processors busy. All tests of a run have locks in the same ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._lock = DeviceLock("tests", folder=folder)
        self._held = ExitStack()

    def __enter__(self) -> Self:
        self._held.enter_context(self._lock.working())
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until the other tests that run have ended, and keep the next ones waiting."""
        self._held.close()
        try:
            with self._lock.timing():
                yield
        finally:
            self._held.enter_context(self._lock.working())
