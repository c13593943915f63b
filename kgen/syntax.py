"""Python source as syntax trees, from any thread.

CPython 3.11 counts the recursion depth of ``ast.parse`` for the whole interpreter. If a finalizer lets another thread
parse at the same time, both counts are wrong and ``ast.parse`` raises ``SystemError``.
"""

from __future__ import annotations

import ast
import threading

_LOCK = threading.RLock()


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """The tree of ``ast.parse``, built by one thread at a time. Raises the same errors, such as ``SyntaxError``."""
    with _LOCK:
        return ast.parse(source, filename)
