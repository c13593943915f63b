"""Capture in a process of its own, which alone executes the problem's code.

    problem ── fork server ──> load, settle the mode, capture ── JSON ──> settled problem, Capture

The code of a problem may exit, crash, fork, or never end. Here that costs a process, and the error says what happened.
"""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

from kgen.compiler.capture.capture import Capture
from kgen.compiler.capture.plain import from_json, to_json
from kgen.errors import CaptureError, InternalError, PluginError, ProblemError
from kgen.evaluator.runtime.channel import Channel, ChannelTimeout
from kgen.evaluator.runtime.process import ChildDied, Server
from kgen.problems.problem import Problem, load, resolve_mode, without_values
from kgen.protocol import TRIES
from kgen.tuning.design import allow_long_chains, captured

SECONDS = 600.0  #: s; for a capture that has no other limit
_MAIN = f"{__name__}:main"


def capture_here(problem: Problem, device_type: str) -> tuple[Problem, Capture]:
    """The problem with its mode settled, and its graphs on a kind of device; its code runs in this process.

    Raises :class:`ProblemError` where its functions raise, and :class:`CaptureError` where the forward cannot be
    captured.
    """
    loaded = load(problem)
    if not problem.mode:
        loaded = resolve_mode(loaded, without_values(loaded.model))
    return loaded.problem, captured(loaded, device_type)


def capture_apart(
    problem: Problem, device_type: str, server: Server | None, until: float = inf
) -> tuple[Problem, Capture]:
    """The same, in a process that ``server`` forks, until a time on the monotonic clock.

    Raises what :func:`capture_here` raises, and :class:`ProblemError` where the problem ends the process, or takes
    longer. A process that is ended from outside is started again. Without a server, it is :func:`capture_here`.
    """
    if server is None:
        return capture_here(problem, device_type)
    options = {"main": _MAIN, "problem": asdict(replace(problem, overrides=())), "device_type": device_type}
    allow_long_chains()
    log = server.home / "logs" / "capture.log"
    for _ in range(TRIES):
        started = time.monotonic()
        until = min(until, started + SECONDS)
        try:
            with server.spawn("other", options, log) as child:
                answer, _ = child.ask({}, deadline=until)
        except ChannelTimeout:
            seconds = time.monotonic() - started
            raise ProblemError(
                f"{problem.path}: its own code is not captured after {seconds:.0f} s: does forward end?"
            ) from None
        except ChildDied as error:
            if error.for_memory:
                raise ProblemError(f"{problem.path}: memory ran out while its forward was captured") from error
            if not error.from_outside:
                raise ProblemError(f"{problem.path}: its own code ended the process that ran it: {error}") from error
            died = error
        else:
            return _found(problem, answer, log)
    raise ProblemError(f"{problem.path}: the process that ran its code was ended {TRIES} times: {died}")


#: The errors that cross from the process, the most special first.
_ERRORS = {kind.__name__: kind for kind in (CaptureError, ProblemError, PluginError)}


def _found(problem: Problem, answer: dict[str, Any], log: Path) -> tuple[Problem, Capture]:
    """The problem and the graphs that the process answered. Raises its error."""
    if "bug" in answer:
        raise InternalError(f"capture raised {answer['bug']}; this is a bug in kgen: please report it, with {log}")
    if "error" in answer:
        raise _ERRORS[answer["kind"]](answer["error"])
    return replace(problem, mode=answer["mode"]), from_json(answer["capture"])


def main(channel: Channel, options: dict[str, Any]) -> None:
    """The process: capture one problem, and answer."""
    channel.receive()
    channel.send(_answer(Problem(**options["problem"]), options["device_type"]))


def _answer(problem: Problem, device_type: str) -> dict[str, Any]:
    try:
        settled, capture = capture_here(problem, device_type)
        return {"mode": settled.mode, "capture": to_json(capture)}
    except (ProblemError, PluginError) as error:
        kind = next(name for name, one in _ERRORS.items() if isinstance(error, one))
        return {"error": str(error), "kind": kind}
    except SystemExit:
        return {"error": f"{problem.path}: its own code called exit()", "kind": ProblemError.__name__}
    except Exception as error:
        traceback.print_exc()
        line = " ".join(f"{type(error).__name__}: {error}".split())
        return {"bug": line[:300]}
