"""Exports without what only people read, and without work that grows with earlier exports.

This saves a quarter of the time of a small problem's capture.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Iterator


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
        _forget_operators()


def _forget_operators() -> None:
    """Drop what torch remembers of operators' ways under the modes of exports, and which operators have such a way.

    Each mode of an export drops that of all operators that any export before it has called.
    """
    import torch
    from torch import _ops

    try:
        keys = torch._C._functionality_to_backend_keys(torch._C.DispatchKey.PreDispatch)
        for op in _ops.get_cached_ops():
            for key in keys:
                op._uncache_dispatch(key)
        _ops.reset_cached_ops()
    except AttributeError:  # another version of torch has other names: exports take longer there
        return


@contextmanager
def operators_collected_once() -> Iterator[None]:
    """Let torch look through all its operators once, and not for each program that becomes functional."""
    import torch.export.exported_program as exported_program

    own = getattr(exported_program, "_collect_all_valid_cia_ops", None)
    if own is None:  # of another version of torch
        yield
        return
    exported_program._collect_all_valid_cia_ops = lambda: _collected(own, _registered())
    try:
        yield
    finally:
        exported_program._collect_all_valid_cia_ops = own


@lru_cache(maxsize=1)
def _collected(collect: Any, registered: tuple[int, int]) -> set[Any]:
    return collect()


def _registered() -> tuple[int, int]:
    """Counts that change where a package registers another operator."""
    import torch

    key = "CompositeImplicitAutograd"
    return len(torch._C._dispatch_get_registrations_for_dispatch_key(key)), len(torch._C._dispatch_get_all_op_names())
