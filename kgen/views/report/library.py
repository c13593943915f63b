"""The plotting library: Vega, Vega-Lite and Vega-Embed as one text of JavaScript that a page has inside it."""

from __future__ import annotations

from kgen import paths
from kgen.errors import DiskError


def javascript() -> str:
    """The text of the library from the installed ``vl-convert-python``, without a network.

    Its assembly takes one to two seconds, so it is kept in kgen's folder if that is writable.
    """
    import vl_convert

    file = paths.home() / "report" / f"vega-{vl_convert.__version__}.js"
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        text: str = vl_convert.javascript_bundle()
    try:
        paths.write_whole(file, text)
    except DiskError:
        pass  # a report also works in a read-only folder
    return text
