"""Capture: the graphs of a problem's forward, with ``torch.export``.

    problem ── tracing ──> exported programs ── reading ──> OpGraph, one for each mode
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgen.compiler.graph import OpGraph
from kgen.compiler.reading import read
from kgen.compiler.tracing import trace
from kgen.errors import CaptureError, ProblemError

if TYPE_CHECKING:
    from kgen.problem import LoadedProblem


@dataclass(frozen=True)
class Capture:
    """One graph for each of the problem's modes; ``same`` where train and eval are the same computation."""

    graphs: tuple[tuple[str, OpGraph], ...]
    same: bool = field(default=False)


def capture(loaded: "LoadedProblem") -> Capture:
    """Capture the problem's forward in each of its modes.

    Raises :class:`CaptureError`, one line, where the forward cannot be exported or holds float64 or complex numbers,
    and :class:`kgen.errors.ProblemError` where the problem's own functions raise.
    """
    problem = loaded.problem
    graphs = {mode: _capture_mode(loaded, mode) for mode in problem.modes}
    other = {"train": "eval", "eval": "train"}
    if len(graphs) == 2:
        same = graphs["train"] == graphs["eval"]
    else:
        (mode,) = graphs
        try:
            same = _capture_mode(loaded, other[mode]) == graphs[mode]
        except CaptureError:
            same = False
    return Capture(tuple(graphs.items()), same)


def _capture_mode(loaded: "LoadedProblem", mode: str) -> OpGraph:
    """The graph of one mode, on fake weights; on real ones where a value is needed that fake ones do not have."""
    try:
        found = read(trace(loaded, mode))
    except ProblemError:
        found = read(trace(loaded, mode, real=True))
    if not found.inputs:
        raise CaptureError(f"{loaded.problem.path}: forward takes no tensor")
    return found
