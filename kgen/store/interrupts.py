"""Interrupts put off: no Ctrl-C stops the main thread between steps that belong together."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def put_off() -> Iterator[Callable[[], None]]:
    """Let handlers of SIGINT and SIGTERM run at the end of the block. Yields a function that runs them before, if need
    be.

    Other threads than the main one are never interrupted: there, nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    handlers = {number: handler for number in _NUMBERS if callable(handler := signal.getsignal(number))}
    came: list[tuple[int, Any]] = []
    is_over = False

    def note(number: int, frame: Any) -> None:
        came.append((number, frame))
        if is_over:  # while the handlers are put back
            handle()

    def handle() -> None:
        while came:
            number, frame = came.pop()
            handlers[signal.Signals(number)](number, frame)

    for number in handlers:
        signal.signal(number, note)
    try:
        yield handle
    finally:
        is_over = True
        for number, handler in handlers.items():
            signal.signal(number, handler)
        handle()
