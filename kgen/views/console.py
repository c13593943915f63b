"""The console that tables and progress are printed to."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_FILE_WIDTH = 100  #: columns of an output that is no terminal


def console() -> Console:
    """Standard output, without rich's markup: plans have brackets."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _FILE_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)
