"""The outcome of a sweep that raised an error: the problem is refused, or kgen failed on it."""

from __future__ import annotations

import contextlib
import time
import traceback
from typing import Any, Iterator, Mapping

from kgen import paths
from kgen.devices.kinds import KINDS
from kgen.devices.machine import resolve_devices
from kgen.errors import DatabaseError, DiskError, InputError, KgenError, ProblemError
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy
from kgen.store import Database, attempts
from kgen.store.attempts import FAILED, REFUSED, Attempt


def outcome(error: Exception) -> str | None:
    """``refused`` where the problem does not serve, ``failed`` where kgen broke on it. ``None`` where another problem
    would meet the same error: a missing device, compiler or database."""
    if isinstance(error, ProblemError):
        return REFUSED
    return None if isinstance(error, InputError) else FAILED


def reason(error: Exception) -> str:
    """Why, in one line. Of a bug in kgen the traceback is written to a log, which the line names."""
    text = " ".join(str(error).split())
    if isinstance(error, KgenError):
        return text
    log = paths.home() / "logs" / "failed" / f"{time.time_ns():x}.log"
    with contextlib.suppress(DiskError):
        paths.write_whole(log, "".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {text[:300]} (a bug in kgen; please report it with {log})"


def device_names(asked: str | None) -> str:
    """The names of the devices asked for, as sweeps are stored with them. Raises :class:`kgen.errors.DeviceError`."""
    return ",".join(KINDS[name].first if name in KINDS else name for name in resolve_devices(asked))


@contextlib.contextmanager
def recorded(
    database: Database, problem: Problem, accuracy: Accuracy, device: str, arguments: Mapping[str, Any]
) -> Iterator[None]:
    """Keep in the database why the problem was refused or failed, where the block raises so; the error goes on."""
    started = time.monotonic()
    try:
        yield
    except Exception as error:
        ended = outcome(error)
        if ended is not None:
            # The error itself says more than a database that is gone as well.
            with contextlib.suppress(DatabaseError, DiskError):
                seconds = time.monotonic() - started
                attempts.add(database, of(problem, accuracy, device, arguments, ended, reason(error), seconds))
        raise


def of(
    problem: Problem,
    accuracy: Accuracy,
    device: str,
    arguments: Mapping[str, Any],
    outcome: str,
    reason: str,
    seconds: float,
) -> Attempt:
    """An attempt at a problem that could be read."""
    return Attempt(
        name=problem.name,
        path=problem.path,
        source_hash=problem.source_hash,
        mode=problem.asked_mode,
        overrides=dict(problem.overrides),
        accuracy=str(accuracy),
        device=device,
        outcome=outcome,
        reason=reason,
        seconds=seconds,
        arguments=arguments,
    )
