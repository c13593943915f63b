"""The environments of Jinja2 in which the texts of files and helpers are rendered."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kgen.codegen.symbols import extension, symbol

if TYPE_CHECKING:
    import jinja2

HERE = Path(__file__).parent


@lru_cache(maxsize=None)
def environment(folder: Path = HERE, in_c: bool = False) -> "jinja2.Environment":
    """The environment of a folder's templates; ``in_c`` marks the symbols of their own texts."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        extensions=[extension()] if in_c else [],
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    made.globals["symbol"] = symbol
    return made
