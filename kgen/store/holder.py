"""The process that holds a sweep, and whether it still lives: a killed sweep is not a running one."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path


def this_process() -> str:
    """``host:pid:start``. The start time distinguishes a process from a later one with the same number."""
    return _named(os.getpid())


def is_alive(holder: str) -> bool:
    """Whether the process lives. A process on another host counts as alive, because it cannot be asked."""
    host, pid, start = holder.rsplit(":", 2)
    return host != socket.gethostname() or (_exists(int(pid)) and start == _start_time(int(pid)))


@lru_cache(maxsize=1)
def _named(pid: int) -> str:
    return f"{socket.gethostname()}:{pid}:{_start_time(pid)}"


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _start_time(pid: int) -> str:
    """Ticks since boot, from field 22 of ``/proc/PID/stat``; empty for a zombie, and where there is no ``/proc``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]
