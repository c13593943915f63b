"""Capture: the graphs of a problem's forward, with ``torch.export``.

    problem ── tracing ──> exported programs ── reading ──> OpGraph, one for each mode
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgen.compiler.graph import OpGraph
from kgen.compiler.reading import read
from kgen.compiler.tracing import trace, uses_autocast
from kgen.errors import CaptureError, ProblemError

if TYPE_CHECKING:
    from kgen.problem import LoadedProblem


@dataclass(frozen=True)
class Capture:
    """One graph for each of the problem's modes; ``same`` where train and eval are the same computation.

    ``by_device`` says that forward uses autocast: it computes otherwise on another kind of device.
    """

    graphs: tuple[tuple[str, OpGraph], ...]
    same: bool = field(default=False)
    by_device: bool = field(default=False)


def capture(loaded: "LoadedProblem", device_type: str = "cpu") -> Capture:
    """Capture the problem's forward in each of its modes, as it is on a kind of device, which need not be there.

    Raises :class:`CaptureError`, one line, where the forward cannot be exported or holds float64 or complex numbers,
    and :class:`kgen.errors.ProblemError` where the problem's own functions raise.
    """
    problem = loaded.problem
    found = {mode: _capture_mode(loaded, mode, device_type) for mode in problem.modes}
    graphs, by_device = {mode: graph for mode, (graph, _) in found.items()}, any(uses for _, uses in found.values())
    other = {"train": "eval", "eval": "train"}
    if len(graphs) == 2:
        same = graphs["train"] == graphs["eval"]
    else:
        (mode,) = graphs
        try:
            same = _capture_mode(loaded, other[mode], device_type)[0] == graphs[mode]
        except CaptureError:
            same = False
    return Capture(tuple(graphs.items()), same, by_device)


def _capture_mode(loaded: "LoadedProblem", mode: str, device_type: str) -> tuple[OpGraph, bool]:
    """The graph of one mode, and whether it uses autocast; on real weights where fake ones lack a value that is needed."""
    try:
        traced = trace(loaded, mode, device_type)
        found = read(traced)
    except ProblemError:
        traced = trace(loaded, mode, device_type, real=True)
        found = read(traced)
    if not found.inputs:
        raise CaptureError(f"{loaded.problem.path}: forward takes no tensor")
    return found, uses_autocast(traced.program)
