"""Where tables and progress are printed."""

from __future__ import annotations

import os
import sys

from rich.console import Console

#: Columns where the output is no terminal, which has no width of its own: enough for a plan and its parameters.
_FILE_WIDTH = 160


def console() -> Console:
    """Standard output. Text is printed as it is: plans have brackets, which rich would take for markup."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _FILE_WIDTH
    return Console(width=width, markup=False, highlight=False, emoji=False)
