"""Exports without what only people read: a fifth of the time of a small problem's capture."""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from typing import Iterator


@contextmanager
def lean(filename: str) -> Iterator[None]:
    """Record the frames of one file alone in the stack of each node, and compile no graph before somebody calls it.

    torch looks up the source line of each frame of the whole stack, once for each node, and keeps the few of forward.
    """
    import torch.fx.proxy
    from torch.fx._lazy_graph_module import _use_lazy_graph_module

    class Frames:
        """Stands for ``CapturedTraceback``."""

        @staticmethod
        def extract() -> "Frames":
            return Frames()

        def summary(self) -> traceback.StackSummary:
            frame, found = sys._getframe(1), []
            while frame is not None:
                if frame.f_code.co_filename == filename:
                    found.append((frame, frame.f_lineno))
                frame = frame.f_back
            return traceback.StackSummary.extract(reversed(found), lookup_lines=False)

    saved = torch.fx.proxy.CapturedTraceback
    torch.fx.proxy.CapturedTraceback = Frames  # type: ignore[misc, assignment]
    try:
        with _use_lazy_graph_module(True):
            yield
    finally:
        torch.fx.proxy.CapturedTraceback = saved  # type: ignore[misc]
