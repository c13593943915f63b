"""The functions that ``import kgen`` offers. This module imports no torch: each function does, when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, Sequence

if TYPE_CHECKING:
    import torch


def save_problem(
    module: "torch.nn.Module", inputs: Sequence[Any], file: str | Path, *, kwargs: Mapping[str, Any] | None = None
) -> None:
    """Save a module with its inputs as a problem: an exported program that ``kgen sweep FILE`` takes.

    ``inputs`` are the arguments of ``forward``: tensors, numbers, and lists, tuples and dicts of them. ``kwargs`` are those
    by name. The module is exported in its present mode, without gradients. The file holds its weights and the inputs.
    The evaluator draws others with the same shapes and about the same statistics.

    Raises :class:`kgen.errors.CaptureError` where ``torch.export`` refuses the forward, :class:`kgen.errors.ProblemError`
    where kgen cannot write it as a problem, and :class:`kgen.errors.DiskError` where the file cannot be written.
    """
    from kgen.problems import live

    live.save(module, inputs, kwargs or {}, Path(file))
