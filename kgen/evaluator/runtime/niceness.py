"""Niceness: how much processor time a process leaves to others.

Where Linux groups processes by session (``sched_autogroup_enabled``), the niceness of a process counts within its
session alone. The session has a niceness of its own, in ``/proc/PID/autogroup``, and begins with 0.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def be_nicer(more: int, pid: int | None = None) -> None:
    """Make a process, by default this one, nicer than this process by ``more``, and its session as nice."""
    os.setpriority(os.PRIO_PROCESS, pid or 0, os.getpriority(os.PRIO_PROCESS, 0) + more)
    with suppress(OSError):  # no such groups here, or too many changes at once
        Path(f"/proc/{pid or 'self'}/autogroup").write_text(
            str(os.getpriority(os.PRIO_PROCESS, pid or 0)), encoding="ascii"
        )
