"""Python source as syntax trees, from any thread.

CPython 3.11 counts how deep its construction of a tree is for the whole interpreter: where a finalizer lets another
thread in, and that one parses, too, both counts are wrong and ``ast.parse`` raises ``SystemError``.
"""

from __future__ import annotations

import ast
import threading

_LOCK = threading.RLock()


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """What ``ast.parse`` gives, one thread at a time. Raises ``SyntaxError`` and the like where ``source`` is no Python."""
    with _LOCK:
        return ast.parse(source, filename)
