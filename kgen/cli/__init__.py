"""The command line: parse, call, print.

Each module of this package holds one group of commands. Importing it here adds them to :data:`main`. A command imports
what it needs inside its function, so that the others start at once.
"""

from kgen.cli import (
    agent,
    best,
    eval_file,
    history,
    housekeeping,
    machine,
    plan,
    render,
    report,
    scores,
    serve,
    sweep,
    tune,
)
from kgen.cli.group import main

__all__ = [
    "agent",
    "best",
    "eval_file",
    "history",
    "housekeeping",
    "machine",
    "main",
    "plan",
    "render",
    "report",
    "scores",
    "serve",
    "sweep",
    "tune",
]
