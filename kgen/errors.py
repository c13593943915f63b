"""All errors that kgen raises on purpose, and its end by Ctrl-C.

    KgenError
    ├── InputError                 the user's input is wrong; the command line ends with exit code 2
    │   ├── ProblemError           the problem file cannot be found, read, executed or captured
    │   │   ├── OverrideError      a ``-D name=value`` names no constant, or has the wrong type
    │   │   └── CaptureError       the forward cannot be captured as a graph
    │   ├── DeviceError            the device asked for is not there
    │   ├── ToolchainError         a compiler or build tool is missing
    │   ├── ExtraError             an optional part of kgen is not installed
    │   ├── PluginError            a plug-in cannot be imported
    │   ├── DatabaseError          the database cannot be used
    │   │   ├── DatabaseBusyError  another process holds the database for longer than kgen waits
    │   │   └── DatabaseVersionError   the database was written by a newer kgen
    │   ├── NotFoundError          no sweep, candidate or result answers to that name
    │   ├── FolderError            a folder holds no optimised module of this version
    │   └── DiskError              a folder cannot be written, or the disk is full
    └── InternalError              kgen itself is wrong: please report
        ├── RenderError            a template or its context is wrong
        └── EvaluatorError         the evaluator's own processes failed (never a candidate's fault)

Each message is one line: the fault, its place, and the remedy.
"""

from __future__ import annotations

import os
from typing import NoReturn

INTERRUPTED = 130  #: the exit code after Ctrl-C


class KgenError(Exception):
    """The root of all errors that kgen raises on purpose."""

    exit_code = 2


class InputError(KgenError):
    """The user's input is wrong: one line names the fault, its place, and the remedy."""


class ProblemError(InputError):
    """The problem file cannot be found, read, executed or captured."""


class OverrideError(ProblemError):
    """A ``-D name=value`` names no constant of the problem, or its value has another type."""


class CaptureError(ProblemError):
    """The problem's forward cannot be captured as a graph of operators."""


class DeviceError(InputError):
    """The device asked for is not there."""


class ToolchainError(InputError):
    """A compiler or build tool is missing."""


class ExtraError(InputError):
    """An optional part of kgen is not installed; the message has the command that installs it."""


class PluginError(InputError):
    """A plug-in that the user named cannot be imported."""


class DatabaseError(InputError):
    """The database cannot be used."""


class DatabaseBusyError(DatabaseError):
    """Another process holds the database for longer than kgen waits."""


class DatabaseVersionError(DatabaseError):
    """The database was written by a newer kgen."""


class NotFoundError(InputError):
    """No sweep, candidate or result answers to that name."""


class FolderError(InputError):
    """A folder holds no optimised module of this version, or one of its files was changed."""


class DiskError(InputError):
    """A folder cannot be written, or the disk is full."""


class InternalError(KgenError):
    """kgen itself is wrong; the message asks for a report."""

    exit_code = 70


class RenderError(InternalError):
    """A template, or what it was given, is wrong."""


class EvaluatorError(InternalError):
    """The evaluator's own processes failed; never a candidate's fault."""


def leave(number: int, frame: object) -> NoReturn:
    """A signal's handler that ends the process at once, in one line, where an exception would be lost. No clean-up
    runs."""
    os.write(2, b"kgen: interrupted\n")
    os._exit(INTERRUPTED)
