"""The processes of a foreign candidate beside its calls, seen from the parent."""

from __future__ import annotations

import time

from kgen.evaluator.runtime.process import Family

_SETTLE_SECONDS, _SETTLE_STEP_SECONDS = 0.5, 0.003
_ASLEEP = 0.1  #: share of one processor; threads that use less are asleep
_WAKE_SECONDS = 0.03
_END_SECONDS = 0.1  #: s; for a process that is about to end


def strangers(family: Family) -> list[str]:
    """The names of processes that the candidate started and that still run."""
    if not _alive(family):
        return []
    time.sleep(_END_SECONDS)
    return _alive(family)


def settle(family: Family) -> tuple[float, int]:
    """Wait until all threads sleep. Returns the milliseconds that took, and how often one wakes up afterwards."""
    started = time.monotonic()
    used = _processor_ms(family)
    while time.monotonic() - started < _SETTLE_SECONDS:
        time.sleep(_SETTLE_STEP_SECONDS)
        before, used = used, _processor_ms(family)
        if used - before < 1000 * _SETTLE_STEP_SECONDS * _ASLEEP:
            break
    took, awake = time.monotonic() - started, _wakeups(family)
    time.sleep(_WAKE_SECONDS)
    return 1000 * took, _wakeups(family) - awake


def _alive(family: Family) -> list[str]:
    found = []
    for folder in family.new():
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if rest.split()[0] not in "ZX":
            found.append(name)
    return sorted(found)


def _processor_ms(family: Family) -> float:
    """Milliseconds that all threads have run on a processor."""
    ns = 0
    for task in (task for folder in family.folders() for task in folder.glob("task/*/schedstat")):
        try:
            ns += int(task.read_text().split()[0])
        except (OSError, IndexError):
            continue
    return ns / 1e6


def _wakeups(family: Family) -> int:
    """How often all threads have been scheduled."""
    found = 0
    for status in (status for folder in family.folders() for status in folder.glob("task/*/status")):
        try:
            lines = status.read_text().splitlines()
        except OSError:
            continue
        found += sum(int(line.partition(":")[2]) for line in lines if "ctxt_switches" in line)
    return found
