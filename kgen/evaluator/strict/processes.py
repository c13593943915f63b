"""The processes of a foreign candidate beside its calls, seen from the parent."""

from __future__ import annotations

import time

from kgen.evaluator.runtime.process import Family

_SETTLE_SECONDS, _SETTLE_STEP_SECONDS = 0.5, 0.003
#: Share of one processor, and looks in a row; threads that use less are asleep. A busy machine runs a thread in some.
_ASLEEP, _ASLEEP_LOOKS = 0.1, 8
_END_SECONDS = 0.1  #: s; for a process that is about to end


def strangers(family: Family) -> list[str]:
    """The names of processes that the candidate started and that still run."""
    if not _alive(family):
        return []
    time.sleep(_END_SECONDS)
    return _alive(family)


def settle_ms(family: Family) -> float:
    """Wait until all threads sleep. Returns the milliseconds that took."""
    started, used, asleep = time.monotonic(), _processor_ms(family), 0
    while asleep < _ASLEEP_LOOKS and time.monotonic() - started < _SETTLE_SECONDS:
        time.sleep(_SETTLE_STEP_SECONDS)
        before, used = used, _processor_ms(family)
        asleep = asleep + 1 if used - before < 1000 * _SETTLE_STEP_SECONDS * _ASLEEP else 0
    return 1000 * (time.monotonic() - started)


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
