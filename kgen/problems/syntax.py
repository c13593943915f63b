"""Python source as syntax trees, from any thread.

CPython 3.11 counts the recursion depth of ``ast.parse`` for the whole interpreter. If a finalizer lets another thread
parse at the same time, both counts are wrong and ``ast.parse`` raises ``SystemError``.
"""

from __future__ import annotations

import ast
import re
import threading

_LOCK = threading.RLock()
#: The statements in which candidates of a plan differ most: the docstring, the kernels, and the library's name.
_VARYING = re.compile(r'\A""".*?"""|^(?:CPP|CUDA)_SOURCE = r""".*?^"""$|^NAME = [^\n]*$', re.DOTALL | re.MULTILINE)


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """The tree of ``ast.parse``, built by one thread at a time. Raises the same errors, such as ``SyntaxError``."""
    with _LOCK:
        return ast.parse(source, filename)


def parse_expression(source: str) -> ast.expr:
    """The tree of one expression, built by one thread at a time. Raises the same errors, such as ``SyntaxError``."""
    with _LOCK:
        return ast.parse(source, mode="eval").body


def parted(source: str) -> tuple[str, list[str]]:
    """A rendered file in two: the statements that most candidates of a plan share, and the others."""
    return _VARYING.sub("", source), _VARYING.findall(source)
