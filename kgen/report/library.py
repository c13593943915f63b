"""The plotting library: Vega, Vega-Lite and Vega-Embed as one text of JavaScript that a page has inside it."""

from __future__ import annotations

from kgen import paths
from kgen.errors import DiskError


def javascript() -> str:
    """The library as the installed ``vl-convert-python`` has it; no network is asked.

    Putting it together takes one to two seconds, so that it is kept in kgen's folder, where that can be written.
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
        pass  # a page is made from a folder that is read-only, too
    return text
