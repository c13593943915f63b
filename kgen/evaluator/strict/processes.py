"""The processes of a foreign candidate beside its calls, seen from the parent."""

import os
import time
from contextlib import suppress

from kgen.evaluator.runtime.process import Family

_SETTLE_SECONDS, _SETTLE_STEP_SECONDS = 0.5, 0.003
#: Share of one processor, wake-ups in a look, and looks in a row: a busy machine runs a thread in some only.
_ASLEEP, _ASLEEP_WAKEUPS, _ASLEEP_LOOKS = 0.1, 2, 8
_END_SECONDS = 0.1  #: s; for a process that is about to end


def strangers(family: Family) -> list[str]:
    """The names of processes that the candidate started and that still run."""
    if not _alive(family):
        return []
    time.sleep(_END_SECONDS)
    return _alive(family)


def settle_ms(family: Family) -> float:
    """Wait until all threads sleep, or work less than a little. Returns the milliseconds that took."""
    started, before, asleep = time.monotonic(), _activity(family), 0
    while asleep < _ASLEEP_LOOKS and time.monotonic() - started < _SETTLE_SECONDS:
        time.sleep(_SETTLE_STEP_SECONDS)
        ms, times = _activity(family)
        quiet = ms - before[0] < 1000 * _SETTLE_STEP_SECONDS * _ASLEEP and times - before[1] <= _ASLEEP_WAKEUPS
        before, asleep = (ms, times), asleep + 1 if quiet else 0
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


def _activity(family: Family) -> tuple[float, int]:
    """Milliseconds that all threads have run on a processor, and how often they were put on one."""
    ns = times = 0
    for folder in family.folders():
        tasks: list[str] = []
        with suppress(OSError):  # it ended, as a thread of it may below
            tasks = os.listdir(f"{folder}/task")
        for task in tasks:
            with suppress(OSError, ValueError), open(f"{folder}/task/{task}/schedstat", "rb", buffering=0) as file:
                ran, _, slices = map(int, file.read(200).split())
                ns, times = ns + ran, times + slices
    return ns / 1e6, times
