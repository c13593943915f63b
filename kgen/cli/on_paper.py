"""The server of commands that capture a problem without a sweep."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    from kgen.evaluator.runtime.process import Server


@contextlib.contextmanager
def capture_server() -> Iterator[Server]:
    """A server that forks the process of a capture. It loads torch while the command imports the rest."""
    from kgen import paths
    from kgen.devices.machine import keep_bytecode
    from kgen.evaluator.runtime.process import Server

    keep_bytecode(paths.bytecode())
    gc.disable()  # many small objects of the graph, none of them garbage before the end
    with contextlib.closing(Server(_home(), {}, first=["kgen.compiler.capture.capture"])) as server:
        server.start()
        yield server


def _home() -> Path:
    """kgen's folder, or a temporary one where none can be written: logs alone go there."""
    from kgen import paths

    logs = paths.home() / "logs"
    with contextlib.suppress(OSError):
        logs.mkdir(parents=True, exist_ok=True)
    return paths.home() if os.access(logs, os.W_OK) else Path(tempfile.gettempdir()) / f"kgen-{os.getuid()}"
