"""Symbols: the names of helpers and types that a text in C needs.

A symbol has a mark from where it is written until the text is whole:

    symbol("load_vector")      in a statement that Python writes
    extension()                in a Jinja2 file: its own text is marked when the file is read
    linked(text)               the finished text without marks, and its symbols in the order of the text
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2.ext import Extension

_MARK = "\ue000"  # of Unicode's private use: no source has it

#: Names in front of arguments, of a call or of a template; types with a header of their own.
_WRITTEN = re.compile(
    rf"(?<!{_MARK})\b(?:[a-z_][a-z0-9_]*(?=[(<])|\w+_t\b|u?int\d\w*|uint\w*|__half\w*|CUtensorMap\w*|atomic_int\w*)"
)


def symbol(name: str) -> str:
    """The name of a helper or type in a text that is not finished."""
    return _MARK + name


def written(text: str) -> str:
    """A text that a person wrote, with its symbols marked."""
    return _WRITTEN.sub(lambda found: symbol(found[0]), text)


def linked(text: str) -> tuple[str, tuple[str, ...]]:
    """A text without marks, and its symbols in order, each once."""
    head, *parts = text.split(_MARK)
    names = (re.match(r"\w+", part) for part in parts)
    return "".join((head, *parts)), tuple(dict.fromkeys(name[0] for name in names if name))


def extension() -> type[Extension]:
    """For Jinja2's environment of files in C. It marks their text, and the strings in their expressions."""
    from jinja2.ext import Extension
    from jinja2.lexer import Token

    class Written(Extension):
        def filter_stream(self, stream: Any) -> Any:
            for token in stream:
                is_text = token.type in ("data", "string")
                yield Token(token.lineno, token.type, written(token.value)) if is_text else token

    return Written
