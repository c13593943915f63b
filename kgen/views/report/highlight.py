"""A candidate's source as HTML: Python, with the kernels in its raw strings highlighted as CUDA C++."""

from __future__ import annotations

import io
import re
from typing import Any, Iterator

from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import String

_LIGHT, _DARK = "xcode", "github-dark"  #: styles of Pygments

#: Kernels are raw strings; the text between two of them is Python.
_KERNELS = re.compile(r'(r""")(.*?)(""")', re.DOTALL)


def html(source: str) -> str:
    """``source`` in spans with classes of :func:`styles`; its text is escaped and otherwise unchanged."""
    written = io.StringIO()
    HtmlFormatter(nowrap=True).format(_tokens(source), written)
    return written.getvalue()


def styles() -> str:
    """The style sheet of the spans in ``.source``, in light and in dark."""
    light, dark = (HtmlFormatter(style=style, nobackground=True).get_style_defs(".source") for style in (_LIGHT, _DARK))
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _tokens(source: str) -> Iterator[tuple[Any, str]]:
    python, cuda = (lexer(stripnl=False, ensurenl=False) for lexer in (PythonLexer, CudaLexer))
    between, *kernels = _KERNELS.split(source)
    yield from python.get_tokens(between)
    for opening, kernel, closing, between in zip(*[iter(kernels)] * 4, strict=True):
        yield String, opening
        yield from cuda.get_tokens(kernel)
        yield String, closing
        yield from python.get_tokens(between)
