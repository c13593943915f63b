"""Other batches than the problem's own: whether the reference takes them, and how their outputs lie in memory."""

from typing import Any, Callable, Sequence

import torch

from kgen.evaluator.correctness.distributions import HALF, joined, slice_batch
from kgen.evaluator.correctness.reference import Run
from kgen.evaluator.correctness.tolerance import as_real
from kgen.evaluator.runtime.arena import describe, nodes, tensors


class OfBatchError(Exception):
    """Another batch than the problem's ended the device's work, as an index beyond fewer rows does: nothing runs there
    any more."""


class Batches:
    """Runs the reference on parts of the problem's inputs ``given``. ``run(inputs, mode)`` is one eager run, and
    ``wait`` waits for the device. ``state`` holds the weights and buffers of before."""

    def __init__(
        self,
        run: Callable[[Sequence[Any], str], Run],
        wait: Callable[[], None],
        given: Sequence[Any],
        state: dict[str, torch.Tensor],
    ) -> None:
        self._run, self._wait, self._given, self._state = run, wait, given, state

    def goes_by_rows(self, mode: str, count: int) -> tuple[bool, bool]:
        """Two facts. The first is whether the reference takes ``count`` rows and gives as many rows of output. The
        second is whether, besides, each output row depends on its input row alone, and no buffer changes. Raises
        :class:`OfBatchError`."""
        part = count // 2 | 1
        try:
            (whole, after), *others = (
                self._run(slice_batch(self._given, some, first), mode)
                for first, some in ((0, count), (0, part), (part, count - part))
            )
            joint = tensors(joined((output for output, _ in others), count))
            self._wait()
        except Exception as error:
            self._end_if_lost(error)
            return False, False
        pairs = list(zip(tensors(whole), joint))
        if not all(x.shape == y.shape and len(x) == count for x, y in pairs):
            return False, False
        return True, all(torch.equal(value, self._state[name]) for name, value in after.items()) and all(
            _are_close(x, y) for x, y in pairs
        )

    def layouts_of_one_row(self, mode: str) -> list[list[list[int]]]:
        """How outputs of one row lie in memory; empty where the problem refuses one row. Raises
        :class:`OfBatchError`."""
        try:
            run = self._run(slice_batch(self._given, 1), mode)
            self._wait()
        except Exception as error:
            self._end_if_lost(error)
            return []
        return layouts(run)

    def _end_if_lost(self, error: Exception) -> None:
        """Raise :class:`OfBatchError` where the device takes no more work behind ``error``."""
        try:
            self._wait()
        except Exception:
            raise OfBatchError(
                "fewer rows than the problem's end the device's work, so that no other batch is tried"
            ) from error


def layouts(run: Run) -> list[list[list[int]]]:
    """Sizes and strides of the tensors that forward returned."""
    return [[x["size"], x["stride"]] for x in nodes(describe([run[0]])[0]) if x["kind"] == "tensor"]


def _are_close(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two results of one computation in different order agree; in half types within some roundings."""
    half, x, y = x.dtype in HALF and torch.finfo(x.dtype).eps, as_real(x).double(), as_real(y).double()
    size = float(x.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()) if half and x.numel() else 0.0
    return torch.allclose(x, y, rtol=max(1e-3, 4 * half), atol=max(1e-5, 4 * half * size), equal_nan=True)
